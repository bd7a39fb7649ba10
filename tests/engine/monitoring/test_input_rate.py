"""What limits a run: the stage that takes the time on real datasets, real trainings of both kinds, and the advice."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.engine.jobs.predicting import train
from tests.helpers import all_of, epoch_ended, run_forked, run_host, small_config, the
from tpu_console.engine.data.images.examples import untuned
from tpu_console.engine.input.augment import Placement
from tpu_console.engine.input.pipeline import Cache
from tpu_console.engine.monitoring.input_rate import InputRate, Taken, input_remedy, limit_of, metered
from tpu_console.engine.runs import events
from tpu_console.engine.runs.recorder import Recorder

SLOW = """
import threading

import numpy as np
import tensorflow as tf

def data(element_ms=15):
    x = np.random.default_rng(1).normal(size=(40, 4)).astype("float32")
    pause = threading.Event()  # a disk that takes its time
    def read(x, y):
        waited = tf.numpy_function(lambda: pause.wait(element_ms / 1e3), [], tf.bool)
        with tf.control_dependencies([waited]):
            return tf.identity(x), y
    return tf.data.Dataset.from_tensor_slices((x, np.arange(40) % 3)).map(read), None
"""


def batches_of(count: int = 16) -> Any:
    x = np.arange(count * 3, dtype="float32").reshape(count, 3) / 10
    rows = tf.data.Dataset.from_tensor_slices((x, np.arange(count) % 2))
    endless = rows.shuffle(count, seed=1, reshuffle_each_iteration=True).repeat()
    return endless.batch(4, drop_remainder=True).prefetch(tf.data.AUTOTUNE).with_options(untuned())


@pytest.mark.parametrize("length", [None, 5])
def test_the_dataset_stays_as_it_was(length: int | None) -> None:
    dataset, same = (batches_of() if length is None else batches_of().take(length) for _ in range(2))
    counted, meter = metered(same)
    assert meter is not None
    assert counted.element_spec == dataset.element_spec
    assert counted.cardinality().numpy() == dataset.cardinality().numpy()
    assert counted.options() == dataset.options()
    pairs = list(zip(dataset.take(9), counted.take(9), strict=True))
    assert len(pairs) == (length or 9)
    for before, after in pairs:
        assert all(bool(tf.reduce_all(one == other)) for one, other in zip(before, after, strict=True))
    assert meter.read().batches >= len(pairs)


def test_waiting_is_what_python_measures_around_it() -> None:
    pause = threading.Event()
    elements = tf.data.Dataset.range(15).map(
        lambda x: tf.cast(tf.numpy_function(lambda: pause.wait(0.03), [], tf.bool), tf.int64) + x
    )
    counted, meter = metered(elements.prefetch(1).with_options(untuned()))
    assert meter is not None
    waited = 0.0
    iterator = iter(counted)
    for _ in range(15):
        asked = time.perf_counter()
        next(iterator)
        waited += time.perf_counter() - asked
        pause.wait(0.015)  # the computation
    taken = meter.read()
    assert taken.batches == 15
    assert 0.5 * waited < taken.wait_s <= waited


def test_two_meters_in_one_process_count_apart() -> None:
    (first, one), (_, other) = metered(batches_of()), metered(batches_of())
    assert one is not None
    assert other is not None
    assert len(list(first.take(3))) == 3
    assert (one.read().batches >= 3, other.read()) == (True, Taken())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "batch_s"),
    [({}, 0.06), ({"backend": "jax"}, 0.06), ({"accelerator": "sim:2", "steps_per_epoch": 10}, 0.12)],
    ids=["tensorflow", "jax", "replicas"],
)
def test_a_slow_dataset_limits_its_run(tmp_path: Path, changes: dict[str, Any], batch_s: float) -> None:
    """Batches take far longer to read than to train on: 60 ms per replica."""
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    values = {"dataset": f"{tmp_path / 'slow.py'}:data", "batch_size": 4, "epochs": 2, "steps_per_epoch": 20}
    values |= {"data": {"cache": "off", "shuffle_buffer": 4}, "profile": {"at": 5, "steps": 3}}
    run = run_host(small_config(**values | changes), tmp_path / "runs")
    assert the(run, events.RunFinished).outcome == "completed"
    profiled = the(run, events.Profiled)
    assert max(profiled.spent, key=lambda part: profiled.spent[part]) == events.Spent.INPUT, profiled
    reports = all_of(run, events.InputMeasured)
    assert {event.epoch for event in reports} == {1, 2}
    reports = [event for event in reports if event.epoch == 2]  # the first begins with what was fetched while compiling
    assert {event.limit for event in reports} == {"input"}
    assert all(0.5 < event.wait_s / event.span_s <= 1 for event in reports)
    batches, waited = sum(event.batches for event in reports), sum(event.wait_s for event in reports)
    assert waited / batches > 0.5 * batch_s
    fit = the(run, events.FitStarted)
    assert fit.steps_per_epoch is not None
    # What is left of an epoch after its last event may be too short for another one.
    assert fit.steps_per_epoch < reports[-1].step <= fit.epochs * fit.steps_per_epoch
    (notice,) = [event.message for event in all_of(run, events.Alerted) if "limits the run" in event.message]
    assert "data.cache=auto" in notice
    assert reports[-1].remedy in notice


@pytest.mark.slow
def test_a_heavy_model_on_a_small_dataset_is_limited_by_the_accelerator(tmp_path: Path) -> None:
    config = small_config(model_options={"hidden": [2000, 2000]}, batch_size=128, epochs=2, steps_per_epoch=10)
    run = train(config, tmp_path)
    reports = all_of(run, events.InputMeasured)
    measured = [event for event in reports if event.epoch > 1]
    assert "accelerator" in {event.limit for event in measured}
    assert not [event for event in all_of(run, events.Alerted) if event.kind == "input"]
    # Compiling is in no span, and neither is validating.
    ended = all_of(run, events.EpochEnded)
    left_out = sum(epoch.compile_s + epoch.validation_s for epoch in ended)
    assert sum(event.span_s for event in reports) < sum(epoch.seconds for epoch in ended) - left_out / 2


@pytest.mark.slow
def test_a_dataset_that_another_machine_reads_is_left_alone(tmp_path: Path) -> None:
    script = """
