"""The installed package beside files of the same names: it takes up one top-level name."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.helpers import ROOT

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


def build(target: str, source: Path, folder: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python environment with the wheel's files in it, and this environment's other packages behind them."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # A path file is not followed from a path file: the editable install of this checkout stays out.
    behind = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "behind.pth").write_text("\n".join(behind) + "\n")
    return folder / "bin" / "python"


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
    assert {name.split("/")[0] for name in names} == {"tpu_console", "tpu_console-0.1.0.dist-info"}
    assert {
        "tpu_console/py.typed",
        "tpu_console/engine/training/train.py",
        "tpu_console/presets/digits-cnn.toml",
        "tpu_console/tui/screens/live.tcss",
    } <= set(names)


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build("sdist", ROOT, tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    again = build("wheel", source, tmp_path / "wheel")
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(again) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())


def test_a_script_keeps_its_own_neighbours(python: Path, neighbours: Path) -> None:
    (neighbours / "script.py").write_text(SCRIPT)
    said = run(python, neighbours / "script.py", cwd=neighbours)
    assert said.split() == ["tpu_console.engine.training.bridge"]


def test_modules_on_the_path_do_not_get_in_the_way(python: Path, neighbours: Path) -> None:
    said = run(python, "-m", "tpu_console", "presets", cwd=neighbours, PYTHONPATH=str(neighbours))
    assert "digits-cnn" in said


def test_a_model_file_imports_its_own_neighbours(python: Path, neighbours: Path) -> None:
    (neighbours / "mine.py").write_text(MODEL)
    command: list[str | Path] = [
        python,
        "-m",
        "tpu_console",
        "run",
        "digits-cnn",
        "--set",
        "model=mine.py:build",
        "--epochs",
        "1",
    ]
    said = run(*command, "--set", "checkpoint.enabled=false", cwd=neighbours, PYTHONPATH=str(neighbours))
    assert "1/1" in said
    shutil.rmtree(neighbours)
