"""The line above a chart with its legend, the axes, and the marks below."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tests.helpers import epoch_ended
from tests.tui.made_runs import made_curve
from tpu_console.engine.runs.events import Alerted, FitStarted, Progress, RunResumed, Steered
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.tui.charts.curve import Axis, Line, Place
from tpu_console.tui.charts.frame import (
    Entry,
    Mark,
    MarkKind,
    framed,
    header_line,
    legends_of,
    marks_of,
    reading_line,
    with_crosshair,
)
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


@pytest.mark.parametrize(("away", "shown"), [(2.75, ["!×2 plateau"]), (3.0, ["!plateau", "!plateau"])])
def test_marks_that_repeat_are_one_without_room_for_both(away: float, shown: list[str]) -> None:
    below = foot(*(mark(MarkKind.ALERT, x, "plateau") for x in (7.0, 7.0 + away)))[1]
    assert re.findall(r"!\S* ?plateau", below) == shown


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


ENTRIES = [
    Entry("loss", pen_for(0, "braille", "dark", is_validation=False), 0.1234),
    Entry("val_loss", pen_for(0, "braille", "dark", is_validation=True), 0.1532, 0.15, 24.0),
]


def legend(title: str, width: int, *entries: Entry) -> str:
    return header_line("", legends_of(entries, title), (), width).plain.rstrip()


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (80, "─ train 0.1234  ● val 0.1532 ★ 0.1500 (24)"),
        (41, "─ train 0.123  ● val 0.153 ★ 0.150 (24)"),
        (36, "─ train 0.123  ● val 0.153 ★(24)"),
        (28, "─ train .123 ● val .153 ★24"),
        (25, "─ train .123 ● val .153"),
        (12, "─ train .12…"),
    ],
)
def test_the_legend_says_less_the_narrower_it_is(width: int, text: str) -> None:
    assert legend("loss", width, *ENTRIES) == text


NOTES = [("! 3 NaN", Style(bold=True)), ("log", Style()), ("step", Style())]


@given(width=st.integers(1, 100))
def test_the_header_fits_any_width(width: int) -> None:
    assert header_line("loss", legends_of(ENTRIES, "loss"), NOTES, width).cell_len == width


@pytest.mark.parametrize(
    ("width", "end"),
    [
        (80, "★ 0.1500 (24)              ! 3 NaN  log  step"),
        (63, "(24)   ! 3 NaN  log"),
        (44, "val .153   ! 3 NaN  log"),
        (38, "val .153  ! 3 NaN"),
        (29, "● val .153"),
    ],
)
def test_the_header_gives_up_the_axis_then_words_of_the_legend_then_notes(width: int, end: str) -> None:
    assert header_line("loss", legends_of(ENTRIES, "loss"), NOTES, width).plain.endswith(end)


def test_the_legend_marks_the_epoch_so_far_and_names_a_metric_without_a_finite_value() -> None:
    assert legend("auc", 60, Entry("auc", ENTRIES[0].pen, 0.9, running=True)) == "─ train~ 0.9000"
    assert legend("loss", 60, Entry("loss", ENTRIES[0].pen, math.nan)) == "─ train NaN"


READ = [
    made_curve("loss", [0.01372], [2136.0]),
    made_curve("val_loss", [0.0416, 0.5], [2136.0, 2400.0]),
    made_curve("auc", [0.9], [2400.0], running=True),
    made_curve("accuracy", [0.5, 0.9965], [12.0, 2100.0]),
    made_curve("learning_rate", [1.3e-4], [2136.0]),
]


def reading(width: int) -> str:
    line = reading_line(READ, Axis.STEP, 2399.0, width, "dark")
    assert line is not None
    return line.plain


def test_every_curve_is_read_at_its_newest_sample_with_fewer_words_if_there_is_less_room() -> None:
    whole = "step 2,136 · epoch 21.36 · 1:11:12  loss 0.01372 val 0.04160  auc~ n/a  accuracy 0.9965  lr 1.30e-4"
    assert reading(120) == whole
    short = "step 2,136 ep 21.36 1:11:12  loss 0.0137 val 0.0416  auc~ n/a  acc 0.997  lr 1.3e-4"
    assert reading(len(short)) == short
    assert reading(len(short) - 1) == short.removesuffix("  lr 1.3e-4")
    assert reading_line([], Axis.STEP, 1.0, 80, "dark") is None


@given(width=st.integers(1, 150))
def test_a_reading_fits_any_width(width: int) -> None:
    assert cell_len(reading(width)) <= width
