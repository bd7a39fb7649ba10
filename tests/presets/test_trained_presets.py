"""Presets on images, each trained on TensorFlow at a reduced size on made data of its format, on one device.

Those on words and ratings, and several replicas, are in test_jax_presets.py; on TensorFlow, texts, translations and
ratings are in tests/engine/jobs/test_predict.py, and a pretrained base in tests/engine/models/test_fine_tuning.py.
"""

from __future__ import annotations

import json
import os
from contextlib import chdir
from typing import TYPE_CHECKING, Any

import pytest

from tests import saved_models
from tests.helpers import LIMIT_S, fork_host
from tests.images import write_plant_pathology
from tests.mnist import write_fashion_mnist
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.process.launch import prepare_run
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from pathlib import Path

# What to change, and the validation accuracy that shows that it learns.
SMALL: dict[str, tuple[dict[str, Any], float]] = {
    "fashion-mnist-cnn": ({"epochs": 1, "validation_freq": 1, "batch_size": 128, "steps_per_epoch": 30}, 0.8),
    "cifar10-vgg-augmented": (
        {
            "dataset": "digits",
            "epochs": 4,
            "steps_per_epoch": 15,
            "batch_size": 64,
            "validation_freq": 4,
            "model_options.filters": [16],
            "model_options.hidden": 32,
            "optimizer.learning_rate": 0.006,
        },
        0.3,
    ),
    "plant-pathology-hub": (
        {"data.options.image_size": [48, 48], "epochs": 16, "batch_size": 16, "optimizer.learning_rate": 0.03},
        0.5,
    ),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with made data, which is Keras's home too."""
    home = tmp_path_factory.mktemp("keras")
    write_fashion_mnist(home)
    write_plant_pathology(home / "plant-pathology-2020-fgvc7", per_class=60, size=(64, 96))
    return home


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_preset_learns(name: str, home: Path, tmp_path: Path) -> None:
    changes, least = SMALL[name]
    changes = {"accelerator": "cpu", "sinks": []} | changes
    if name == "plant-pathology-hub":
        changes["model_options.path"] = str(saved_models.exported(tmp_path / "saved"))
    with chdir(home):  # what is started there is trusted there
        run = prepare_run(with_changes(find_preset(name).config, [*changes.items()]), tmp_path)
    process = fork_host(run, cwd=home, env=os.environ | {"KERAS_HOME": str(home)})
    try:
        process.wait(8 * LIMIT_S)
    finally:
        process.kill()
    assert run.summary.is_file(), run.journal.read_text()[-2000:]
    summary = json.loads(run.summary.read_text(encoding="utf-8"))
    assert (summary["outcome"], summary["replicas"]) == ("completed", 1)
    assert summary["best"]["val_accuracy"] > least
