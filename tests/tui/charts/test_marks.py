from __future__ import annotations

from tpu_console.engine.runs.events import Alerted, EpochEnded, Event, FitStarted, Progress, RunResumed, Steered
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.tui.charts.curve import Axis
from tpu_console.tui.charts.frame import MarkKind, marks_of


def state_of(*rates: float | None) -> RunState:
    """Epochs of 4 steps and 10 s, the first with 3 s of compilation, each with 2 s of validation."""
    state = RunState()
    for epoch, rate in enumerate(rates, start=1):
        compile_s = 3.0 if epoch == 1 else 0.0
        event = EpochEnded(epoch, 4 * epoch, 4, 10.0 * epoch, 10.0, compile_s, 2.0, 1.0, 8.0, rate, {})
        state = reduce(state, event, 10.0 * epoch)
    return state


def test_a_learning_rate_that_drops_is_marked_and_a_schedule_is_not() -> None:
    dropped = [mark for mark in marks_of(state_of(1e-3, 1e-3, 1e-4, 1e-4)) if mark.kind is MarkKind.LEARNING_RATE]
    assert [(mark.place.epoch, mark.label) for mark in dropped] == [(2.0, "lr 0.0001")]
    schedule = marks_of(state_of(*(1e-3 * 0.9**epoch for epoch in range(9))))
    assert not [mark for mark in schedule if mark.kind is MarkKind.LEARNING_RATE]


def test_a_resumed_run_is_marked_where_it_went_on() -> None:
    state = reduce(state_of(None), FitStarted(3, 4, 8, 8, 1), 11.0)
    state = reduce(state, RunResumed(1, 2, 6, 12.5, 1, "here"), 20.0)
    state = reduce(state, Progress(2, 3, 7, 13.0, {}), 21.0)
    (resumed,) = [mark for mark in marks_of(state) if mark.kind is MarkKind.RESUME]
    assert [resumed.place.along(axis) for axis in Axis] == [6, 1.75, 13.0]
    assert resumed.label == "resumed"
    state = reduce(state, RunResumed(1, 2, 6, 12.5, 1, "here", why="the loss became NaN"), 22.0)
    assert [mark.label for mark in marks_of(state) if mark.kind is MarkKind.RESUME] == ["resumed", "rolled back"]


def test_pauses_and_alerts_are_marked_where_they_happened_and_refusals_are_not() -> None:
    state = state_of(1e-3, 1e-3, 1e-4)
    events: list[Event] = [
        Steered("pause", "k", 1, 4, 9.5),
        Steered("continue", "k", 1, 4, 9.5),
        Steered("pause", "k", 2, 6, 12.0, refused="too late"),
        Steered("learning_rate", "k", 3, 8, 21.0, before=1e-3, after=1e-4),
        Alerted("slow_epoch", "This epoch is slow.", 3, 12),
    ]
    for event in events:
        state = reduce(state, event, 40.0)
    assert [(mark.kind, mark.place.step, mark.place.elapsed_s, mark.label) for mark in marks_of(state)] == [
        (MarkKind.PAUSE, 4, 9.5, "paused"),
        (MarkKind.LEARNING_RATE, 8, 21.0, "lr 0.0001"),
        (MarkKind.ALERT, 12, 30.0, "slow epoch"),
    ]


def test_overfitting_is_marked_where_it_began_as_long_as_it_lasts() -> None:
    state, marked = RunState(), {}
    for epoch in range(1, 22):
        logs = {"loss": 1.0 / epoch, "val_loss": 0.1 if epoch == 21 else 0.4 + 0.05 * max(0, epoch - 3)}
        state = reduce(state, EpochEnded(epoch, 4 * epoch, 4, 10.0 * epoch, 10.0, 0.0, 0.0, 1.0, 8.0, None, logs), 1.0)
        if epoch in {12, 16}:
            state = reduce(state, Alerted("overfitting", "It overfits.", epoch, 4 * epoch), 1.0)
        marked[epoch] = [mark.place.step for mark in marks_of(state) if mark.kind is MarkKind.ALERT]
    assert (marked[11], marked[12], marked[20], marked[21]) == ([], [48], [64], [])
