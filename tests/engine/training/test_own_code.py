"""Runs of custom models as people write them for a plain `model.fit`."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.jobs.predicting import Job, train
from tests.helpers import all_of, checkpoint_of, report_of, small_config, the
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.errors import ConsoleError, UntrustedCodeError
from tpu_console.engine.runs.control import Control
from tpu_console.engine.runs.events import EpochEnded, FitStarted, ModelBuilt, Noticed, RunFinished, RunSource
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.training.train import train_and_report

pytestmark = pytest.mark.slow

MINE = """
import keras
import numpy as np
import tensorflow as tf

def logits(shape, classes):
    return keras.Sequential([keras.Input(shape), keras.layers.Flatten(), keras.layers.Dense(classes)])

class Guide(keras.Model):
    # As in Keras's guide "Customizing what happens in fit() with TensorFlow".
    def __init__(self, classes):
        super().__init__()
        self.inner = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(classes)])

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

class Guesser(keras.Model):
    # No call: its training step makes the head and trains nothing else.
    def __init__(self, classes):
        super().__init__()
        self.frozen = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(5)])
        self.frozen.trainable = False
        self.head = keras.layers.Dense(classes)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self.loss(y, self.head(self.frozen(x))))
        weights = self.head.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
        return {"cost": loss}

def guesser(shape, classes):
    model = Guesser(classes)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model

def shapes():
    return random.normal(size=(64, 8, 8, 1)), random.integers(0, 10, 64)

random = np.random.default_rng(0)
AGE, CITY = random.normal(size=120).astype("float32"), np.array(["rome", "oslo"])[random.integers(0, 2, 120)]

def houses(start, stop):
    x = {"age": AGE[start:stop], "city": CITY[start:stop]}
    y = {"price": AGE[start:stop] * 2, "kind": (CITY[start:stop] == "rome").astype("int32")}
    return x, y

def pictured(start, stop):
    x, y = houses(start, stop)
    return x, {**y, "picture": np.zeros((stop - start, 2, 2, 1))}

def parts():
    return pictured(0, 96), tf.data.Dataset.from_tensor_slices(pictured(96, 120)).batch(8)

def new_houses():
    return houses(0, 4)[0]

def house_model(shapes, classes):
    assert (shapes, classes) == ({"age": (), "city": ()}, 0)
    age, city = keras.Input((), name="age"), keras.Input((), dtype="string", name="city")
    look = keras.layers.StringLookup(vocabulary=["rome", "oslo"], output_mode="one_hot", num_oov_indices=0)
    both = keras.layers.Concatenate()([keras.layers.Reshape((1,))(age), look(city)])
    picture = keras.layers.Reshape((2, 2, 1))(keras.layers.Dense(4)(both))
    return keras.Model({"age": age, "city": city}, {
        "price": keras.layers.Dense(1, name="price")(both),
        "kind": keras.layers.Dense(2, name="kind")(both),  # logits
        "picture": picture,
    })

def scans():
    return np.zeros((3, 8, 8, 1))

def soft(y_true, y_pred, weight=1.0):
    return weight * keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)

def surest(y_true, y_pred):
    return keras.ops.max(y_pred, axis=-1)

class Slow(keras.optimizers.SGD):
    def __init__(self, learning_rate, factor=1.0, **options):
        super().__init__(learning_rate * factor, momentum=0.9, **options)

class Stops(keras.callbacks.Callback):
    def __init__(self, after):
        super().__init__()
        self.after, self.epochs, self.seen = after, 0, {1}

    def on_epoch_end(self, epoch, logs=None):
        self.epochs += 1
        if self.epochs == self.after:
            self.model.stop_training = True
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


def test_a_train_step_of_the_keras_guide_trains_and_another_model_starts_with_its_weights(tmp_path: Path) -> None:
    guide = {"model": "mine.py:guide", "steps_per_execution": "auto", "batch_size": 128}
    run = run_of(tmp_path, **guide, epochs=3, optimizer={"learning_rate": 0.02})
    assert the(run, FitStarted).steps_per_execution == 11
    last = all_of(run, EpochEnded)[-1].logs
    assert last["accuracy"] > 0
    assert the(run, ModelBuilt).parameters == 650
    assert the(run, RunFinished).outcome == "completed"
    assert "model.weights.h5" in notices(run)
    assert not run.model.exists()
    rows = Job(tmp_path)(run, "mine.py:scans")
    assert list(rows[0]) == ["index", "label", "probability"]

    small = {"weights": str(run.model.with_suffix(".weights.h5")), "optimizer": {"learning_rate": 1e-6}}
    second = run_of(tmp_path, **guide, **small)
    assert the(second, EpochEnded).logs["val_loss"] == pytest.approx(last["val_loss"], rel=1e-2)
    (tmp_path / "mine.py").write_text(MINE + "def wider(s, c): return guide(s, c + 1)", encoding="utf-8")
    with pytest.raises(AssertionError, match=r"model\.weights\.h5 has no weights of the model mine\.py:wider"):
        run_of(tmp_path, **{**guide, **small, "model": "mine.py:wider"})

    foreign = run.config.read_text(encoding="utf-8").replace("mine.py:guide", "evil.py:guide")
    run.config.write_text(foreign, encoding="utf-8")
    with pytest.raises(UntrustedCodeError, match=r"evil\.py:guide, which none of your runs used"):
        Job(tmp_path)(run, "mine.py:scans", force=True)


