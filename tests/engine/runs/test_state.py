import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.strategies import events, of_type
from tests.helpers import replace, small_config
from tpu_console.engine.runs import events as kinds
from tpu_console.engine.runs.curves import Samples
from tpu_console.engine.runs.events import EpochEnded, Event, FitStarted, Progress
from tpu_console.engine.runs.journal import Record, decode, encode
from tpu_console.engine.runs.metrics import Metric, metric_called, monitor_of
from tpu_console.engine.runs.state import RunState, fold, reduce
from tpu_console.engine.sanitize import MOST_REPLICAS

timed = st.tuples(events | of_type(Progress), st.floats(0, 2e9))
histories = st.lists(timed, max_size=25)
WHOLE: dict[str, Any] = {"type": "Progress", "epoch": 1, "epoch_step": 1, "step": 1, "elapsed_s": 0.0, "logs": {}}
WRONG: tuple[dict[str, Any], ...] = (
    *({"step": "two"}, {"elapsed_s": "soon"}, {"elapsed_s": 1e300}, {"epoch": None}),
    *({"step": 2**53 + 1}, {"epoch_step": -1}),
    *({"logs": 3}, {"logs": {"loss": "low"}}, {"logs": {"loss": [1, 2]}}),
)
DAMAGE = [{"type": "Progress"}, *(WHOLE | wrong for wrong in WRONG)]


def read(line: bytes) -> Record:
    record = decode(line)
    assert record is not None
    return record


def record(event: Event, at: float) -> Record:
    return read(encode(event, at))


def damaged(record: dict[str, Any], at: float = 5.0) -> Record:
    return read(json.dumps(record | {"t": at}).encode())


def after(*written: Event, at: float = 1.0, state: RunState | None = None) -> RunState:
    """The state after some events, a second between two."""
    state = state or RunState()
    for number, event in enumerate(written):
        state = reduce(state, event, at + number)
    return state


def ended(epoch: int, **logs: float) -> EpochEnded:
    return EpochEnded(epoch, epoch * 4, 4, float(epoch), 1.0, 0.0, 0.0, 2.0, 100.0, 1e-3, logs)


