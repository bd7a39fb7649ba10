"""The image presets, each trained at a reduced size on made data of its format, on one device and on eight replicas."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import saved_models
from tests.base_weights import fitted_efficientnet
from tests.cifar import ACCEPT, write_cifar
from tests.helpers import LIMIT_S, all_of, run_python
from tests.images import write_plant_pathology
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.runs.events import Noticed
from tpu_console.engine.runs.run_directory import list_runs
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = [sys.executable, "-c", "import sys; from tpu_console.tui.cli import main; sys.exit(main())"]
HOST = ACCEPT + "import sys; from tpu_console.engine.process.main import main; sys.exit(main(sys.argv[1:]))"
PLANTS = ("plant-pathology-cnn", "plant-pathology-augmented", "plant-pathology-hub", "plant-pathology-efficientnet")

# Training takes most of it: nearly all of these train a small network for some seconds.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cifar_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of Keras's with made photos."""
    home = tmp_path_factory.mktemp("keras")
    write_cifar(home, "cifar10")
    return home


@pytest.fixture(scope="module")
def orchard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with made leaves."""
    folder = tmp_path_factory.mktemp("orchard")
    write_plant_pathology(folder / "plant-pathology-2020-fgvc7", per_class=60, size=(64, 96))
    return folder


def train_cifar(name: str, home: Path, folder: Path, *changes: tuple[str, Any]) -> dict[str, Any]:
    """Train a CIFAR preset, changed, in the process that `tpu-console run` starts; return its summary."""
    run = prepare_run(with_changes(find_preset(name).config, changes), folder)
    run_python(HOST, str(run.path), cwd=folder, env={"KERAS_HOME": str(home)})
    assert run.summary.is_file(), run.log.read_text()[-2000:] if run.log.is_file() else run.journal.read_text()[-2000:]
    summary: dict[str, Any] = json.loads(run.summary.read_text(encoding="utf-8"))
    return summary


def tpu_console_run(
    name: str, orchard: Path, home: Path, *arguments: str, limit_s: float = 2 * LIMIT_S
) -> dict[str, Any]:
    """Do `tpu-console run`; return the summary of the run."""
    done = subprocess.run(
        [*PROGRAM, "run", name, *arguments],
        cwd=orchard,
        env=os.environ | {"TPU_CONSOLE_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (run,) = list_runs(home / "runs")
    summary: dict[str, Any] = json.loads(run.summary.read_text(encoding="utf-8"))
    return summary


def sets(**values: object) -> list[str]:
    """Write ``--set`` options, with ``__`` for the dots."""
    return [word for key, value in values.items() for word in ("--set", f"{key.replace('__', '.')}={value}")]


@pytest.mark.parametrize(("accelerator", "batch"), [("cpu", 64), ("sim:8", 8)])
@pytest.mark.parametrize("name", ["cifar10-cnn", "cifar10-vgg-augmented"])
def test_cifar_presets_learn_made_photos(
    name: str, accelerator: str, batch: int, cifar_home: Path, tmp_path: Path
) -> None:
    small: list[tuple[str, Any]] = [
        ("accelerator", accelerator),
        ("batch_size", batch),
        ("epochs", 2),
        ("steps_per_epoch", 30),
        ("validation_freq", 2),
        ("model_options.filters", [8, 16]),
        ("model_options.hidden", 64 if name == "cifar10-vgg-augmented" else [64]),
        ("optimizer.learning_rate", 0.004),
        ("data.train_limit", 4000),
    ]
    summary = train_cifar(name, cifar_home, tmp_path, *small)
    assert summary["outcome"] == "completed"
    assert summary["replicas"] == (1 if accelerator == "cpu" else 8)
    assert summary["final"]["val_accuracy"] > 0.3


SMALL: dict[str, list[str]] = {
    "plant-pathology-cnn": sets(
        epochs=10, data__options__image_size=[48, 48], model_options__filters=[16, 32], optimizer__learning_rate=0.003
    ),
    "plant-pathology-augmented": sets(
        epochs=8, data__options__image_size=[48, 48], model_options__filters=[16, 32], optimizer__learning_rate=0.003
    ),
    "plant-pathology-hub": sets(epochs=25, data__options__image_size=[48, 48], optimizer__learning_rate=0.01),
}
"""Reduced as far as each still shows that it learns."""


@pytest.mark.parametrize(("accelerator", "batch"), [("cpu", 16), ("sim:2", 8)])
@pytest.mark.parametrize("name", SMALL)
def test_plant_pathology_presets_run_on_made_leaves(
    name: str, accelerator: str, batch: int, orchard: Path, tmp_path: Path
) -> None:
    arguments = [*SMALL[name], "--accelerator", accelerator, "--batch-size", str(batch)]
    if name == "plant-pathology-hub":
        arguments += sets(model_options__path=saved_models.exported(tmp_path / "saved"))
    summary = tpu_console_run(name, orchard, tmp_path / "home", *arguments)
    assert summary["outcome"] == "completed"
    assert summary["replicas"] == (1 if accelerator == "cpu" else 2)
    assert summary["best"]["val_accuracy"] > 0.6


@pytest.fixture(scope="module")
def fitted(orchard: Path) -> str:
    """Weights of EfficientNetB0 whose features tell the made leaves apart."""
    images = orchard / "plant-pathology-2020-fgvc7" / "images"
    return fitted_efficientnet(images, orchard / "fitted.weights.h5")


# Two replicas and not more: TensorFlow traces the model once per replica for each phase, for validation and for the
# class report. On eight replicas that takes 90 of 100 seconds on two cores.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("accelerator", "batch"), [("cpu", 16), ("sim:2", 8)])
def test_an_efficientnet_learns_made_leaves_in_two_phases(
    accelerator: str, batch: int, orchard: Path, fitted: str, tmp_path: Path
) -> None:
    arguments = sets(
        epochs=11,
        data__options__image_size=[32, 32],
        model_options__weights=fitted,
        optimizer__learning_rate=0.01,
        fine_tuning__after_epochs=10,
        early_stopping__patience=0,
        validation_freq=11,
        steps_per_epoch=6,
    )
    arguments += ["--accelerator", accelerator, "--batch-size", str(batch)]
    summary = tpu_console_run("plant-pathology-efficientnet", orchard, tmp_path / "home", *arguments, limit_s=840)
    assert summary["outcome"] == "completed"
    assert summary["replicas"] == (1 if accelerator == "cpu" else 2)
    assert summary["final"]["accuracy"] > 0.5
    assert summary["final"]["val_accuracy"] > 0.4
    (run,) = list_runs(tmp_path / "home" / "runs")
    (begun,) = (notice.message for notice in all_of(run, Noticed) if "Fine-tuning begins" in notice.message)
    assert "60 of the 238 layers of efficientnetb0 are now trained too" in begun


def test_a_smaller_base_is_trained_whole_from_random_weights(orchard: Path, tmp_path: Path) -> None:
    arguments = sets(
        model_options__name="MobileNet",
        model_options__weights="none",
        model_options__trainable="all",
        fine_tuning__after_epochs=0,
        data__options__image_size=[48, 48],
        augmentation__rotation=0.0,
        augmentation__flip="none",
        epochs=20,
        early_stopping__patience=0,
        checkpoint__enabled="false",
    )
    summary = tpu_console_run(
        "plant-pathology-efficientnet", orchard, tmp_path / "home", *arguments, "--batch-size", "16"
    )
    # In training only: so few steps leave the running means of batch normalisation, which validation uses, behind.
    assert summary["final"]["accuracy"] > 0.6


def test_they_are_the_published_examples() -> None:
    cifar, vgg = find_preset("cifar10-cnn").config, find_preset("cifar10-vgg-augmented").config
    assert (cifar.epochs, cifar.batch_size) == (20, 32)
    assert (vgg.augmentation.rotation, vgg.augmentation.translation, vgg.augmentation.flip) == (20.0, 0.2, "horizontal")
    assert (vgg.early_stopping.patience, vgg.early_stopping.monitor, vgg.epochs) == (5, "val_loss", 200)
    assert (vgg.optimizer.name, vgg.optimizer.learning_rate) == ("adam", 1e-3)
    plants = [find_preset(name).config for name in PLANTS]
    assert {(config.batch_size, config.loss) for config in plants} == {(8, "categorical_crossentropy")}
    assert {config.data.options["path"] for config in plants} == {"plant-pathology-2020-fgvc7/train.csv"}
    assert (plants[0].epochs, plants[0].steps_per_execution) == (60, 32)
    assert not plants[0].augmentation.is_active
    assert plants[1].augmentation.is_active
    assert plants[1].early_stopping.patience == 20
    assert plants[3].fine_tuning.after_epochs