import tensorflow as tf
from tpu_console.engine.data.images.examples import untuned
from tpu_console.engine.monitoring.input_rate import metered
server = tf.distribute.Server.create_local_server()
tf.config.experimental_connect_to_host(server.target, job_name="worker")
dataset = tf.data.Dataset.range(3)
print(metered(dataset) == (dataset, None))
"""
    assert run_forked(script, cwd=tmp_path).split()[-1] == "True"


class Story:
    """A run whose events a test emits, with a fake clock and a fake meter."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder, self.enter, self.now, self.taken = recorder, recorder.enter, 100.0, Taken()
        meter: Any = SimpleNamespace(read=lambda: self.taken)
        InputRate(recorder, meter, lambda epoch: f"Advice for epoch {epoch}.", lambda: self.now)

    def passes(self, seconds: float, waiting: float = 0.0, batches: int = 1) -> None:
        self.now += seconds
        self.taken += Taken(batches, waiting)

    def progress(self, epoch: int, step: int) -> None:
        self.recorder.emit(events.Progress(epoch, step, step, self.now - 100, {}))

    def end_epoch(self, epoch: int, step: int) -> None:
        self.recorder.emit(epoch_ended(epoch, step=step, elapsed_s=self.now - 100))

    @property
    def reports(self) -> list[events.InputMeasured]:
        return all_of(self.recorder.run, events.InputMeasured)


@pytest.fixture
def story(recorder: Recorder) -> Story:
    """A run whose first execution has just ended, after 9 s of compiling in which one batch was waited for."""
    story = Story(recorder)
    story.enter(events.Phase.COMPILING)
    story.passes(9, waiting=8)
    story.enter(events.Phase.TRAINING)
    return story


