"""The presets on arrays, each at a reduced size on data of its format, on one device or on two replicas.

What they reach on real data is in tests/engine.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.cifar import ACCEPT
from tests.helpers import LIMIT_S, fork_host
from tests.mnist import write_fashion_mnist, write_mnist
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.process.launch import prepare_run
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from pathlib import Path

# The batch size is that of all replicas, so that each accelerator sees as many examples.
SMALL: dict[str, dict[str, Any]] = {
    "fashion-mnist-cnn": {"epochs": 1, "validation_freq": 1, "batch_size": 128, "steps_per_epoch": 30},
    "mnist-mlp": {"epochs": 2, "batch_size": 128, "steps_per_epoch": 20, "model_options.hidden": [64]},
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def keras_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of Keras's with made pictures."""
    home = tmp_path_factory.mktemp("keras")
    write_mnist(home)
    write_fashion_mnist(home)
    return home


# TensorFlow traces the model once per replica, so that eight cost four times as much as two. Eight replicas are in
# tests/engine/training/test_backends.py; digits-cnn and the other presets on one device, on real data, in
# tests/engine/training.
@pytest.mark.parametrize(("name", "replicas"), [("fashion-mnist-cnn", 2), ("mnist-mlp", 1)])
def test_they_learn(name: str, replicas: int, keras_home: Path, tmp_path: Path) -> None:
    small = SMALL[name] | {"batch_size": SMALL[name]["batch_size"] // replicas}
    accelerator = "cpu" if replicas == 1 else f"sim:{replicas}"
    changes = [*small.items(), ("accelerator", accelerator), ("sinks", [])]
    run = prepare_run(with_changes(find_preset(name).config, changes), tmp_path)
    fork_host(run, ACCEPT, env=os.environ | {"KERAS_HOME": str(keras_home)}).wait(8 * LIMIT_S)
    summary = json.loads(run.summary.read_text(encoding="utf-8"))
    assert (summary["outcome"], summary["replicas"]) == ("completed", replicas)
    assert summary["final"]["val_accuracy"] > 0.8
