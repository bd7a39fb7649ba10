"""Curves, the cursor that reads them, the window that shows a part of them, and what is drawn of them."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.helpers import replace
from tests.tui.made_runs import made_curve
from tpu_console.engine.runs.metrics import Metric
from tpu_console.tui.charts.curve import (
    Axis,
    Curve,
    DebiasedEma,
    Extent,
    FloatArray,
    Line,
    Mode,
    Series,
    Window,
    extent_of,
    moved,
    on_axis,
    snapped,
)

LOSS = made_curve("loss", [1.0, 2.0, 3.0, 4.5], [10.0, 20.0, 30.0, 45.0])
VAL = made_curve("val_loss", [0.5, math.nan], [20.0, 40.0])
COLUMNS = st.lists(st.integers(0, 300), min_size=1, max_size=40).map(
    lambda steps: [float(step) for step in sorted(steps)]
)


@given(parts=st.lists(COLUMNS, min_size=1, max_size=3))
def test_the_cursor_reaches_every_sample_of_every_curve_in_order_and_stops_at_the_ends(
    parts: list[list[float]],
) -> None:
    curves = [made_curve("loss", steps, steps) for steps in parts]
    every = sorted({step for steps in parts for step in steps})
    assert moved(None, curves, Axis.STEP, 1) == every[-1]
    for direction, wanted in ((-1, every[::-1]), (1, every)):
        reached = [wanted[0]]
        while (there := moved(reached[-1], curves, Axis.STEP, direction)) not in (None, reached[-1]):
            assert there is not None
            reached.append(there)
        assert reached == wanted


def test_positions_belong_to_an_axis() -> None:
    assert [LOSS.along(axis)[0] for axis in Axis] == [10.0, 0.1, 20.0]
    assert [LOSS.place(1).along(axis) for axis in Axis] == [20.0, 0.2, 40.0]
    assert moved(60, [VAL, LOSS], Axis.TIME, 1) == 80
    assert on_axis(30, [LOSS, VAL], Axis.STEP, Axis.TIME) == 60
    assert (moved(None, [], Axis.STEP, 1), on_axis(30, [], Axis.STEP, Axis.TIME)) == (None, 30)
    curves = [made_curve("loss", [1.0] * n) for n in (10, 20, 0)]
    assert (extent_of(curves, Axis.STEP), extent_of(curves[2:], Axis.STEP)) == ((1, 20), None)


def test_the_pointer_finds_the_nearest_sample_and_a_curve_is_read_at_its_newest() -> None:
    assert [snapped(x, [LOSS], Axis.STEP) for x in (-5, 14, 16, 38, 99)] == [10, 10, 20, 45, 45]
    assert (snapped(38, [LOSS, VAL], Axis.STEP), snapped(3.0, [], Axis.STEP)) == (40, 3.0)
    assert [LOSS.at(Axis.STEP, x) for x in (9.9, 10, 19, 99)] == [None, 1.0, 1.0, 4.5]
    assert made_curve("loss", []).at(Axis.STEP, 5) is None


RUN: Extent = (0.0, 1000.0)
EXTENTS = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(lambda pair: (pair[0], pair[0] + pair[1]))
SHARES = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)


def window_in(extent: Extent, mode: Mode, shares: list[float]) -> Window:
    left, right = (extent[0] + share * (extent[1] - extent[0]) for share in shares)
    return Window(mode, left, right)


def span_inside(window: Window, extent: Extent) -> float:
    """The width of a window, which lies inside the run."""
    left, right = window.resolved(extent)
    slack = 1e-9 * max(map(abs, extent))
    assert extent[0] - slack <= left <= right <= extent[1] + slack
    return right - left


@given(
    extent=EXTENTS,
    mode=st.sampled_from(Mode),
    shares=SHARES,
    factor=st.floats(0.05, 20),
    at=st.none() | st.floats(0, 1),
    share=st.floats(-3, 3),
)
def test_zooming_and_panning_stay_inside_the_run(
    extent: Extent, mode: Mode, shares: list[float], factor: float, at: float | None, share: float
) -> None:
    window = window_in(extent, mode, shares)
    span_inside(window.zoomed(extent, factor, None if at is None else extent[0] + at * (extent[1] - extent[0])), extent)
    slack = 1e-9 * max(map(abs, extent))
    assert span_inside(window.panned(extent, share), extent) == pytest.approx(span_inside(window, extent), abs=slack)


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


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # Zooming by key keeps following the newest samples, or the middle of another part.
        (Window().zoomed(RUN, 4), Window(Mode.FOLLOW, 750, 1000)),
        (Window(Mode.FOLLOW, 750, 1000).zoomed(RUN, 0.25), Window()),
        (Window(Mode.FIXED, 200, 400).zoomed(RUN, 2), Window(Mode.FIXED, 250, 350)),
        (Window(Mode.FIXED, 0, 100).zoomed(RUN, 0.5, at=50), Window(Mode.FIXED, 0, 200)),
        # Panning to the end follows, back lets go, and there is nothing to pan to while everything is shown.
        (Window(Mode.FIXED, 800, 900).panned(RUN, 1.5), Window(Mode.FOLLOW, 900, 1000)),
        (Window(Mode.FIXED, 850, 950).panned(RUN, 0.5), Window(Mode.FOLLOW, 900, 1000)),
        (Window(Mode.FOLLOW, 900, 1000).panned(RUN, -0.5), Window(Mode.FIXED, 850, 950)),
        (Window().panned(RUN, -0.5), Window()),
        (Window.newest(RUN, 0.1), Window(Mode.FOLLOW, 900, 1000)),
        (Window.newest((0.0, 1.0), 0.5), Window(Mode.FOLLOW, 0.5, 1.0)),
        (Window.newest(RUN, 1), Window()),
        (Window.newest((5.0, 5.0), 0.1), Window()),
        (Window().on_axis([LOSS], Axis.STEP, Axis.TIME), Window()),
        (Window(Mode.FIXED, 1, 2).on_axis([], Axis.STEP, Axis.TIME), Window()),
    ],
)
def test_zooming_and_panning_change_the_window(found: Window, expected: Window) -> None:
    assert found == expected


def test_a_window_that_follows_moves_with_the_run_and_a_young_run_fills_it() -> None:
    assert Window(Mode.FOLLOW, 750, 1000).resolved((0, 2000)) == (1750, 2000)
    assert Window(Mode.FOLLOW, 0, 500).resolved((0, 100)) == (0, 100)


@given(shares=SHARES)
def test_the_same_samples_are_shown_on_another_axis(shares: list[float]) -> None:
    step = np.arange(1.0, 1001)
    curves = [Curve("loss", step, step / 10, step**1.5, step, is_validation=False)]
    first, last = (1 + int(share * 999) for share in shares)
    assume(last > first)
    window = Window(Mode.FIXED, first, last)
    there = window.on_axis(curves, Axis.STEP, Axis.TIME)
    assert (there.left, there.right) == pytest.approx((first**1.5, last**1.5))
    assert there.on_axis(curves, Axis.TIME, Axis.STEP) == window


def smoothed(series: Series, axis: Axis = Axis.STEP) -> FloatArray:
    line = series.smooth(axis)
    assert line is not None
    return line.y


def test_growing_in_parts_draws_what_the_whole_would() -> None:
    values = np.random.default_rng(2).normal(size=5_000).tolist()
    whole, grown = Series(made_curve("loss", values)), Series(made_curve("loss", []))
    whole.update(made_curve("loss", values), 0.9)
    for end in (0, 1, 700, 701, 5_000):
        grown.update(made_curve("loss", values[:end]), 0.9)
    for axis in Axis:
        np.testing.assert_array_equal(whole.raw_line(axis).x, grown.raw_line(axis).x)
        np.testing.assert_allclose(smoothed(whole, axis), smoothed(grown, axis), atol=1e-9)
    whole.update(made_curve("loss", values), 0.8)  # another smoothing starts over with the whole curve
    np.testing.assert_allclose(smoothed(whole), naive(values, 0.8), atol=1e-9)


@pytest.mark.parametrize(("name", "best"), [("loss", []), ("val_loss", [1.0])])
def test_every_curve_is_smoothed_and_its_best_sample_is_as_measured(name: str, best: list[float]) -> None:
    series = Series(made_curve(name, [3.0, 1.0, 2.0]))
    series.update(series.curve, 0.5)
    np.testing.assert_allclose(smoothed(series), [3.0, 5 / 3, 13 / 7])
    found = series.best_line(Axis.STEP)
    assert (found.x.tolist(), found.y.tolist()) == ([2.0 for _ in best], best)
    series.update(series.curve, 0.0)
    assert series.smooth(Axis.STEP) is None


def test_nan_has_a_place_but_no_value() -> None:
    series = Series(made_curve("loss", [3.0, math.nan, 1.0, math.inf]))
    assert series.raw_line(Axis.TIME).x.tolist() == [2.0, 6.0]
    parts = ((0.0, 9.0), (4.0, 7.0), (5.0, 8.0))
    assert [series.lost(Axis.TIME, part).tolist() for part in parts] == [[1, 3], [1], [3]]
    assert Series(made_curve("loss", [1.0])).lost(Axis.STEP, (0.0, 9.0)).tolist() == []
    assert series.latest == math.inf


@pytest.mark.parametrize(
    ("curve", "best"),
    [
        (made_curve("val_accuracy", [0.5, 0.9, math.nan, 0.9, 0.9]), 3),  # of equal ones that with the lowest loss
        (replace(made_curve("val_x", [0.5, 0.9, 0.9]), metric=Metric("x", lower_is_better=True)), 0),
        (made_curve("accuracy", [0.5, 0.9]), None),
        (made_curve("val_loss", []), None),
        (made_curve("val_loss", [math.nan]), None),
    ],
)
def test_only_a_validation_curve_has_a_best_sample(curve: Curve, best: int | None) -> None:
    losses = np.array([0.1, 0.4, 0.0, 0.3, math.nan])[: len(curve.value)]
    assert Series(replace(curve, losses=losses)).best == best


def test_few_samples_of_a_long_curve_hold_its_extremes() -> None:
    values = np.random.default_rng(3).normal(size=100_001)
    values[[7, 70_000]], values[500:900] = (50.0, -50.0), np.nan
    series = Series(made_curve("loss", values))
    line = series.raw_line(Axis.STEP)
    assert len(line.x) <= 1030
    assert {50.0, -50.0, values[0], values[-1]} <= set(line.y.tolist())
    assert (np.diff(line.x) > 0).all()
    np.testing.assert_array_equal(values[line.x.astype(int) - 1], line.y)
    assert (series.highest, series.lowest, series.nonfinite_count) == (50.0, -50.0, 400)
    for count, found in ((1024, 1024), (1025, 513), (1027, 514)):  # two samples of every two or four, and both ends
        for sign in (1.0, -1.0):
            assert len(Series(made_curve("loss", (sign * np.arange(count)).tolist())).raw_line(Axis.STEP).x) == found


@pytest.mark.parametrize(
    ("ends", "inside"),
    [
        *(((2, 5), (2, 6)), ((2.5, 4.5), (3, 5)), ((-3, 1), (0, 2)), ((9, 99), (9, 10))),
        *(((-9, -5), (0, 0)), ((20, 30), (10, 10))),
    ],
)
def test_a_part_of_a_line_has_the_samples_in_it_and_some_around(
    ends: tuple[float, float], inside: tuple[int, int]
) -> None:
    line = Line(np.arange(10.0), np.arange(10.0) / 2)
    for around in (0, 1, 3):
        part = line.part(ends, around)
        assert part.x.tolist() == list(range(max(inside[0] - around, 0), min(inside[1] + around, 10)))
        assert (part.y == part.x / 2).all()


@pytest.mark.parametrize(
    ("values", "continues"),
    [([3.0, 2.0, 1.0, math.nan, 0.5], True), ([3.0, 2.0], False), ([3.0, 2.0, 1.5, 1.2, 1.1], False)],
)
def test_a_run_that_went_back_to_a_checkpoint_is_another_curve(values: list[float], continues: bool) -> None:
    series, later = Series(made_curve("loss", [3.0, 2.0, 1.0, math.nan])), made_curve("loss", values)
    assert series.continues_in(later) is continues
    assert not series.continues_in(replace(later, elapsed_s=later.elapsed_s + 1))
    assert not Series(made_curve("loss", [3.0])).continues_in(made_curve("loss", [2.0, 1.0]))
    assert (Series.grown(series, later) is series) is continues
    assert Series.grown(None, later).count == len(values)


def naive(values: list[float], weight: float) -> list[float]:
    mean, n, smoothed = 0.0, 0, []
    for value in values:
        if not math.isfinite(value):
            smoothed.append(math.nan)
            continue
        n += 1
        mean = weight * mean + (1 - weight) * value
        smoothed.append(mean / (1 - weight**n) if weight else value)
    return smoothed


SAMPLES = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf]))


@given(
    values=st.lists(SAMPLES, max_size=400), weight=st.floats(0.0, 0.999), cuts=st.lists(st.integers(0, 400), max_size=6)
)
def test_an_average_equals_the_definition_however_it_is_chunked(
    values: list[float], weight: float, cuts: list[int]
) -> None:
    ema = DebiasedEma(weight)
    for chunk in np.split(np.array(values, dtype=np.float64), sorted(min(c, len(values)) for c in cuts)):
        ema.extend(chunk)
    size = max((abs(v) for v in values if math.isfinite(v)), default=1.0)
    np.testing.assert_allclose(ema.values, naive(values, weight), rtol=0, atol=1e-9 * max(size, 1.0))


def test_long_input_is_averaged_in_blocks_to_the_same_result() -> None:
    values, ema = np.random.default_rng(0).normal(1.0, 0.3, 10_000), DebiasedEma(0.97)
    ema.extend(values)
    np.testing.assert_allclose(ema.values, naive(values.tolist(), 0.97), rtol=0, atol=1e-9)