def test_only_the_time_in_which_training_runs_counts(story: Story) -> None:
    story.passes(1, waiting=0.1)
    story.enter(events.Phase.VALIDATING)
    story.passes(50, waiting=50)
    story.enter(events.Phase.TRAINING)
    story.enter(events.Phase.CHECKPOINTING)
    story.passes(20, waiting=5)
    story.enter(events.Phase.TRAINING)
    story.passes(1, waiting=0.1)
    story.end_epoch(1, 2)
    (event,) = story.reports
    assert (event.epoch, event.step, event.batches) == (1, 2, 2)
    assert event.span_s == pytest.approx(2)
    assert event.wait_s == pytest.approx(0.2)
    assert (event.limit, event.remedy) == ("balanced", "")


def test_events_come_every_two_seconds_and_at_the_end_of_an_epoch(story: Story) -> None:
    for step in range(1, 41):
        story.passes(0.125)
        story.progress(1, step)
    story.end_epoch(1, 40)
    assert [event.step for event in story.reports] == [16, 32, 40]
    assert sum(event.batches for event in story.reports) == 40


def test_a_wait_that_began_earlier_is_at_most_as_long_as_the_span(story: Story) -> None:
    story.passes(2, waiting=5)
    story.progress(1, 1)
    (event,) = story.reports
    assert (event.wait_s, event.span_s, event.remedy) == (2, 2, "Advice for epoch 1.")


def test_it_advises_once_and_not_for_the_first_epoch(story: Story) -> None:
    for epoch, waiting in ((1, 1.9), (2, 0.3), (3, 1.5), (4, 1.5)):
        story.passes(2, waiting=waiting)
        story.end_epoch(epoch, epoch)
    assert "75% of epoch 3." in the(story.recorder.run, events.Alerted).message
    assert [event.limit for event in story.reports] == ["input", "balanced", "input", "input"]


@pytest.mark.parametrize(
    ("waited", "limit"),
    [(0.0, "accelerator"), (0.05, "accelerator"), (0.06, "balanced"), (0.19, "balanced"), (0.2, "input"), (1, "input")],
)
def test_the_share_of_waiting_decides_the_bottleneck(waited: float, limit: str) -> None:
    assert limit_of(waited) == limit


@pytest.mark.parametrize(
    ("changes", "cache", "accelerator", "cores", "epoch", "said"),
    [
        ({}, "memory", "cpu", 16, 1, "later epochs read the cache"),
        ({"augmentation": {"zoom": 0.1}}, "memory", "cpu", 16, 2, "less of it"),
        ({"data": {"cache": "off"}, "augmentation": {"zoom": 0.1}}, "off", "cpu", 16, 1, "data.cache=auto"),
        ({"dataset": "mine.py:data"}, "off", "cpu", 16, 2, "num_parallel_calls=tf.data.AUTOTUNE in mine.py:data"),
        ({}, "off", "cpu", 16, 2, "`tpu-console tfrecord`"),
        ({"augmentation": {"zoom": 0.1, "contrast": 0.1}}, "memory", "gpu", 16, 2, "augmentation.placement=model"),
        ({}, "disk", "cpu", 16, 2, "data.cache=memory"),
        ({}, "memory", "cpu", 2, 2, "the host's 2 cores"),
    ],
)
def test_the_advice_fits_the_input(
    changes: dict[str, Any], cache: str, accelerator: str, cores: float, epoch: int, said: str
) -> None:
    config = small_config().model_copy(update={"dataset": changes.pop("dataset", "image-folder")})
    for section, values in changes.items():
        config = config.model_copy(update={section: getattr(config, section).model_copy(update=values)})
    data: Any = SimpleNamespace(cache=Cache(cache, ""), placement=Placement(False, ""))
    advice = input_remedy(config, data, accelerator, cores, epoch)
    assert said in advice
    assert advice.endswith(".")
