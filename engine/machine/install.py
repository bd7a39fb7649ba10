"""The command that installs a missing package, for this place and this Python.

It names the package, not an extra of ours, and never says ``--upgrade``, which breaks images of notebook services.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DataError
from .devices import Hardware, detect_hardware
from .place import find_service

if TYPE_CHECKING:
    from collections.abc import Mapping

JAX_ON_TPU = "jax[tpu]"

_PACKAGES = {
    "PIL": "pillow",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dotenv": "python-dotenv",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""The packages of modules that have another name."""


def check_installed(what: str, module: str, *packages: str) -> None:
    """Raise `DataError` if something needs a module that is not installed; its packages are called as it by default."""
    if find_spec(module) is None:
        names = packages or (module,)
        raise DataError(f"{what} needs the package {names[0]}.", remedy=f"Install it: {install_line(*names)}")


def install_line(*packages: str, environ: Mapping[str, str] = os.environ) -> str:
    """Return the command that installs packages here, such as ``pip install 'jax[tpu]'``."""
    if find_service(environ) is not None:
        return line_in_cell(*packages)
    if find_spec("pip") is None:  # an environment made by uv
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *packages])
    is_first = shutil.which("pip", path=environ.get("PATH")) == str(Path(sys.executable).with_name("pip"))
    pip = ["pip"] if is_first else [sys.executable, "-m", "pip"]
    return shlex.join([*pip, "install", *packages])


def line_in_cell(*packages: str) -> str:
    """Return the command for a cell of a notebook service; the constraints keep every package of the image as it is."""
    return f"!pip list --format=freeze > here.txt && pip install -c here.txt {shlex.join(packages)}"


def tensorflow_for(*, has_tpu: bool, has_gpu: bool, is_notebook: bool) -> str:
    """Return the TensorFlow package for a machine that has none: with a TPU it only reads data; notebooks have CUDA."""
    if has_tpu:
        return "tensorflow-cpu"
    return "tensorflow[and-cuda]" if has_gpu and not is_notebook else "tensorflow"


def tensorflow_here(hardware: Hardware | None = None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the TensorFlow package for this machine."""
    hardware = hardware or detect_hardware()
    is_notebook = find_service(environ) is not None
    return tensorflow_for(has_tpu=bool(hardware.tpu), has_gpu=bool(hardware.gpus), is_notebook=is_notebook)


def line_for_module(module: str) -> str:
    """Return the command that installs the package of a module that could not be imported."""
    name = module.partition(".")[0]
    packages = {**_PACKAGES, "libtpu": JAX_ON_TPU, "tensorflow": tensorflow_here()}
    return install_line(packages.get(name, name.replace("_", "-")))
