"""The installed packages, read from their metadata without importing them, and the command that installs a missing one.

That command names the package, not an extra of ours, and never says ``--upgrade``, which breaks images of notebook
services.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from ..errors import DataError
from .devices import Hardware, detect_hardware, find_service
from .sources import Package, Sources, installed_versions

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

# These packages share the folder tensorflow/, so only one of them can be intact.
TF_BUILDS = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tf-nightly", "tf-nightly-cpu", "tf-nightly-tpu")
CUDA_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin")
_OTHERS = ("keras", "jax", "jaxlib", "libtpu", "libtpu-nightly")
NEW_LIBTPU = "0.0.32"
"""The first libtpu with which importing tensorflow-tpu 2.20 aborts, because it lacks functions; pip installs it."""


class Misfit(Struct, frozen=True):
    """A requirement that the installed packages do not meet."""

    owner: str  # the package with the requirement, and its version
    requirement: str  # the requirement, such as ``libtpu==0.0.10``
    found: str  # the installed version; empty for none


class Packages(Struct, frozen=True):
    """The installed packages that matter for training."""

    found: Mapping[str, Package]
    python: str

    def version(self, name: str) -> str:
        """Return the version of a package; empty if it is not installed."""
        return self.found[name].version if name in self.found else ""

    @property
    def libtpu(self) -> str:
        """The TPU's runtime with its version; empty for none. JAX up to 0.4 uses the nightly one."""
        return next((f"{n} {self.version(n)}" for n in ("libtpu", "libtpu-nightly") if self.version(n)), "")

    @property
    def tensorflows(self) -> tuple[Package, ...]:
        """The installed TensorFlow packages."""
        return tuple(self.found[name] for name in TF_BUILDS if name in self.found)

    @property
    def has_one_tensorflow(self) -> bool:
        """Whether one TensorFlow is installed, or several builds of one version, whose files fit together.

        Kaggle's TPU image has ``tensorflow`` beside ``tensorflow-cpu``; only ``tensorflow-tpu`` has TPU operations.
        """
        found = self.tensorflows
        is_mixed = len(found) > 1 and any(package.name.endswith("-tpu") for package in found)
        return bool(found) and len({package.version for package in found}) == 1 and not is_mixed

    def misfits(self, owner: str, target: str, extra: str = "") -> tuple[Misfit, ...]:
        """Return the requirements of one package on another, or of its extra such as ``tpu``, that are not met."""
        # Imported here, because the form of a run uses only names from this module.
        from packaging.requirements import InvalidRequirement, Requirement
        from packaging.specifiers import SpecifierSet
        from packaging.utils import canonicalize_name

        have, package, found = self.version(target), self.found.get(owner), []
        for text in package.requires if package is not None else ():
            with suppress(InvalidRequirement):
                requirement = Requirement(text)
                if canonicalize_name(requirement.name) != target:
                    continue
                specifier, marker = requirement.specifier, requirement.marker
                applies = not extra if marker is None else marker.evaluate({"extra": extra})
                if not applies or (extra and "extra" not in str(marker)):
                    continue
                if (owner, target) == ("tensorflow-tpu", "libtpu") and NEW_LIBTPU in specifier:
                    specifier &= SpecifierSet(f"<{NEW_LIBTPU}")
                if not have or not specifier.contains(have, prereleases=True):
                    found.append(Misfit(f"{owner} {self.version(owner)}", f"{target}{specifier}", have))
        return tuple(found)


def aborting_libtpu() -> str:
    """Return the libtpu with which the installed tensorflow-tpu aborts while it is imported; empty for none."""
    from packaging.version import Version

    found = installed_versions(("tensorflow-tpu", "libtpu"))
    is_new = "tensorflow-tpu" in found and Version(found.get("libtpu", "0")) >= Version(NEW_LIBTPU)
    return f"libtpu {found['libtpu']}" if is_new else ""


def compiles_for_cpu() -> bool:
    """Return whether the installed TensorFlow can compile for the CPU; tensorflow-tpu compiles for TPUs only."""
    return not installed_versions(("tensorflow-tpu",))


def find_packages(sources: Sources) -> Packages:
    """Read the versions and requirements of the packages that matter for training."""
    looked = ((name, sources.package(name)) for name in (*TF_BUILDS, *CUDA_PLUGINS, *_OTHERS))
    return Packages({name: package for name, package in looked if package is not None}, sources.python)


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