def test_custom_pieces_train_and_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    pieces: dict[str, Any] = {
        "model": "mine.py:logits",
        "loss": "mine.py:soft(weight=0.5)",
        "outputs": "logits",
        "metrics": "accuracy, F1Score(average=weighted), auc(curve=PR, name=area), mine.py:surest",
        "optimizer": {"name": "mine.py:Slow(factor=0.5)", "learning_rate": 0.1},
        "callbacks": [
            "ReduceLROnPlateau(monitor=loss, min_delta=10, patience=1, factor=0.5)",
            "mine.py:Stops(after=4)",
        ],
        "batch_size": 128,
        "checkpoint": {"monitor": "none"},
    }
    whole = run_of(tmp_path / "whole", epochs=6, **pieces)
    ended = all_of(whole, EpochEnded)
    assert [epoch.learning_rate for epoch in ended] == pytest.approx([0.05, 0.05, 0.025, 0.0125])
    assert set(ended[0].logs) >= {"loss", "accuracy", "f1_score", "area", "surest", "val_f1_score"}
    assert ended[-1].logs["surest"] > 1  # a custom metric gets the logits, as in a plain fit
    assert report_of(whole).accuracy == pytest.approx(ended[-1].logs["val_accuracy"])
    assert 0 < ended[0].logs["f1_score"] <= 1
    assert the(whole, RunFinished).outcome == "early"

    part = run_of(tmp_path / "part", epochs=2, **pieces)
    part.config.write_text(whole.config.read_text(encoding="utf-8"), encoding="utf-8")
    resume(part)
    resumed = all_of(part, EpochEnded)
    assert [epoch.learning_rate for epoch in resumed] == [epoch.learning_rate for epoch in ended]
    assert [epoch.logs["val_loss"] for epoch in resumed] == [epoch.logs["val_loss"] for epoch in ended]
    assert "Stops (seen)" in notices(part)


def test_several_inputs_and_outputs_train_with_losses_and_metrics_each_and_are_predicted(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        model="mine.py:house_model",
        dataset="mine.py:parts",
        batch_size=16,
        epochs=5,
        loss={"price": "mse", "kind": "sparse_categorical_crossentropy", "picture": "mae"},
        loss_weights={"kind": 2.0},
        metrics="accuracy, price=mean_absolute_error",
        optimizer={"learning_rate": 0.1},
        checkpoint={"monitor": "auto"},
    )
    last = all_of(run, EpochEnded)[-1].logs
    assert {"kind_accuracy", "price_mean_absolute_error", "picture_loss"} <= {*last}
    assert last["val_kind_accuracy"] > 0.9
    assert the(run, FitStarted).monitor == "val_kind_accuracy"
    assert "logits for kind" in notices(run)
    report = report_of(run)
    assert (report.output, report.others, report.examples) == ("kind", (), 24)
    assert report.accuracy == pytest.approx(last["val_kind_accuracy"])
    job = Job(tmp_path)
    rows = job(run, "mine.py:new_houses")
    assert list(rows[0]) == ["index", "price", "kind_label", "kind_probability", "picture"]
    assert len(rows) == 4
    assert all(0.5 <= float(row["kind_probability"]) <= 1 for row in rows)
    assert {row["picture"] for row in rows} == {"out.npz"}
    with pytest.raises(ConsoleError, match=r"out\.csv exists"):
        job(run, "mine.py:new_houses")


def resume(run: RunDirectory, **changes: Any) -> None:
    journal, config = JournalWriter(run.journal), load_config(run.config).model_copy(update=changes)
    assert train_and_report(
        run, config, journal, Control(), source=RunSource.IN_PROCESS, resumes=checkpoint_of(run)[0].name
    )
    journal.close()


def test_a_model_that_is_built_by_its_training_step_trains_and_is_resumed(tmp_path: Path) -> None:
    data = {"model": "mine.py:guesser", "dataset": "mine.py:shapes", "batch_size": 8, "steps_per_execution": "auto"}
    run = run_of(tmp_path, epochs=2, **data)
    assert all_of(run, ModelBuilt)[-1].parameters == 65 * 5 + 6 * 10
    resume(run, epochs=3)
    assert [epoch.step for epoch in all_of(run, EpochEnded)] == [8, 16, 24]
    assert "starts over" not in notices(run)
