"""What each framework's class answers, how dispatch is chosen, and which hosts belong to a team."""

import ast
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import all_of, known, replace, run_forked, small_config, timed_events_of
from tpu_console.engine.accelerators.backend import FRAMEWORKS, framework_of
from tpu_console.engine.accelerators.hosts import Card, mismatch
from tpu_console.engine.accelerators.jax import AHEAD_S
from tpu_console.engine.runs.events import EpochEnded, Progress
from tpu_console.engine.runs.run_directory import RunDirectory

ROOT = Path(__file__).parents[3]
NAMES = {*FRAMEWORKS, "JAX", "TENSORFLOW"}


def comparisons(text: str) -> Iterator[int]:
    """Yield the lines that compare something with the name of a framework, or match it."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Compare | ast.MatchValue):
            inner = [*ast.walk(node)]
            words = {one.value for one in inner if isinstance(one, ast.Constant) and isinstance(one.value, str)}
            words |= {one.id for one in inner if isinstance(one, ast.Name)}
            if words & NAMES:
                yield node.lineno


def test_a_question_for_the_framework_is_seen() -> None:
    asking = ['backend == "jax"', "JAX != x", 'x in {"cpu", "tensorflow"}', "match x:\n    case 'jax': pass"]
    assert all([*comparisons(text)] for text in asking)
    assert not [*comparisons("framework.joins_hosts == (x['backend'] != 'torch')")]


def test_no_code_outside_of_the_frameworks_asks_which_one_it_is() -> None:
    files = [path for folder in ("engine", "tui", "presets") for path in (ROOT / folder).rglob("*.py")]
    own = ROOT / "engine/accelerators"
    asking = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in files
        if own not in path.parents
        for line in comparisons(path.read_text(encoding="utf-8"))
    ]
    assert asking == []


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_framework_answers_without_being_imported(name: str) -> None:
    framework = framework_of(name)
    config = small_config(accelerator="sim:2", backend=name)
    assert framework.environment(config)["KERAS_BACKEND"] == name
    environment, lines = framework.code("sim:2", 2)
    assert environment["KERAS_BACKEND"] == name
    assert any(line.startswith("strategy = ") for line in lines) == framework.uses_scope("sim:2", 2)
    assert framework.one_step_reason(2)
    assert framework_of("torch") is FRAMEWORKS["tensorflow"]


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


def ahead(epoch: EpochEnded) -> int:
    """The steps that may be under way; the time of one varies on a machine that others use, too."""
    return 2 * math.ceil(AHEAD_S / known(epoch.step_ms) * 1e3) + 2


@pytest.mark.slow
def test_no_more_is_sent_than_the_device_does_in_half_a_second(trained: tuple[RunDirectory, list[float]]) -> None:
    run, sent = trained
    told = [(at, event) for at, event in timed_events_of(run) if isinstance(event, Progress) and event.epoch == 1]
    assert len(told) > 5
    assert max(sum(when <= at for when in sent) - event.step for at, event in told) <= ahead(all_of(run, EpochEnded)[0])


@pytest.mark.slow
def test_a_stop_is_heard_before_an_epoch_is_sent_to_its_end(trained: tuple[RunDirectory, list[float]]) -> None:
    run, _ = trained
    first, second = all_of(run, EpochEnded)
    asked = next(event for event in all_of(run, Progress) if event.epoch == 2 and event.epoch_step >= 3)
    assert asked.epoch_step <= second.epoch_steps <= min(asked.epoch_step + ahead(first), STEPS - 1)


FIRST = Card("a", {"jax": "0.10.2", "keras": "3.15.1"}, "digest", "at step 640")


@pytest.mark.parametrize(
    ("card", "difference"),
    [
        (replace(FIRST, versions={"jax": "0.10.1", "libtpu": "0.0.2"}), "jax 0.10.1 there, 0.10.2 at host 0"),
        (replace(FIRST, versions={**FIRST.versions, "libtpu": "0.0.2"}), "libtpu 0.0.2 there, missing at host 0"),
        (replace(FIRST, config="another"), "another configuration"),
        (replace(FIRST, start=""), "starts a new run, but host 0 starts at step 640"),
    ],
)
def test_what_differs_between_two_hosts_is_said(card: Card, difference: str) -> None:
    error = known(mismatch(1, card, FIRST))
    assert f"Host 1 ({card.host})" in error.what
    assert difference in error.what
    assert error.remedy
    assert mismatch(1, replace(FIRST, host="b"), FIRST) is None
