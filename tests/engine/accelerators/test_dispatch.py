"""How far JAX is let run ahead of the device: progress keeps pace, a stop is heard soon, and times are true."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import all_of, run_forked, timed_events_of
from tpu_console.engine.accelerators.jax import AHEAD_S
from tpu_console.engine.runs.events import EpochEnded, Progress
from tpu_console.engine.runs.run_directory import RunDirectory

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

STEPS = 20

# A step of this model takes about a tenth of a second on a core; in its second epoch the run is asked to stop.
TRAIN = """
import json, sys, time
from pathlib import Path
import keras, numpy as np, tensorflow as tf
from tpu_console import BridgeCallback
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.events import Progress
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory

class Sent(keras.callbacks.Callback):
    async_safe = True
    at = []
    def on_train_batch_begin(self, batch, logs=None):
        self.at.append(time.time())

steps = int(sys.argv[2])
run = RunDirectory(Path(sys.argv[1]))
run.path.mkdir()
journal = JournalWriter(run.journal)
channel = Recorder(run, journal)
def stop(event):
    if isinstance(event, Progress) and event.epoch == 2 and event.epoch_step >= 3:
        channel.control.stop("enough")
channel.listen(stop)
layers = keras.layers
model = keras.Sequential([keras.Input((32, 32, 3)), layers.Conv2D(48, 3), layers.ReLU(), layers.Conv2D(48, 3),
                          layers.GlobalAveragePooling2D(), layers.Dense(10, "softmax")])
model.compile("adam", "sparse_categorical_crossentropy")
random = np.random.default_rng(0)
batch = random.normal(size=(64, 32, 32, 3)).astype("float32"), random.integers(0, 10, 64)
data = tf.data.Dataset.from_tensors(batch).repeat()
sent = Sent()
model.fit(data, epochs=3, steps_per_epoch=steps, validation_data=data.take(1), verbose=0,
          callbacks=[BridgeCallback(channel, global_batch=64), sent])
journal.close()
print(json.dumps(sent.at))
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, list[float]]:
    """A run of two epochs, and when each step was sent."""
    folder: Path = tmp_path_factory.mktemp("ahead")
    said = run_forked(TRAIN, str(folder / "run"), str(STEPS), cwd=folder, env={"KERAS_BACKEND": "jax"})
    return RunDirectory(folder / "run"), json.loads(said.splitlines()[-1])


def ahead(step_s: float) -> int:
    """The steps that may be under way; the time of one varies on a machine that others use, too."""
    return 2 * math.ceil(AHEAD_S / step_s) + 2


def test_no_more_is_sent_than_the_device_does_in_half_a_second(trained: tuple[RunDirectory, list[float]]) -> None:
    run, sent = trained
    step_ms = all_of(run, EpochEnded)[0].step_ms
    assert step_ms is not None
    told = [(at, event) for at, event in timed_events_of(run) if isinstance(event, Progress) and event.epoch == 1]
    assert len(told) > 5
    assert max(sum(when <= at for when in sent) - event.step for at, event in told) <= ahead(step_ms / 1e3)


def test_a_stop_is_heard_before_an_epoch_is_sent_to_its_end(trained: tuple[RunDirectory, list[float]]) -> None:
    run, _ = trained
    first, second = all_of(run, EpochEnded)
    asked = next(event for event in all_of(run, Progress) if event.epoch == 2 and event.epoch_step >= 3)
    assert first.step_ms is not None
    assert asked.epoch_step <= second.epoch_steps <= asked.epoch_step + ahead(first.step_ms / 1e3)
    assert second.epoch_steps < STEPS


def test_the_time_of_a_step_is_the_time_between_reports(trained: tuple[RunDirectory, list[float]]) -> None:
    run, _ = trained
    epoch = all_of(run, EpochEnded)[0]
    told = [event for event in all_of(run, Progress) if event.epoch == 1]
    between: Any = (told[-1].elapsed_s - told[0].elapsed_s) / (told[-1].step - told[0].step)
    # The steps before the first report count too, and a busy machine may do them at another speed.
    assert epoch.step_ms == pytest.approx(1e3 * between, rel=0.5)
    # One batch is validated: were the last training steps counted as validation, it would take as long as many.
    assert epoch.seconds - epoch.compile_s > 0.6 * (STEPS - 1) * between
