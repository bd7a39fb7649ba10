"""The installed package beside files of the same names: it takes up one top-level name."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.install_lines import build
from tests.tui.terminal_driver import Terminal

OWN = "WHOSE = 'mine'\n"

MODEL = """
import keras
import engine

assert engine.WHOSE == "mine", engine.__file__


def build(shape, classes):
    import tui

    assert tui.WHOSE == "mine", tui.__file__
    inputs = keras.Input(shape)
    outputs = keras.layers.Dense(classes, activation="softmax")(keras.layers.Flatten()(inputs))
    return keras.Model(inputs, outputs)
"""

SCRIPT = """
import engine, presets, tui

assert {engine.WHOSE, presets.WHOSE, tui.WHOSE} == {"mine"}
import tpu_console.engine.runs.journal
import tpu_console.presets
import tpu_console.tui.cli
from tpu_console import BridgeCallback

assert engine.WHOSE == "mine"
print(BridgeCallback.__module__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


def environment(wheel: Path, folder: Path) -> tuple[Path, Path]:
    """Make a Python environment with the wheel's files in it; return its Python and the folder of its packages."""
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    return folder / "bin" / "python", packages


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python environment with the wheel's files in it, and this environment's other packages behind them."""
    python, packages = environment(wheel, tmp_path_factory.mktemp("environment"))
    # A path file is not followed from a path file: the editable install of this checkout stays out.
    behind = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "behind.pth").write_text("\n".join(behind) + "\n")
    return python


@pytest.fixture(scope="module")
def base_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python environment with the wheel and the packages that it declares without extras: no TensorFlow, no JAX."""
    python, packages = environment(wheel, tmp_path_factory.mktemp("base"))
    (metadata,) = packages.glob("tpu_console-*/METADATA")
    waiting = re.findall(r"^Requires-Dist: (.+)", metadata.read_text(), re.MULTILINE)
    known: set[str] = set()
    while waiting:
        requirement = Requirement(waiting.pop())
        if requirement.name in known or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        known.add(requirement.name)
        found = distribution(requirement.name)
        waiting += found.requires or []
        for top in {file.parts[0] for file in found.files or [] if file.parts[0] not in {"..", "__pycache__"}}:
            if not (packages / top).exists():
                (packages / top).symlink_to(str(found.locate_file(top)))
    return python


@pytest.fixture
def neighbours(tmp_path: Path) -> Path:
    """A folder with modules named like the folders of the source."""
    folder = tmp_path / "project"
    (folder / "tui").mkdir(parents=True)
    (folder / "tui" / "__init__.py").write_text(OWN)
    (folder / "engine.py").write_text(OWN)
    (folder / "presets.py").write_text(OWN)
    return folder


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=cwd, env=kept | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_one_top_level_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"tpu_console"}
    for file in ("py.typed", "engine/training/train.py", "presets/digits-cnn.toml", "tui/screens/live.tcss"):
        assert f"tpu_console/{file}" in names


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build(tmp_path / "sdist", "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    again = build(tmp_path / "wheel", source=source)
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())


def test_a_script_keeps_its_own_neighbours(python: Path, neighbours: Path) -> None:
    (neighbours / "script.py").write_text(SCRIPT)
    said = run(python, neighbours / "script.py", cwd=neighbours, KERAS_BACKEND="jax")  # Keras starts quicker with it
    assert said.strip().endswith(".training.bridge")


def test_a_model_file_imports_its_own_neighbours(python: Path, neighbours: Path) -> None:
    (neighbours / "mine.py").write_text(MODEL)
    command = "-m tpu_console run digits-cnn --set model=mine.py:build --set checkpoint.monitor=none --epochs 1"
    said = run(python, *command.split(), cwd=neighbours, PYTHONPATH=str(neighbours))
    assert "1/1" in said
    shutil.rmtree(neighbours)


def test_the_base_install_brings_no_framework_and_runs_what_needs_none(base_python: Path, tmp_path: Path) -> None:
    packages = {path.name for path in base_python.parents[1].glob("lib/*/site-packages/*")}
    assert "keras" in packages
    assert packages.isdisjoint({"tensorflow", "tensorflow_hub", "tensorboard", "tf_keras", "jax", "grpc", "setuptools"})
    for command in (["--help"], ["presets"], ["runs"], ["doctor", "--help"]):
        run(base_python, "-P", "-m", "tpu_console", *command, cwd=tmp_path, TPU_CONSOLE_HOME=str(tmp_path))
    imported = "import tpu_console, importlib.util; assert importlib.util.find_spec('tensorflow') is None"
    run(base_python, "-P", "-c", imported, cwd=tmp_path)


@pytest.mark.parametrize(
    ("command", "code"),
    [(["run", "digits-cnn"], 2), (["run", "digits-cnn", "--backend", "jax"], 2), (["inspect", "digits"], 1)],
)
def test_without_tensorflow_one_sentence_gives_the_line_that_installs_it(
    base_python: Path, tmp_path: Path, command: list[str], code: int
) -> None:
    environ = {**os.environ, "TPU_CONSOLE_HOME": str(tmp_path), "COLAB_RELEASE_TAG": "1"}
    whole: list[str | Path] = [base_python, "-P", "-m", "tpu_console", *command]
    done = subprocess.run(whole, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "tensorflow" in done.stderr.rpartition("pip install ")[2]
    assert "Traceback" not in done.stderr


def test_the_setup_screen_of_the_base_install_says_what_is_missing(base_python: Path, tmp_path: Path) -> None:
    terminal = Terminal("-P", "-m", "tpu_console", home=tmp_path, program=str(base_python))
    try:
        terminal.wait_for_all("TensorFlow is not installed", "pip install")
        terminal.press("ctrl+r")
        terminal.wait_for("The run cannot start")
        terminal.press("escape")
        terminal.wait_until_gone("The run cannot start")
        terminal.press("ctrl+q")
        assert terminal.wait() == 0
    finally:
        terminal.close()
