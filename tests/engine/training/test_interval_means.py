"""Models trained for real: the means between reports, and Fashion-MNIST."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.helpers import ROOT, run_host, the
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.runs.events import FitStarted, RunFinished
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from pathlib import Path

BATCH, BATCHES = 8, 30


def test_a_model_that_does_not_learn_has_the_loss_of_its_batches(tmp_path: Path) -> None:
    import keras

    from tpu_console.engine.training.bridge import BridgeCallback

    generator = np.random.default_rng(0)
    x = generator.normal(size=(BATCH * BATCHES, 4)).astype("float32")
    y = generator.integers(0, 2, BATCH * BATCHES).astype("float32")
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, activation="sigmoid")])
    metrics = ["accuracy", keras.metrics.AUC(name="auc")]
    model.compile(keras.optimizers.SGD(0.0), "binary_crossentropy", metrics=metrics, jit_compile=False)
    # A clock on which every third batch is due for a report.
    ticks = itertools.count()
    run = create_run("means", tmp_path)
    callback = BridgeCallback(Recorder(run, JournalWriter(run.journal)), clock=lambda: next(ticks) * 0.04)
    model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[callback])

    train = RunFollower(run).catch_up().state.train
    batches = [model.evaluate(x[at : at + BATCH], y[at : at + BATCH], verbose=0) for at in range(0, len(x), BATCH)]
    steps = [0, *train.step.values.astype(int)]
    assert len(steps) > 10
    for column, name in enumerate(("loss", "accuracy")):
        measured = np.tile([batch[column] for batch in batches], 2)
        expected = [measured[begin:end].mean() for begin, end in itertools.pairwise(steps)]
        np.testing.assert_allclose(train.metrics[name].values, expected, atol=1e-5)
    assert train.running == {"auc"}


DATA = ROOT.parent / "shared" / "data" / "fashion-mnist"


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the data of Fashion-MNIST is not in {DATA}")
@pytest.mark.slow
def test_it_learns_the_real_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(DATA, tmp_path / "keras" / "datasets" / "fashion-mnist")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    preset = find_preset("fashion-mnist-cnn").config
    assert (preset.batch_size, preset.epochs) == (1000, 5)
    # As many steps as in an epoch, of a tenth of the pictures each: half a minute less. All of it reaches 0.88.
    tenth = {"epochs": 1, "validation_freq": 1, "batch_size": 100, "data.train_limit": 6000}
    run = run_host(with_changes(preset, [*tenth.items()]), tmp_path / "runs")
    end = the(run, RunFinished)
    assert end.outcome == "completed"
    assert end.summary["final"]["val_accuracy"] >= 0.7
    assert (the(run, FitStarted).steps_per_epoch, the(run, FitStarted).global_batch) == (60, 100)
