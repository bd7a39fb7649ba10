"""Curves, the cursor that reads them, and the window that shows a part of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tpu_console.tui.charts.curve import Axis, Curve, Extent, Mode, Window, extent_of, moved, on_axis, snapped


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


RUN: Extent = (0.0, 1000.0)
EXTENTS = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(lambda pair: (pair[0], pair[0] + pair[1]))
SHARES = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)
MODES = st.sampled_from(Mode)


def window_in(extent: Extent, mode: Mode, shares: list[float]) -> Window:
    left, right = (extent[0] + share * (extent[1] - extent[0]) for share in shares)
    return Window(mode, left, right)


def span_of(window: Window, extent: Extent) -> float:
    left, right = window.resolved(extent)
    return right - left


@given(extent=EXTENTS, mode=MODES, shares=SHARES, factor=st.floats(0.05, 20), at=st.none() | st.floats(0, 1))
def test_zooming_stays_inside_the_run(
    extent: Extent, mode: Mode, shares: list[float], factor: float, at: float | None
) -> None:
    window = window_in(extent, mode, shares)
    place = None if at is None else extent[0] + at * (extent[1] - extent[0])
    left, right = window.zoomed(extent, factor, place).resolved(extent)
    slack = 1e-9 * max(map(abs, extent))
    assert extent[0] - slack <= left <= right <= extent[1] + slack


@given(extent=EXTENTS, shares=SHARES, factor=st.floats(1.05, 20), at=st.floats(0, 1))
def test_the_place_below_the_pointer_stays_where_it_is(
    extent: Extent, shares: list[float], factor: float, at: float
) -> None:
    assume(shares[1] - shares[0] > 1e-3)
    window = window_in(extent, Mode.FIXED, shares)
    left, right = window.resolved(extent)
    place = left + at * (right - left)
    new_left, new_right = window.zoomed(extent, factor, place).resolved(extent)
    assert (place - new_left) / (new_right - new_left) == pytest.approx(at, abs=1e-3)
    assert new_right - new_left == pytest.approx((right - left) / factor, rel=1e-3)


def test_zooming_by_key_keeps_following_the_newest_samples() -> None:
    window = Window().zoomed(RUN, 4)
    assert window == Window(Mode.FOLLOW, 750, 1000)
    assert window.resolved((0, 2000)) == (1750, 2000)
    assert window.zoomed(RUN, 0.25) == Window()


def test_zooming_a_part_keeps_its_middle() -> None:
    assert Window(Mode.FIXED, 200, 400).zoomed(RUN, 2) == Window(Mode.FIXED, 250, 350)


def test_a_part_zoomed_out_at_an_end_stays_inside() -> None:
    assert Window(Mode.FIXED, 0, 100).zoomed(RUN, 0.5, at=50) == Window(Mode.FIXED, 0, 200)


@given(extent=EXTENTS, shares=SHARES, share=st.floats(-3, 3))
def test_panning_keeps_the_width_and_stays_inside(extent: Extent, shares: list[float], share: float) -> None:
    window = window_in(extent, Mode.FIXED, shares)
    moved = window.panned(extent, share)
    slack = 1e-9 * max(map(abs, extent))
    assert span_of(moved, extent) == pytest.approx(span_of(window, extent), abs=slack)
    left, right = moved.resolved(extent)
    assert extent[0] - slack <= left <= right <= extent[1] + slack


def test_panning_to_the_end_follows_and_back_lets_go() -> None:
    window = Window(Mode.FIXED, 800, 900).panned(RUN, 1.5)
    assert window == Window(Mode.FOLLOW, 900, 1000)
    assert window.panned(RUN, -0.5) == Window(Mode.FIXED, 850, 950)


def test_there_is_nothing_to_pan_to_while_everything_is_shown() -> None:
    assert Window().panned(RUN, -0.5) == Window()


def test_following_takes_a_share_of_the_run() -> None:
    assert Window.newest(RUN, 0.1) == Window(Mode.FOLLOW, 900, 1000)
    assert Window.newest((0.0, 1.0), 0.5) == Window(Mode.FOLLOW, 0.5, 1.0)
    assert Window.newest(RUN, 1) == Window.newest((5.0, 5.0), 0.1) == Window()


def test_a_young_run_fills_a_wide_window() -> None:
    assert Window(Mode.FOLLOW, 0, 500).resolved((0, 100)) == (0, 100)


def run_of(n: int) -> Curve:
    step = np.arange(1.0, n + 1)
    return Curve("loss", step, step / 10, step**1.5, step, is_validation=False)


@given(shares=SHARES)
def test_the_same_samples_are_shown_on_another_axis(shares: list[float]) -> None:
    curves = [run_of(1000)]
    first, last = (1 + int(share * 999) for share in shares)
    assume(last > first)
    window = Window(Mode.FIXED, first, last)
    there = window.on_axis(curves, Axis.STEP, Axis.TIME)
    assert (there.left, there.right) == pytest.approx((first**1.5, last**1.5))
    assert there.on_axis(curves, Axis.TIME, Axis.STEP) == window


def test_everything_is_everything_on_any_axis() -> None:
    assert Window().on_axis([run_of(10)], Axis.STEP, Axis.TIME) == Window()
    assert Window(Mode.FIXED, 1, 2).on_axis([], Axis.STEP, Axis.TIME) == Window()


def test_the_extent_is_that_of_all_curves() -> None:
    assert extent_of([run_of(10), run_of(20), run_of(0)], Axis.STEP) == (1, 20)
    assert extent_of([run_of(0)], Axis.STEP) is None
