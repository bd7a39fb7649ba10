from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tpu_console.tui.charts.curve import Axis, Curve, moved, on_axis, snapped
from tpu_console.tui.charts.legend import reading_line


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


def test_the_cursor_keeps_its_sample_on_another_axis() -> None:
    assert on_axis(30, [LOSS, VAL], Axis.STEP, Axis.TIME) == 60
    assert on_axis(30, [], Axis.STEP, Axis.TIME) == 30


READ = [
    curve("loss", [2136.0], [0.01372]),
    curve("val_loss", [2136.0, 2400.0], [0.0416, 0.5]),
    curve("auc", [2400.0], [0.9], running=True),
    curve("accuracy", [12.0, 2100.0], [0.5, 0.9965]),
    curve("learning_rate", [2136.0], [1.3e-4]),
]


def reading(width: int) -> str:
    line = reading_line(READ, Axis.STEP, 2399.0, width, "dark")
    assert line is not None
    return line.plain


def test_every_curve_is_read_at_its_newest_sample() -> None:
    assert reading(120) == (
        "step 2,136 · epoch 21.36 · 1:11:12    loss 0.01372  val 0.04160    auc~ n/a    accuracy 0.9965    lr 1.30e-4"
    )
    last = reading_line([LOSS, VAL], Axis.STEP, 45.0, 80, "dark")
    assert last is not None
    assert "val NaN" in last.plain
    assert reading_line([], Axis.STEP, 1.0, 80, "dark") is None


def test_a_reading_says_less_the_narrower_it_is() -> None:
    long = "2,136 ep 21.36 1:11:12  loss 0.0137 val 0.0416  auc~ n/a  acc 0.997  lr 1.3e-4"
    assert reading(len(long) + 5) == f"step {long}"
    assert reading(len(long) + 4) == long
    assert reading(70) == long.removesuffix("  lr 1.3e-4")


@given(width=st.integers(1, 150))
def test_a_reading_fits_any_width(width: int) -> None:
    assert cell_len(reading(width)) <= width


def test_each_axis_has_its_own_positions() -> None:
    assert [LOSS.along(axis)[0] for axis in (Axis.STEP, Axis.EPOCH, Axis.TIME)] == [10.0, 0.1, 20.0]
    assert [LOSS.place(1).along(axis) for axis in (Axis.STEP, Axis.EPOCH, Axis.TIME)] == [20.0, 0.2, 40.0]
