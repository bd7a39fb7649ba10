import numpy as np
import pytest
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tests.helpers import epoch_ended
from tpu_console.engine.runs.events import Alerted, FitStarted, Progress, RunResumed, Steered
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.tui.charts.curve import Axis, Line, Place
from tpu_console.tui.charts.frame import Mark, MarkKind, framed, marks_of, with_crosshair
from tpu_console.tui.charts.scene import DrawnCurve, View, build_scene, pen_for


def state_of(*rates: float | None) -> RunState:
    """Epochs of 4 steps and 10 s."""
    state = RunState()
    for epoch, rate in enumerate(rates, start=1):
        state = reduce(state, epoch_ended(epoch, seconds=10.0, learning_rate=rate), 10.0 * epoch)
    return state


@pytest.mark.parametrize(
    ("rates", "marked"),
    [((1e-3, 1e-3, 1e-4, 1e-4), [(2.0, "lr 0.0001")]), (tuple(1e-3 * 0.9**epoch for epoch in range(9)), [])],
)
def test_a_learning_rate_that_drops_is_marked_and_a_schedule_is_not(
    rates: tuple[float, ...], marked: list[tuple[float, str]]
) -> None:
    found = marks_of(state_of(*rates))
    assert [(mark.place.epoch, mark.label) for mark in found if mark.kind is MarkKind.LEARNING_RATE] == marked


def test_a_resumed_run_is_marked_where_it_went_on() -> None:
    state = reduce(state_of(None), FitStarted(3, 4, 8, 8, 1), 11.0)
    state = reduce(state, RunResumed(1, 2, 6, 12.5, 1, "here"), 20.0)
    state = reduce(state, Progress(2, 3, 7, 13.0, {}), 21.0)
    (resumed,) = marks_of(state)
    assert (resumed.kind, [resumed.place.along(axis) for axis in Axis]) == (MarkKind.RESUME, [6, 1.75, 13.0])
    state = reduce(state, RunResumed(1, 2, 6, 12.5, 1, "here", why="the loss became NaN"), 22.0)
    assert [mark.label for mark in marks_of(state)] == ["resumed", "rolled back"]


def test_pauses_and_alerts_are_marked_where_they_happened_and_refusals_are_not() -> None:
    state = state_of(1e-3, 1e-3, 1e-4)
    for event in (
        Steered("pause", "k", 1, 4, 9.5),
        Steered("continue", "k", 1, 4, 9.5),
        Steered("pause", "k", 2, 6, 12.0, refused="too late"),
        Steered("learning_rate", "k", 3, 8, 21.0, before=1e-3, after=1e-4),
        Alerted("slow_epoch", "This epoch is slow.", 3, 12),
    ):
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
        state = reduce(state, epoch_ended(epoch, logs, learning_rate=None), 1.0)
        if epoch in {12, 16}:
            state = reduce(state, Alerted("overfitting", "It overfits.", epoch, 4 * epoch), 1.0)
        marked[epoch] = [mark.place.step for mark in marks_of(state)]
    assert [marked[epoch] for epoch in (11, 12, 20, 21)] == [[], [48], [64], []]


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


def test_marks_stand_below_the_axis_where_they_happened_and_hide_no_tick() -> None:
    axis, below = foot(mark(MarkKind.ALERT, 12.2, "nan"), mark(MarkKind.ALERT, 20.0, "later than what is shown"))
    ten, fifteen = [at for at, sign in enumerate(axis) if sign == "┬"][2:4]
    assert abs(below.index("!nan") - (ten + 2.2 / 5 * (fifteen - ten))) <= 0.5
    assert below.replace("!nan", "").split() == foot()[1].split()
    alerts = [mark(MarkKind.ALERT, x, "plateau") for x in (7.0, 7.1, 7.2, 7.3, 7.4, 15.0)]
    below = foot(*alerts, mark(MarkKind.RESUME, 10.0, "resumed"))[1]
    assert ("!×5 plateau" in below, below.count("!plateau"), "►" in below) == (True, 1, True)  # what repeats is one
    assert [word for word in below.split() if word.isdigit()] == foot()[1].split()


@pytest.mark.parametrize("width", range(30, 100, 7))
def test_every_tick_has_its_label_below_it(width: int) -> None:
    axis, below = foot(width=width)
    assert len(below) <= len(axis) == width
    assert all(below[at] in "0123456789." for at, sign in enumerate(axis) if sign == "┬")


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