def progress(step: int, **logs: float) -> Progress:
    return Progress((step - 1) // 4 + 1, (step - 1) % 4 + 1, step, step * 0.5, logs)


@given(st.lists(timed.map(lambda pair: record(*pair)) | st.sampled_from(DAMAGE).map(damaged)), st.data())
def test_folding_records_at_once_or_in_parts_gives_what_reducing_events_gives_even_with_damaged_records(
    records: list[Record], data: st.DataObject
) -> None:
    cut, reduced = data.draw(st.integers(0, len(records))), RunState()
    at_once = fold(RunState(), records)
    in_two = fold(fold(RunState(), records[:cut]), records[cut:])
    for item in records:
        reduced = fold(reduced, [item]) if item.event is None else reduce(reduced, item.event, item.at)
    # By their texts: a NaN is not equal to itself.
    assert repr(at_once) == repr(in_two) == repr(reduced)
    assert at_once.skipped == sum(item.event is None for item in records)


@given(histories, timed, timed)
def test_reduce_changes_no_earlier_state(
    history: list[tuple[Event, float]], one: tuple[Event, float], other: tuple[Event, float]
) -> None:
    state = RunState()
    for event, at in history:
        state = reduce(state, event, at)
    before = repr(state)
    first = reduce(state, *one)
    seen = repr(first)
    reduce(state, *other)  # shares its columns with the first branch
    assert (repr(state), repr(first)) == (before, seen)
    assert repr(reduce(state, *one)) == seen


def test_each_kind_of_event_is_found_where_a_screen_looks_for_it() -> None:
    started = kinds.RunStarted("a", "host", 1, "here")
    ready = kinds.AcceleratorReady("cpu", "asked for", "Strategy", (kinds.Replica(0, "cpu:0", "CPU", "here"),), {})
    data, model = kinds.DataReady(100, 20, (8, 8, 1), 10, 4), kinds.ModelBuilt("cnn", 10, 8, 40, 3)
    fit = FitStarted(3, 4, 32, 32, 1)
    kept, stop = kinds.CheckpointSaved(1, "checkpoints/best.keras", "val_loss", 0.5), kinds.StopRequested("asked")
    memory = kinds.ReplicaMemory(1, 5, 6, None, "no limit")
    end = kinds.RunFinished("completed", "all epochs are done", {})
    budget, mirror = kinds.BudgetSet(60.0, 99.0, "1m"), kinds.MirrorReported("gs://a", 1)
    translated = kinds.Translated(1, ())
    newest = (ready, data, model, fit, kept, stop, budget, translated)
    sampled, notices = kinds.MemorySampled((memory,)), [kinds.Noticed("a"), kinds.Noticed("b")]
    state = after(started, mirror, *newest, sampled, *notices, end)
    assert (state.started, state.started_at, state.last_at) == (started, 1.0, 14.0)
    assert (state.budget, state.mirror, state.mirror_at, state.translated) == (budget, mirror, 2.0, translated)
    assert (state.accelerator, state.data, state.model, state.fit) == (ready, data, model, fit)
    assert (state.memory, state.checkpoint, state.stop, state.end) == ({1: memory}, kept, stop, end)
    assert state.notices == ("a", "b")
    assert state.steps_total == 12


def test_phases_are_timed_apart_and_the_last_one_ends_with_the_run() -> None:
    state = after(kinds.PhaseStarted("importing"), at=10.0)
    assert (state.phase, state.phase_since, state.phase_s) == ("importing", 10.0, {})
    for phase, at in (("training", 12.0), ("validating", 15.0), ("training", 16.0)):
        state = reduce(state, kinds.PhaseStarted(phase, "why"), at)
    assert (state.phase, state.phase_detail) == ("training", "why")
    assert state.phase_s == {"importing": 2.0, "training": 3.0, "validating": 1.0}
    validating = kinds.ValidationProgress(1, 3, 10)
    during = after(kinds.PhaseStarted("validating"), validating, state=state, at=17.0)
    assert (during.validating, after(kinds.PhaseStarted("training"), state=during).validating) == (validating, None)
    state = reduce(state, kinds.RunFailed("a", "", "", ""), 20.0)
    assert state.phase == ""
    assert state.phase_s == {"importing": 2.0, "training": 7.0, "validating": 1.0}


def test_curves_have_one_point_a_progress_and_one_where_an_epoch_ends() -> None:
    fit = FitStarted(2, 4, 32, 32, 1)
    state = after(fit, progress(2, loss=2.0), ended(1, loss=1.0, val_loss=1.5), progress(6, loss=0.5, accuracy=0.9))
    assert state.train.step == Samples([2, 4, 6])
    assert state.train.epoch == Samples([0.5, 1.0, 1.5])
    assert state.train.elapsed_s == Samples([1.0, 1.0, 3.0])
    assert state.train.metrics == {"loss": Samples([2.0, 0.0, 0.5]), "accuracy": Samples([math.nan, math.nan, 0.9])}
    assert state.validation.metrics == {"loss": Samples([1.5])}
    assert (state.validation.step, state.validation.epoch) == (Samples([4]), Samples([1.0]))


def test_a_run_resumed_within_an_epoch_has_the_curve_of_one_that_was_not_interrupted() -> None:
    losses = [8.0, 4.0, 2.0, 1.0, 9.0, 7.0, 5.0, 3.0]

    def reported(step: int) -> Progress:
        begin = (step - 1) // 4 * 4
        return progress(step, loss=sum(losses[begin:step]) / (step - begin))

    fit = FitStarted(2, 4, 32, 32, 1)
    whole = after(fit, *(reported(step) for step in (2, 4, 5, 6, 7, 8)))
    resumed = kinds.RunResumed(1, 2, 6, 3.0, 7, "host")
    seam = after(fit, *(reported(step) for step in (2, 4, 5, 6, 8)), resumed, reported(7), reported(8))
    assert seam.train == whole.train
    assert seam.train.metrics["loss"] == Samples([6.0, 1.5, 9.0, 7.0, 5.0, 3.0])


@pytest.mark.parametrize(
    ("metric", "best"), [("loss", 2), ("val_loss", 4), ("accuracy", 3), ("val_accuracy", 4), ("auc", None)]
)
def test_the_best_epoch_has_the_best_finite_value_and_of_equal_ones_the_lowest_loss(
    metric: str, best: int | None
) -> None:
    epochs = [
        ended(1, loss=0.5, val_loss=math.nan, accuracy=0.5, val_accuracy=0.9),
        ended(2, loss=0.2, val_loss=0.3, accuracy=0.6, val_accuracy=0.9),
        ended(3, loss=0.2, val_loss=0.4, accuracy=0.7, val_accuracy=math.inf),
        ended(4, loss=0.3, val_loss=0.25, accuracy=0.7, val_accuracy=0.9),
        ended(5, loss=math.nan, val_loss=0.1, accuracy=0.9, val_accuracy=0.95),
    ]
    found = RunState(epochs=epochs).best_epoch(metric)
    assert (found.epoch if found else None) == best


def test_what_the_engine_says_of_a_metric_counts_more_than_its_name() -> None:
    metrics = (Metric("score_error"), Metric("quality", lower_is_better=True))
    state = after(FitStarted(2, 4, 8, 8, 1, monitor="val_quality", metrics=metrics))
    state = after(ended(1, val_quality=0.2, score_error=0.1), ended(2, val_quality=0.9, score_error=0.3), state=state)
    best = [found.epoch for name in ("", "score_error") if (found := state.best_epoch(name)) is not None]
    assert best == [1, 2]
    assert metric_called("val_quality", metrics).fits_log_scale
    assert not metric_called("score_error", metrics).is_mean


@pytest.mark.parametrize(("after", "epochs"), [(7.0, 7), (1.0, 1), (0.5, 3), (-3.0, 3), (None, 3)])
def test_a_change_to_less_than_one_epoch_is_ignored(after: float | None, epochs: int) -> None:
    state = reduce(RunState(), FitStarted(3, 10, 32, 16, 1), 0.0)
    state = reduce(state, kinds.Steered("epochs", "asked by a test", 1, 5, 1.0, 3.0, after), 1.0)
    assert (state.fit and state.fit.epochs, len(state.steered)) == (epochs, 1)


def test_damaged_progress_is_counted_and_the_rest_is_kept() -> None:
    last = replace(progress(3, loss=0.5), step=2**53)  # the largest that a curve holds exactly
    good = [record(event, at) for at, event in enumerate((progress(1, loss=1.0), progress(2, loss=0.7), last), 1)]
    bad = [damaged(item, 9.0) for item in (*DAMAGE, {"type": "Teleported"})]
    state = fold(RunState(), [good[0], *bad[:-1], good[1], bad[-1], good[2]])
    assert state.skipped == len(DAMAGE) + 1
    assert state.train.step == Samples([1, 2, 2**53])
    assert state.last_at == 3.0


def test_a_resumed_run_drops_what_it_repeats() -> None:
    start = kinds.RunStarted("digits", "host", 1, "here")
    steps = [progress(1, loss=4.0), progress(4, loss=3.0), progress(6, loss=2.0)]
    epochs = ended(1, loss=3.0, val_loss=3.5), ended(2, loss=2.0, val_loss=2.5)
    history: list[Event] = [start, *steps[:2], epochs[0], steps[2], epochs[1]]
    alerts = [kinds.Alerted("spike", "a", 2, step) for step in (5, 6)]
    before = after(*history, *alerts, kinds.StopRequested("asked"), kinds.RunFinished("stopped", "asked", {}))
    resumed = kinds.RunResumed(1, 1, 5, 2.5, 77, "there", {"epochs": 3})
    state = reduce(before, resumed, before.last_at + 1000.0)
    assert [epoch.epoch for epoch in state.epochs] == [1]
    assert state.train.step.values.tolist() == [1, 4]
    assert state.validation.metrics["loss"].values.tolist() == [3.5]
    assert state.speed.step.values.tolist() == [4]
    assert (state.end, state.stop, state.resumed, state.alerts) == (None, None, (resumed,), (alerts[0],))
    assert state.started == kinds.RunStarted("digits", "host", 77, "there", {"epochs": 3})
    assert state.progress == Progress(2, 0, 4, 2.5, {})
    assert (state.away_s, state.took_s) == (1000.0, before.last_at - before.started_at)
    assert reduce(before, resumed, before.last_at - 5.0).away_s == 0.0  # the clock was set back
    again = after(progress(6, loss=2.1), ended(2, loss=2.0, val_loss=2.5), state=state)
    assert again.train.step.values.tolist() == [1, 4, 6, 8]
    assert [epoch.epoch for epoch in again.epochs] == [1, 2]
    assert before.train.step.values.tolist() == [1, 4, 6, 8]  # the state before is not changed


@pytest.mark.parametrize(
    ("resumed", "folder", "epochs"),
    [
        (kinds.RunResumed(1, 0, 4, 1.0, 1, "a", {"epochs": 1}), "/first", 1),
        (kinds.RunResumed(1, 0, 4, 1.0, 1, "a", {"epochs": 0}, folder="/second"), "/second", 3),
        (kinds.RunResumed(1, 0, 4, 1.0, 1, "a", {"epochs": 9}, why="it went back"), "/first", 3),
    ],
)
def test_a_resumed_run_may_have_another_folder_and_other_epochs(
    resumed: kinds.RunResumed, folder: str, epochs: int
) -> None:
    state = after(kinds.RunStarted("a", "host", 1, "a", folder="/first"), FitStarted(3, 4, 8, 8, 1), resumed)
    assert (state.started and state.started.folder, state.fit and state.fit.epochs) == (folder, epochs)


def test_the_figures_of_hosts_and_of_the_input_become_curves_over_the_epochs() -> None:
    def sampled(process: int, elapsed_s: float | None, **changes: Any) -> kinds.HostSampled:
        values: dict[str, Any] = {"cpu_percent": 50.0, "ram_bytes": 30, "ram_limit_bytes": 120}
        return kinds.HostSampled(
            process, "a", elapsed_s, **(values | {"disk_read_bytes_per_s": 2e6, "examples_per_s": 9.0} | changes)
        )

    early, missing = sampled(0, None), sampled(1, 3.0, ram_limit_bytes=0, disk_read_bytes_per_s=None)
    fit = FitStarted(2, 4, 32, 32, 1)
    first_input = kinds.InputMeasured(1, 0, 0.5, 4, 0.5, 2.0, "input")
    last_input = kinds.InputMeasured(2, 6, 3.0, 4, 0.0, 0.0, "balanced")
    state = after(fit, early, first_input, sampled(0, 0.5), progress(6, loss=1.0), last_input, missing)
    assert state.hosts == {0: sampled(0, 0.5), 1: missing}
    first, second = state.host_curves[0], state.host_curves[1]
    assert (first.step, first.epoch, first.elapsed_s) == (Samples([0]), Samples([0.0]), Samples([0.5]))
    assert first.metrics == {
        "cpu_percent": Samples([50.0]),
        "ram_percent": Samples([25.0]),
        "disk_read_mb_per_s": Samples([2.0]),
        "examples_per_s": Samples([9.0]),
    }
    assert (second.step, second.epoch) == (Samples([6]), Samples([1.5]))
    assert second.metrics["ram_percent"] == second.metrics["disk_read_mb_per_s"] == Samples([math.nan])
    assert state.input == last_input
    assert (state.input_curve.step, state.input_curve.epoch) == (Samples([0, 6]), Samples([0.0, 1.5]))
    assert state.input_curve.metrics == {"wait_percent": Samples([25.0, math.nan])}
    instant = kinds.InputMeasured(2, 5, 1.0, 1, 0.25, 0.5, "input")
    assert after(instant).input_curve.epoch == Samples([1.0])  # before the first progress: where its epoch begins
    assert after(instant).input_curve.metrics == {"wait_percent": Samples([50.0])}


@pytest.mark.parametrize(
    ("event", "kept", "most"),
    [
        (kinds.Noticed("a"), "notices", 2000),
        (kinds.Alerted("nan", "a", 1, 1), "alerts", 2000),
        (kinds.Steered("pause", "a", 1, 1, 1.0), "steered", 2000),
        (kinds.RunResumed(1, 0, 4, 1.0, 1, "a"), "resumed", 2000),
        (kinds.HostLost(1, "a", 9.0), "lost", 4096),
    ],
)
def test_of_what_comes_without_end_the_newest_are_kept(event: Event, kept: str, most: int) -> None:
    older: dict[str, Any] = {kept: tuple(range(most))}
    state = replace(RunState(), **older)
    assert getattr(after(event, state=state), kept)[:-1] == older[kept][1:]
    assert len(getattr(after(event, event, state=state), kept)) == most


@pytest.mark.parametrize(
    ("history", "is_diverging"),
    [
        ((), False),
        ((kinds.Alerted("nan", "a", 1, 1),), False),
        ((kinds.Alerted("nan", "a", 1, 1, stops=True),), True),
        ((kinds.Alerted("nan", "a", 1, 1, stops=True), kinds.Alerted("spike", "a", 1, 2)), True),
        ((kinds.StopRequested("asked"), kinds.Alerted("nan", "a", 1, 1, stops=True)), False),
        ((kinds.StopRequested("asked", kinds.StopAfter.EPOCH), kinds.Alerted("nan", "a", 1, 1, stops=True)), True),
    ],
)
def test_a_run_diverges_when_an_alert_stops_it_before_anybody_else(
    history: tuple[Event, ...], is_diverging: bool
) -> None:
    state = after(*history)
    assert state.is_diverging is is_diverging
    assert state.alerts == tuple(event for event in history if isinstance(event, kinds.Alerted))
    assert not after(kinds.RunResumed(1, 0, 4, 1.0, 1, "a"), state=state).is_diverging


def test_speeds_have_one_point_an_epoch_and_no_phase_is_shorter_than_nothing() -> None:
    slow = replace(ended(2, loss=1.0), learning_rate=None, step_ms=None)
    state = after(ended(1, loss=2.0), slow)
    assert state.speed.step == Samples([4, 8])
    assert state.speed.metrics == {
        "learning_rate": Samples([1e-3, math.nan]),
        "examples_per_s": Samples([100.0, 100.0]),
        "step_ms": Samples([2.0, math.nan]),
    }
    state = after(kinds.PhaseStarted("importing"), at=10.0)
    assert reduce(state, kinds.PhaseStarted("training"), 5.0).phase_s == {"importing": 0.0}


def test_the_curves_end_with_the_epoch_and_do_not_run_into_the_next() -> None:
    state = after(FitStarted(2, 4, 32, 32, 1), progress(4, loss=2.0), ended(1, loss=1.0))
    assert state.train.step == Samples([4])
    state = after(FitStarted(2, None, None, None, 1), progress(3, loss=1.0), ended(1, loss=1.0))
    assert (state.train.epoch, state.steps_total) == (Samples([0.0, 1.0]), None)
    state = after(FitStarted(2, 4, 32, 32, 8), Progress(1, 8, 8, 1.0, {}))
    assert state.train.epoch == Samples([1.0])
    again = reduce(state, kinds.RunResumed(0, 0, 0, 0.0, 1, "here"), 99.0)
    assert (len(again.train), len(again.epochs), again.progress) == (0, 0, None)


def test_an_epoch_is_added_without_copying_those_before() -> None:
    first, states = ended(1), [RunState()]
    for number in range(1, 200):
        states.append(reduce(states[-1], first if number == 1 else ended(number), 1.0))
    assert sys.getrefcount(first) < 10  # each copy would be one more
    branch = reduce(states[100], ended(777), 1.0)
    assert [epoch.epoch for epoch in branch.epochs] == [*range(1, 101), 777]
    for state, count in ((states[1], 1), (states[100], 100), (states[-1], 199)):
        assert [epoch.epoch for epoch in state.epochs] == list(range(1, count + 1))
        assert (len(state.epochs), state.epochs[0], state.epochs[-1].epoch) == (count, first, count)
        assert [epoch.epoch for epoch in state.epochs[-2:]] == list(range(max(count - 1, 1), count + 1))
    with pytest.raises(IndexError):
        states[100].epochs[100]


def test_the_monitor_is_the_run_s_own_or_else_the_validation_loss_or_else_the_loss() -> None:
    assert (RunState().monitor, RunState().best_epoch()) == ("loss", None)
    validated = after(ended(1, loss=1.0, val_loss=1.5))
    assert validated.monitor == "val_loss"
    assert after(FitStarted(1, 4, 8, 8, 1, monitor="accuracy"), state=validated).monitor == "accuracy"
    assert [metric_called(name).lower_is_better for name in ("val_loss", "perplexity", "squared_hinge")] == [True] * 3
    assert not metric_called("val_auc").lower_is_better
    assert [metric_called(name).is_learning_rate for name in ("learning_rate", "lr", "loss")] == [True, True, False]


@pytest.mark.parametrize(
    ("monitor", "metrics", "has_validation", "name"),
    [
        ("auto", ["accuracy"], True, "val_accuracy"),
        ("auto", ["auc", "accuracy"], True, "val_auc"),
        ("none", [], True, "val_loss"),
        ("auto", ["accuracy"], False, "accuracy"),
        ("val_loss", ["accuracy"], False, "accuracy"),
        ("val_loss", ["accuracy"], True, "val_loss"),
        ("loss", ["accuracy"], False, "loss"),
        ("loss", ["accuracy"], True, "loss"),
    ],
)
def test_the_monitor_of_a_configuration_is_the_one_it_names_if_that_is_measured(
    monitor: str, metrics: list[str], has_validation: bool, name: str
) -> None:
    config = small_config(metrics=metrics, checkpoint={"monitor": monitor})
    assert monitor_of(config, has_validation=has_validation) == name
    assert monitor_of(config) == name or not has_validation


def test_figures_of_more_hosts_replicas_and_metrics_than_there_can_be_are_dropped() -> None:
    many = progress(1, **{f"metric_{number}": 1.0 for number in range(201)})
    assert len(after(many).train.metrics) == len(fold(RunState(), [record(many, 1.0)]).train.metrics) == 200
    sampled = [kinds.HostSampled(number, "a", None, None, None, None, None) for number in range(4097)]
    assert len(after(*sampled).hosts) == 4096
    full = after(kinds.MemorySampled(tuple(kinds.ReplicaMemory(number, 1, 1, 1) for number in range(MOST_REPLICAS))))
    assert after(kinds.MemorySampled((kinds.ReplicaMemory(MOST_REPLICAS, 1, 1, 1),)), state=full).memory == full.memory
