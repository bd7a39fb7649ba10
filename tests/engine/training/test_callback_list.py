from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import all_of
from tpu_console.engine.models.fine_tuning import Patience
from tpu_console.engine.runs.events import Progress
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.engine.training.bridge import BridgeCallback
from tpu_console.engine.training.callback_list import LeanCallbackList
from tpu_console.engine.training.checkpoints import Checkpoints
from tpu_console.engine.training.outputs import BestCheckpoint, EpochSummaries, NewestCheckpoint
from tpu_console.engine.training.own_callbacks import OwnCallbacks
from tpu_console.engine.training.steering import SteeringCallback
from tpu_console.engine.training.translations import TranslationSamples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS, EPOCHS = 4, 2


class Heard(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Keeps the metrics of every step."""

    def __init__(self, *, takes_tensors: bool) -> None:
        super().__init__()
        self.takes_tensors = takes_tensors
        self.steps: list[int] = []
        self.losses: list[Any] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps.append(batch)
        self.losses.append(logs["loss"])


def fit(*callbacks: Any, is_lean: bool = True) -> dict[str, list[float]]:
    """Train a small model and return its history."""
    keras.utils.set_random_seed(7)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    x = np.arange(24, dtype="float32").reshape(8, 3) / 24
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(2).repeat()
    listed = LeanCallbackList(callbacks, model, epochs=EPOCHS, steps=STEPS) if is_lean else list(callbacks)
    made = model.fit(data, epochs=EPOCHS, steps_per_epoch=STEPS, callbacks=listed, shuffle=False, verbose=0)
    history: dict[str, list[float]] = made.history
    return history


def test_callbacks_that_take_tensors_get_what_the_step_returned() -> None:
    heard = Heard(takes_tensors=True)
    history = fit(heard)
    assert heard.steps == [*range(STEPS)] * EPOCHS
    assert all(tf.is_tensor(loss) for loss in heard.losses)
    assert history["loss"] == [pytest.approx(float(heard.losses[n])) for n in (STEPS - 1, -1)]


@pytest.mark.parametrize(
    "other",
    [
        lambda: Heard(takes_tensors=False),
        keras.callbacks.TerminateOnNaN,
        lambda: keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None),
    ],
)
def test_with_another_callback_all_get_numbers(other: Callable[[], Any]) -> None:
    heard = Heard(takes_tensors=True)
    fit(heard, other())
    assert len(heard.losses) == STEPS * EPOCHS
    assert {*map(type, heard.losses)} == {float}


def test_callbacks_before_a_step_are_called() -> None:
    steps: list[int] = []
    heard = Heard(takes_tensors=True)
    fit(heard, keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: steps.append(batch)))
    assert steps == [*range(STEPS)] * EPOCHS
    assert all(tf.is_tensor(loss) for loss in heard.losses), "nothing else hears the end of a step"


def test_training_is_that_of_keras_own_list() -> None:
    lean, own = Heard(takes_tensors=True), Heard(takes_tensors=False)
    assert fit(lean) == fit(own, is_lean=False)
    assert lean.params == own.params
    assert [float(loss) for loss in lean.losses] == own.losses


def test_the_journal_has_the_metrics_as_numbers(tmp_path: Path) -> None:
    run = create_run("lean", tmp_path)
    journal = JournalWriter(run.journal)
    clock = iter(range(1000))
    history = fit(BridgeCallback(Recorder(run, journal), clock=lambda: float(next(clock))))
    journal.close()
    progress = all_of(run, Progress)
    assert len(progress) == STEPS * EPOCHS
    assert [*progress[-1].logs] == ["loss", "mae"]
    assert progress[-1].logs["loss"] == pytest.approx(history["loss"][-1])


@pytest.mark.parametrize(
    "own",
    [
        BestCheckpoint,
        Checkpoints,
        EpochSummaries,
        NewestCheckpoint,
        OwnCallbacks,
        Patience,
        SteeringCallback,
        TranslationSamples,
    ],
)
def test_after_a_step_the_engine_calls_only_the_bridge(own: type[Any]) -> None:
    assert own.on_train_batch_end is keras.callbacks.Callback.on_train_batch_end
    assert own.on_batch_end is keras.callbacks.Callback.on_batch_end
