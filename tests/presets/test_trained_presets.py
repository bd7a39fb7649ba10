"""The presets on arrays, words and ratings, each trained at a reduced size on data of its format.

What they reach on real data is in tests/engine.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.cifar import ACCEPT
from tests.helpers import LIMIT_S, all_of, fork_host, run_forked, run_host, the
from tests.mnist import write_fashion_mnist, write_mnist
from tests.words import ratings, write_ratings, write_reviews
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.runs.events import DataReady, EpochEnded, RunFinished
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

pytestmark = pytest.mark.slow

# On one device: TensorFlow traces the model once per replica. Several are in tests/engine/training/test_backends.py, of
# the recommender in test_jax_presets.py, of a Transformer in tests/engine/training/test_translation.py. The preset that
# translates is in test_jax_presets.py, a small one on TensorFlow in tests/engine/jobs/test_predict.py.
LOAD = """
import json, sys
import numpy as np
import keras
model = keras.saving.load_model(sys.argv[1])
given = {part.name: np.zeros((2, *part.shape[1:]), "int32") for part in model.inputs}
said = model.predict(given if len(given) > 1 else given["text"], verbose=0)
assert "engine" not in sys.modules
print(json.dumps({"shape": said.shape, "finite": bool(np.isfinite(said).all()), "loss": str(model.loss)}))
"""


def trained(name: str, path: Path, changes: dict[str, Any]) -> RunDirectory:
    """Train a preset on other files, without TensorBoard files, in a host process."""
    always = {"data.options.path": str(path), "accelerator": "cpu", "sinks": []}
    config = with_changes(find_preset(name).config, [*(always | changes).items()])
    run = run_host(config, path.parent / "runs")
    assert the(run, RunFinished).outcome == "completed"
    return run


def loaded(run: RunDirectory) -> dict[str, Any]:
    """What the saved model says in a process that has never heard of this project."""
    said: dict[str, Any] = json.loads(run_forked(LOAD, str(run.model), cwd=run.path).splitlines()[-1])
    assert said["finite"]
    return said


def last_logs(run: RunDirectory) -> dict[str, float]:
    return all_of(run, EpochEnded)[-1].logs


def test_imdb_text(tmp_path: Path) -> None:
    run = trained(
        "imdb-text",
        write_reviews(tmp_path / "IMDB Dataset.csv", 1200),
        {
            "batch_size": 32,
            "data.options.length": 80,
            "model_options.width": 32,
            "model_options.filters": [32, 32],
            "optimizer.learning_rate": 0.004,
        },
    )
    assert last_logs(run)["val_accuracy"] > 0.95
    assert loaded(run)["shape"] == [2, 2]


def test_movielens_recommender(tmp_path: Path) -> None:
    rows = ratings(100, 80, 6000)
    run = trained(
        "movielens-recommender",
        write_ratings(tmp_path / "ml-latest-small" / "ratings.csv", rows),
        {
            "epochs": 3,
            "batch_size": 64,
            "model_options.width": 8,
            "optimizer.learning_rate": 0.02,
        },
    )
    deviation = np.std([row[2] for row in rows])
    assert last_logs(run)["val_root_mean_squared_error"] < 0.5 * deviation
    assert loaded(run)["shape"] == [2, 1]


SMALL: dict[str, dict[str, Any]] = {
    "fashion-mnist-cnn": {"epochs": 1, "validation_freq": 1, "batch_size": 128, "steps_per_epoch": 30},
    "mnist-mlp": {"epochs": 2, "batch_size": 128, "steps_per_epoch": 20, "model_options.hidden": [64]},
}


@pytest.fixture(scope="module")
def keras_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of Keras's with made pictures."""
    home = tmp_path_factory.mktemp("keras")
    write_mnist(home)
    write_fashion_mnist(home)
    return home


@pytest.mark.parametrize("name", SMALL)
def test_they_learn(name: str, keras_home: Path, tmp_path: Path) -> None:
    changes = [*SMALL[name].items(), ("accelerator", "cpu"), ("sinks", [])]
    run = prepare_run(with_changes(find_preset(name).config, changes), tmp_path)
    fork_host(run, ACCEPT, env=os.environ | {"KERAS_HOME": str(keras_home)}).wait(8 * LIMIT_S)
    summary = json.loads(run.summary.read_text(encoding="utf-8"))
    assert (summary["outcome"], summary["replicas"]) == ("completed", 1)
    assert summary["final"]["val_accuracy"] > 0.8
    data = the(run, DataReady)
    assert (data.train_examples, data.validation_examples, data.classes) == (60_000, 10_000, 10)
    assert data.input_shape == (28, 28, 1)
