from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.tui.charts.curve import Axis, Curve, moved, on_axis, snapped


def curve(name: str, steps: list[float], values: list[float] | None = None, *, running: bool = False) -> Curve:
    step = np.array(steps, dtype=np.float64)
    value = step / 10 if values is None else np.array(values)
    return Curve(name, step, step / 100, step * 2, value, name.startswith("val_"), running)


LOSS = curve("loss", [10.0, 20.0, 30.0, 45.0])
VAL = curve("val_loss", [20.0, 40.0], [0.5, math.nan])


def test_the_cursor_moves_by_samples_and_stops_at_the_ends() -> None:
    assert moved(None, [VAL, LOSS], Axis.STEP, 1) == 45
    assert moved(45, [VAL, LOSS], Axis.STEP, 1) == 45
    assert moved(45, [VAL, LOSS], Axis.STEP, -1) == 40
    assert moved(10, [VAL, LOSS], Axis.STEP, -1) == 10
    assert moved(60, [VAL, LOSS], Axis.TIME, 1) == 80
    assert moved(None, [], Axis.STEP, 1) is None


COLUMNS = st.lists(st.integers(0, 300), min_size=1, max_size=40).map(
    lambda steps: [float(step) for step in sorted(steps)]
)


@given(parts=st.lists(COLUMNS, min_size=1, max_size=3))
def test_the_cursor_reaches_every_sample_of_every_curve_in_order(parts: list[list[float]]) -> None:
    curves = [curve(f"metric {number}", steps) for number, steps in enumerate(parts)]
    every = sorted({step for steps in parts for step in steps})
    for direction, wanted in ((-1, every[::-1]), (1, every)):
        at = wanted[0]
        reached = [at]
        while (there := moved(at, curves, Axis.STEP, direction)) not in (None, at):
            assert there is not None
            at = there
            reached.append(at)
        assert reached == wanted


def test_the_pointer_finds_the_nearest_sample() -> None:
    assert [snapped(x, [LOSS], Axis.STEP) for x in (-5, 14, 16, 38, 99)] == [10, 10, 20, 45, 45]
    assert snapped(38, [LOSS, VAL], Axis.STEP) == 40
    assert snapped(3.0, [], Axis.STEP) == 3.0


def test_a_curve_is_read_at_its_newest_sample_from_the_first_one_on() -> None:
    assert [LOSS.at(Axis.STEP, x) for x in (9.9, 10, 19, 99)] == [None, 1.0, 1.0, 4.5]
    assert curve("loss", []).at(Axis.STEP, 5) is None


def test_the_cursor_keeps_its_sample_on_another_axis() -> None:
    assert on_axis(30, [LOSS, VAL], Axis.STEP, Axis.TIME) == 60
    assert on_axis(30, [], Axis.STEP, Axis.TIME) == 30


def test_each_axis_has_its_own_positions() -> None:
    assert [LOSS.along(axis)[0] for axis in (Axis.STEP, Axis.EPOCH, Axis.TIME)] == [10.0, 0.1, 20.0]
    assert [LOSS.place(1).along(axis) for axis in (Axis.STEP, Axis.EPOCH, Axis.TIME)] == [20.0, 0.2, 40.0]
