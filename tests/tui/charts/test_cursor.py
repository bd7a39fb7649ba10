from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.tui.charts.cursor import Cursor, Reading, ReadValue, cursor_on_axis, moved, read_at, snapped
from tpu_console.tui.charts.curve import Axis, Curve
from tpu_console.tui.charts.legend import reading_line


def curve(name: str, steps: list[float], values: list[float] | None = None, *, running: bool = False) -> Curve:
    step = np.array(steps, dtype=np.float64)
    value = step / 10 if values is None else np.array(values)
    return Curve(name, step, step / 100, step * 2, value, name.startswith("val_"), running)


LOSS = curve("loss", [10.0, 20.0, 30.0, 45.0])
VAL = curve("val_loss", [20.0, 40.0], [0.5, math.nan])


def test_the_cursor_moves_by_samples_and_stops_at_the_ends() -> None:
    assert moved(None, [VAL, LOSS], Axis.STEP, 1) == Cursor(45)
    assert moved(Cursor(45), [VAL, LOSS], Axis.STEP, 1) == Cursor(45)
    assert moved(Cursor(45), [VAL, LOSS], Axis.STEP, -1) == Cursor(40)
    assert moved(Cursor(10), [VAL, LOSS], Axis.STEP, -1) == Cursor(10)
    assert moved(Cursor(60), [VAL, LOSS], Axis.TIME, 1) == Cursor(80)
    assert moved(None, [], Axis.STEP, 1) is None


COLUMNS = st.lists(st.integers(0, 300), min_size=1, max_size=40).map(
    lambda steps: [float(step) for step in sorted(steps)]
)


@given(parts=st.lists(COLUMNS, min_size=1, max_size=3))
def test_the_cursor_reaches_every_sample_of_every_curve_in_order(parts: list[list[float]]) -> None:
    curves = [curve(f"metric {number}", steps) for number, steps in enumerate(parts)]
    every = sorted({step for steps in parts for step in steps})
    for direction, wanted in ((-1, every[::-1]), (1, every)):
        at = Cursor(wanted[0])
        reached = [at.x]
        while (there := moved(at, curves, Axis.STEP, direction)) not in (None, at):
            assert there is not None
            at = there
            reached.append(at.x)
        assert reached == wanted


def test_the_pointer_finds_the_nearest_sample() -> None:
    assert [snapped(x, [LOSS], Axis.STEP) for x in (-5, 14, 16, 38, 99)] == [10, 10, 20, 45, 45]
    assert snapped(38, [LOSS, VAL], Axis.STEP) == 40
    assert snapped(3.0, [], Axis.STEP) == 3.0


def test_the_cursor_keeps_its_sample_on_another_axis() -> None:
    assert cursor_on_axis(Cursor(30), [LOSS, VAL], Axis.STEP, Axis.TIME) == Cursor(60)
    assert cursor_on_axis(None, [LOSS], Axis.STEP, Axis.TIME) is None


def test_every_curve_is_read_at_its_newest_sample() -> None:
    auc = curve("auc", [30.0], [0.9], running=True)
    reading = read_at([LOSS, VAL, auc], Axis.STEP, 29.0)
    assert reading == Reading(
        20.0,
        0.2,
        40.0,
        (
            ReadValue("loss", 2.0, is_validation=False, running=False),
            ReadValue("val_loss", 0.5, is_validation=True, running=False),
            ReadValue("auc", None, is_validation=False, running=True),
        ),
    )
    last = read_at([LOSS, VAL], Axis.STEP, 45.0)
    assert last is not None
    assert math.isnan(last.values[1].value or 0.0)
    assert read_at([], Axis.STEP, 1.0) is None


READING = Reading(
    2136,
    24.5,
    13.4,
    (
        ReadValue("loss", 0.01372, is_validation=False, running=False),
        ReadValue("val_loss", 0.0416, is_validation=True, running=False),
        ReadValue("auc", None, is_validation=False, running=True),
        ReadValue("accuracy", 0.9965, is_validation=False, running=False),
        ReadValue("learning_rate", 1.3e-4, is_validation=False, running=False),
    ),
)


def test_a_reading_names_the_place_and_every_value() -> None:
    assert reading_line(READING, 120, "dark").plain == (
        "step 2,136 · epoch 24.5 · 0:13    loss 0.01372  val 0.04160    auc~ n/a    accuracy 0.9965    lr 1.30e-4"
    )
    assert reading_line(READING, 80).plain == (
        "step 2,136 ep 24.5 0:13  loss 0.0137 val 0.0416  auc~ n/a  acc 0.997  lr 1.3e-4"
    )
    assert reading_line(READING, 78).plain == (
        "2,136 ep 24.5 0:13  loss 0.0137 val 0.0416  auc~ n/a  acc 0.997  lr 1.3e-4"
    )
    assert reading_line(READING, 70).plain == "2,136 ep 24.5 0:13  loss 0.0137 val 0.0416  auc~ n/a  acc 0.997"


@given(width=st.integers(1, 150))
def test_a_reading_fits_any_width(width: int) -> None:
    assert reading_line(READING, width).cell_len <= width
