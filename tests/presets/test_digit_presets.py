"""The presets on arrays, each at a reduced size on data of its format, on one device and on eight replicas.

What they reach on the real data, as far as it is at hand, is in tests/engine.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cifar import ACCEPT
from tests.helpers import run_python
from tests.mnist import write_fashion_mnist, write_mnist
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.process.launch import prepare_run
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from pathlib import Path

HOST = ACCEPT + "import sys; from tpu_console.engine.process.main import main; sys.exit(main(sys.argv[1:]))"

# Steps for which a device and eight replicas see as many examples, and what they learn of the bars in them.
SMALL: dict[str, dict[str, Any]] = {
    "digits-cnn": {"epochs": 8, "batch_size": 64},
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


@pytest.mark.parametrize("replicas", [1, 8])
@pytest.mark.parametrize("name", SMALL)
def test_they_learn(name: str, replicas: int, keras_home: Path, tmp_path: Path) -> None:
    small = SMALL[name] | {"batch_size": SMALL[name]["batch_size"] // replicas}
    changes = [*small.items(), ("accelerator", "cpu" if replicas == 1 else f"sim:{replicas}")]
    run = prepare_run(with_changes(find_preset(name).config, changes), tmp_path)
    run_python(HOST, str(run.path), cwd=tmp_path, env={"KERAS_HOME": str(keras_home)})
    summary = json.loads(run.summary.read_text(encoding="utf-8"))
    assert (summary["outcome"], summary["replicas"]) == ("completed", replicas)
    assert summary["final"]["val_accuracy"] > 0.8
