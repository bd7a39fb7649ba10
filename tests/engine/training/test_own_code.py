"""Runs of custom models as people write them for a plain `model.fit`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.engine.jobs.predicting import Job, train
from tests.helpers import all_of, small_config, the
from tpu_console.engine.runs.class_report import read_report
from tpu_console.engine.runs.events import EpochEnded, FitStarted, Noticed, RunFinished

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

pytestmark = pytest.mark.slow

MINE = """
import keras
import tensorflow as tf

def logits(shape, classes):
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes)])

class Guide(keras.Model):
    # As in Keras's guide "Customizing what happens in fit() with TensorFlow".
    def __init__(self, classes):
        super().__init__()
        self.inner = logits((8, 8, 1), classes)

    def call(self, x):
        return self.inner(x)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            y_pred = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=y_pred)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, y_pred)
        return {m.name: m.result() for m in self.metrics}

def guide(shape, classes):
    return Guide(classes)
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.py"
    path.write_text(MINE, encoding="utf-8")
    return path


def run_of(folder: Path, **changes: Any) -> RunDirectory:
    return train(small_config(model_options={}, **changes), folder)


def notices(run: RunDirectory) -> str:
    return " ".join(event.message for event in all_of(run, Noticed))


def test_logits_learn_with_the_default_loss_and_are_predicted_as_probabilities(tmp_path: Path) -> None:
    run = run_of(tmp_path, model="mine.py:logits", epochs=3, optimizer={"learning_rate": 0.02})
    last = all_of(run, EpochEnded)[-1].logs
    assert last["val_accuracy"] > 0.8
    assert "The model gives logits" in notices(run)
    assert json.loads(run.inputs.read_text(encoding="utf-8")) == {"activation": "softmax"}
    report = read_report(run)
    assert report is not None
    assert report.accuracy == pytest.approx(last["val_accuracy"])
    job = Job(tmp_path)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 17, (50, 8, 8)))
    shares = [float(row["probability"]) for row in job(run, tmp_path / "x.npy")]
    assert all(0.1 < share <= 1 for share in shares)


def test_a_train_step_of_the_keras_guide_trains_and_its_weights_are_saved(tmp_path: Path) -> None:
    run = run_of(tmp_path, model="mine.py:guide", steps_per_execution="auto", batch_size=128)
    assert the(run, FitStarted).steps_per_execution == 11
    assert the(run, EpochEnded).logs["accuracy"] > 0
    assert the(run, RunFinished).outcome == "completed"
    assert "Only the weights of the model are saved, in model.weights.h5" in notices(run)
    assert not run.model.exists()
    assert run.model.with_suffix(".weights.h5").exists()
