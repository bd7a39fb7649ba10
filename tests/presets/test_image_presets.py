"""The image presets, each trained at a reduced size on made data of its format, on one device."""

from __future__ import annotations

import json
import os
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import pytest

from tests import saved_models
from tests.base_weights import fitted_mobilenet
from tests.cifar import ACCEPT, write_cifar
from tests.helpers import LIMIT_S, fork_host
from tests.images import write_plant_pathology
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.models.build import build_model
from tpu_console.engine.models.fine_tuning import unfreeze
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.runs.class_report import read_report
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

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


def train(name: str, folder: Path, runs: Path, changes: dict[str, Any], **env: str) -> RunDirectory:
    """Train a preset, changed, in a folder, in a fork, without TensorBoard; return its run, which completed."""
    changed = {"sinks": []} | changes
    with chdir(folder):  # what is started there is trusted there
        run = prepare_run(with_changes(find_preset(name).config, [*changed.items()]), runs)
    process = fork_host(run, ACCEPT, cwd=folder, env=os.environ | env)
    try:
        process.wait(8 * LIMIT_S)
    finally:
        process.kill()
    assert run.summary.is_file(), run.log.read_text()[-2000:] if run.log.is_file() else run.journal.read_text()[-2000:]
    assert summary_of(run)["outcome"] == "completed"
    return run


def summary_of(run: RunDirectory) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(run.summary.read_text(encoding="utf-8"))
    return summary


# Both take their photos from the same archive, and 10,000 of them for validation: the second gets small pictures.
CIFAR: dict[str, dict[str, Any]] = {
    "cifar10-cnn": {
        "epochs": 2,
        "steps_per_epoch": 30,
        "model_options.filters": [8, 16],
        "model_options.hidden": [64],
        "optimizer.learning_rate": 0.004,
        "data.train_limit": 4000,
    },
    "cifar10-vgg-augmented": {
        "dataset": "digits",
        "epochs": 4,
        "steps_per_epoch": 15,
        "model_options.filters": [16],
        "model_options.hidden": 32,
        "optimizer.learning_rate": 0.006,
        "data.train_limit": 1000,
    },
}


@pytest.mark.parametrize("name", CIFAR)
def test_cifar_presets_learn_made_photos_or_digits(name: str, cifar_home: Path, tmp_path: Path) -> None:
    small = CIFAR[name] | {"accelerator": "cpu", "batch_size": 64, "validation_freq": 2}
    summary = summary_of(train(name, tmp_path, tmp_path, small, KERAS_HOME=str(cifar_home)))
    assert summary["replicas"] == 1
    assert summary["final"]["val_accuracy"] > 0.3


SMALL_IMAGES = {"data.options.image_size": [48, 48]}
SMALL_CNN = {**SMALL_IMAGES, "model_options.filters": [16, 32], "optimizer.learning_rate": 0.003}
SMALL: dict[str, dict[str, Any]] = {
    "plant-pathology-cnn": SMALL_CNN | {"epochs": 8},
    "plant-pathology-hub": SMALL_IMAGES | {"epochs": 16, "optimizer.learning_rate": 0.03},
}
"""As small as possible while each still shows that it learns."""


# The augmented one, which differs from the first by its augmentation only, trains in test_jax_presets.py. Augmentation
# on TensorFlow is in the preset above and, on two replicas, in tests/engine/data/test_image_labels.py.
@pytest.mark.parametrize("name", SMALL)
def test_plant_pathology_presets_run_on_made_leaves(name: str, orchard: Path, tmp_path: Path) -> None:
    changes = SMALL[name] | {"accelerator": "cpu", "batch_size": 16}
    if name == "plant-pathology-hub":
        changes["model_options.path"] = str(saved_models.exported(tmp_path / "saved"))
    summary = summary_of(train(name, orchard, tmp_path, changes))
    assert summary["replicas"] == 1
    assert summary["best"]["val_accuracy"] > 0.6


@pytest.fixture(scope="module")
def fitted(orchard: Path) -> str:
    """Weights of MobileNet whose features tell the made leaves apart."""
    images = orchard / "plant-pathology-2020-fgvc7" / "images"
    return fitted_mobilenet(images, orchard / "fitted.weights.h5")


# One phase on one device, validated by the class report only: TensorFlow traces the model once per replica for each of
# them, and EfficientNet twice as long as MobileNet. Two phases on two replicas are in test_jax_presets.py, and in
# tests/engine/models/test_fine_tuning.py.
def test_a_pretrained_base_learns_made_leaves(orchard: Path, fitted: str, tmp_path: Path) -> None:
    changes = {
        "epochs": 6,
        "data.options.image_size": [32, 32],
        "model_options.name": "MobileNet",
        "model_options.weights": fitted,
        "optimizer.learning_rate": 0.01,
        "fine_tuning.after_epochs": 0,
        "early_stopping.patience": 0,
        "checkpoint.monitor": "none",
        "validation_freq": 100,
        "steps_per_execution": 1,
        "steps_per_epoch": 6,
        "accelerator": "cpu",
        "batch_size": 16,
    }
    run = train("plant-pathology-efficientnet", orchard, tmp_path, changes)
    summary = summary_of(run)
    assert summary["replicas"] == 1
    assert summary["final"]["accuracy"] > 0.5
    report = read_report(run)
    assert report is not None
    assert report.accuracy > 0.4


def test_the_last_layers_of_the_efficientnet_are_trained_in_the_second_phase() -> None:
    config = with_changes(find_preset("plant-pathology-efficientnet").config, [("model_options.weights", "none")])
    model = build_model(config, Signature(Task.CLASSES, {"image": Input((32, 32, 3))}, 4))
    trained = len(model.trainable_weights)
    assert "60 of the 238 layers" in unfreeze(model, config)
    assert len(model.trainable_weights) > trained == 2


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
