from __future__ import annotations

import numpy as np
import pytest
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tpu_console.engine.runs.events import Alerted, EpochEnded, Event, FitStarted, Progress, RunResumed, Steered
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.tui.charts.curve import Axis, Line, Place
from tpu_console.tui.charts.frame import Mark, MarkKind, framed, marks_of, with_crosshair
from tpu_console.tui.charts.legend import pen_for
from tpu_console.tui.charts.scene import DrawnCurve, View, build_scene


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


def mark(kind: MarkKind, x: float, label: str) -> Mark:
    return Mark(kind, Place(x, x, x), label)


def foot(*marks: Mark, width: int = 80) -> tuple[str, str]:
    """The axis and the row below it."""
    line = Line(np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    trace = DrawnCurve(pen_for(0, "braille", "dark", is_validation=False), line)
    scene = build_scene([trace], View(width, 12, Axis.STEP, False, "braille", (0.0, 19.0)))
    assert scene is not None
    rows = framed(scene, marks, Style(), Style())
    assert all(row.cell_length == len(row.text) for row in rows)
    axis, below = rows[-2:]
    return axis.text, below.text


def test_marks_stand_below_the_axis_where_they_happened() -> None:
    axis, below = foot(mark(MarkKind.ALERT, 12.2, "nan"), mark(MarkKind.ALERT, 20.0, "later than what is shown"))
    ten, fifteen = [at for at, sign in enumerate(axis) if sign == "┬"][2:4]
    assert abs(below.index("!nan") - (ten + 2.2 / 5 * (fifteen - ten))) <= 0.5
    assert "later" not in below
    assert axis.count("┬") == len(below.replace("!nan", "").split())


@pytest.mark.parametrize("width", range(30, 100, 7))
def test_every_tick_has_its_label_below_it(width: int) -> None:
    axis, below = foot(width=width)
    assert len(below) <= len(axis) == width
    assert all(below[at] in "0123456789." for at, sign in enumerate(axis) if sign == "┬")


def test_marks_that_repeat_are_one_and_no_mark_hides_a_tick() -> None:
    alerts = [mark(MarkKind.ALERT, 7.0 + at / 10, "plateau") for at in range(5)]
    later = mark(MarkKind.ALERT, 15.0, "plateau")
    on_a_tick = mark(MarkKind.RESUME, 10.0, "resumed")
    plain = foot()[1].split()
    below = foot(*alerts, on_a_tick, later)[1]
    assert "!×5 plateau" in below
    assert below.count("!plateau") == 1
    assert "►" in below
    assert [word for word in below.split() if word.isdigit()] == plain


@pytest.mark.parametrize(
    ("row", "is_axis", "crossed"),
    [
        ("1.0┤  ·", False, "1.0┤ ┊·"),
        ("1.0┤ ··", False, "1.0┤ ┊·"),
        ("1.0┤ ⣿·", False, "1.0┤ ⣿·"),
        ("   └─┬─", True, "   └─┴─"),
        ("   └─!─", True, "   └─!─"),
    ],
)
def test_the_crosshair_stands_where_nothing_else_does(row: str, is_axis: bool, crossed: str) -> None:
    strip = Strip([Segment(row[:5], Style(dim=True)), Segment(row[5:])])
    drawn = with_crosshair(strip, 5, is_axis=is_axis)
    assert drawn.text == crossed
    assert drawn.cell_length == len(row)
