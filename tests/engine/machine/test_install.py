"""The command that installs a package."""

import sys
from pathlib import Path

import pytest

from tpu_console.engine.machine.install import install_line, line_for_module


def test_a_notebook_installs_in_a_cell_and_keeps_what_is_there() -> None:
    notice, install = install_line("jax[tpu]", "keras", environ={"COLAB_RELEASE_TAG": "1"}).split(" && ")
    assert notice.startswith("!pip list ")
    assert install == "pip install -c here.txt 'jax[tpu]' keras"


def test_elsewhere_it_is_the_pip_of_this_python(tmp_path: Path) -> None:
    assert install_line("keras", environ={"PATH": str(tmp_path)}) == f"{sys.executable} -m pip install keras"
    first = str(Path(sys.executable).parent)
    assert install_line("keras", environ={"PATH": first}) == "pip install keras"


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("tensorflow_hub.resolver", "tensorflow-hub"),
        ("polars", "polars"),
        ("PIL.Image", "pillow"),
        ("cv2", "opencv-python"),
        ("yaml", "pyyaml"),
    ],
)
def test_a_module_names_its_package(module: str, package: str) -> None:
    assert line_for_module(module).endswith(f"install {package}")
