"""Presets on TensorFlow and one device, each trained at a reduced size on made data of its format.

The others, and several replicas, are in test_jax_presets.py; on TensorFlow, translations and ratings are in
tests/engine/jobs/test_predict.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests import saved_models
from tests.images import write_plant_pathology
from tests.keras_files import write_cifar, write_fashion_mnist, write_mnist
from tests.only_shapes import only_shapes
from tests.presets.test_jax_presets import RUNS as ON_JAX
from tests.presets.training import train_presets
from tests.words import write_reviews
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.models.build import build_model, unfreeze
from tpu_console.presets.catalog import all_presets, find_preset

if TYPE_CHECKING:
    from tpu_console.engine.runs.run_directory import RunDirectory

# What to change, as ``--set`` takes it, and the validation accuracy that shows that it learns.
SMALL = {
    "fashion-mnist-cnn": ("epochs=1 validation_freq=1 batch_size=128 steps_per_epoch=30", 0.8),
    "mnist-mlp": ("epochs=1 steps_per_epoch=40 model_options.hidden=[64]", 0.8),
    "cifar10-cnn": ("epochs=1 steps_per_epoch=40 model_options.filters=[8] model_options.hidden=[32]", 0.3),
    "cifar10-vgg-augmented": (
        """dataset=digits epochs=4 steps_per_epoch=15 batch_size=64 validation_freq=4 model_options.filters=[16]
        model_options.hidden=32 optimizer.learning_rate=0.006""",
        0.3,
    ),
    "imdb-text": (
        """epochs=2 data.options.length=80 model_options.width=32 model_options.filters=[32,32]
        optimizer.learning_rate=0.004""",
        0.8,
    ),
    "plant-pathology-cnn": (
        """data.options.image_size=[48,48] epochs=8 batch_size=16 model_options.filters=[16,32]
        optimizer.learning_rate=0.003""",
        0.5,
    ),
    "plant-pathology-hub": (
        """data.options.image_size=[48,48] epochs=16 batch_size=16 optimizer.learning_rate=0.03 model_options.path=saved
        fine_tuning.after_epochs=12""",
        0.5,
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDirectory]:
    """The runs, by their presets' names."""
    home = tmp_path_factory.mktemp("keras")
    write_fashion_mnist(home, 6000)
    write_mnist(home, 6000)
    write_cifar(home, "cifar10")
    write_reviews(home / "IMDB Dataset.csv", 1200)
    write_plant_pathology(home / "plant-pathology-2020-fgvc7", per_class=60, size=(64, 96))
    saved_models.exported(home / "saved")
    made, _ = train_presets([(name, changes) for name, (changes, _) in SMALL.items()], home, "tensorflow")
    return dict(zip(SMALL, made, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_preset_learns(name: str, runs: dict[str, RunDirectory]) -> None:
    run = runs[name]
    assert run.summary.is_file(), run.journal.read_text()[-2000:]
    summary = json.loads(run.summary.read_text(encoding="utf-8"))
    assert (summary["outcome"], summary["replicas"]) == ("completed", 1)
    assert summary["best"]["val_accuracy"] >= SMALL[name][1]


def test_the_last_blocks_of_efficientnet_are_trained_in_the_second_phase() -> None:
    config = with_changes(find_preset("plant-pathology-efficientnet").config, [("model_options.weights", "none")])
    with only_shapes():
        model = build_model(config, Signature(Task.CLASSES, {"image": Input((32, 32, 3))}, 4))
        trained = len(model.trainable_weights)
        assert "60 of the 238 layers" in unfreeze(model, config)
    assert len(model.trainable_weights) > trained == 2


def test_every_preset_is_trained_by_a_test() -> None:
    found, _ = all_presets()
    assert {*SMALL, *(name for name, _ in ON_JAX.values())} == {preset.name for preset in found}
