from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import replace
from tpu_console.engine.runs.metrics import Metric
from tpu_console.tui.charts.curve import Axis, Curve, DebiasedEma, FloatArray, Line, Series

LOSS = Metric("loss", lower_is_better=True)


def curve(values: list[float], *, is_validation: bool = False) -> Curve:
    n = np.arange(len(values), dtype=np.float64)
    return Curve("loss", n, n / 10, n * 2, np.array(values, dtype=np.float64), is_validation)


def smoothed(series: Series, axis: Axis = Axis.STEP) -> FloatArray:
    line = series.smooth(axis)
    assert line is not None
    return line.y


def test_growing_in_parts_draws_what_the_whole_would() -> None:
    values = np.random.default_rng(2).normal(size=5_000).tolist()
    whole, grown = Series(curve(values)), Series(curve([]))
    whole.update(curve(values), 0.9)
    for end in (0, 1, 700, 701, 5_000):
        grown.update(curve(values[:end]), 0.9)
    for axis in Axis:
        np.testing.assert_array_equal(whole.raw_line(axis).x, grown.raw_line(axis).x)
        np.testing.assert_allclose(smoothed(whole, axis), smoothed(grown, axis), atol=1e-9)


def test_another_smoothing_starts_over_with_the_whole_curve() -> None:
    values = [float(i % 7) for i in range(100)]
    series = Series(curve(values))
    series.update(curve(values), 0.5)
    series.update(curve(values), 0.8)
    ema = DebiasedEma(0.8)
    ema.extend(np.array(values))
    np.testing.assert_allclose(smoothed(series), ema.values, atol=1e-9)


@pytest.mark.parametrize("is_validation", [False, True])
def test_every_curve_is_smoothed_and_its_best_sample_is_as_measured(*, is_validation: bool) -> None:
    values = [3.0, 1.0, 2.0]
    series = Series(replace(curve(values, is_validation=is_validation), metric=LOSS))
    series.update(series.curve, 0.5)
    np.testing.assert_allclose(smoothed(series), [3.0, 5 / 3, 13 / 7])
    best = series.best_line(Axis.STEP)
    assert (best.x.tolist(), best.y.tolist()) == (([1.0], [1.0]) if is_validation else ([], []))
    series.update(series.curve, 0.0)
    assert series.smooth(Axis.STEP) is None


def test_nan_has_a_place_but_no_value() -> None:
    values = [3.0, math.nan, 1.0, math.inf]
    series = Series(curve(values))
    assert series.raw_line(Axis.TIME).x.tolist() == [0.0, 4.0]
    assert series.lost(Axis.TIME, (0.0, 9.0)).tolist() == [1, 3]
    assert series.lost(Axis.TIME, (2.0, 5.0)).tolist() == [1]
    assert series.lost(Axis.TIME, (3.0, 6.0)).tolist() == [3]
    assert Series(curve([1.0])).lost(Axis.STEP, (0.0, 9.0)).tolist() == []
    assert series.latest == math.inf


def test_the_best_sample_of_equal_ones_has_the_lowest_loss() -> None:
    values = [0.5, 0.9, math.nan, 0.9, 0.9]
    held_out = replace(curve(values, is_validation=True), losses=np.array([0.1, 0.4, 0.0, 0.3, math.nan]))
    assert Series(held_out).best == 3
    assert Series(replace(held_out, metric=Metric("error", lower_is_better=True))).best == 0
    assert Series(curve(values)).best is None


@pytest.mark.parametrize("values", [[], [math.nan]])
def test_without_a_finite_sample_there_is_no_best(values: list[float]) -> None:
    series = Series(curve(values, is_validation=True))
    assert series.best is None
    assert math.isnan(series.latest)


def test_few_samples_of_a_long_curve_hold_its_extremes() -> None:
    values = np.random.default_rng(3).normal(size=100_001)
    values[[7, 70_000]], values[500:900] = (50.0, -50.0), np.nan
    series = Series(curve(values.tolist()))
    line = series.raw_line(Axis.STEP)
    assert len(line.x) <= 1030
    assert {50.0, -50.0, values[0], values[-1]} <= set(line.y.tolist())
    assert (np.diff(line.x) > 0).all()
    np.testing.assert_array_equal(values[line.x.astype(int)], line.y)
    assert (series.highest, series.lowest, series.nonfinite_count) == (50.0, -50.0, 400)
    for count, found in ((1024, 1024), (1025, 513), (1027, 514)):  # two samples of every two or four, and both ends
        for sign in (1.0, -1.0):
            assert len(Series(curve((sign * np.arange(count)).tolist())).raw_line(Axis.STEP).x) == found


@pytest.mark.parametrize(
    ("ends", "inside"), [((2, 5), (2, 6)), ((2.5, 4.5), (3, 5)), ((-3, 1), (0, 2)), ((9, 99), (9, 10))]
)
def test_a_part_of_a_line_has_the_samples_in_it_and_some_around(
    ends: tuple[float, float], inside: tuple[int, int]
) -> None:
    line = Line(np.arange(10.0), np.arange(10.0) / 2)
    for around in (0, 1, 3):
        part = line.part(ends, around)
        assert part.x.tolist() == list(range(max(inside[0] - around, 0), min(inside[1] + around, 10)))
        assert (part.y == part.x / 2).all()


def test_a_run_that_went_back_to_a_checkpoint_is_another_curve() -> None:
    before = curve([3.0, 2.0, 1.0, math.nan])
    series = Series(before)
    assert series.continues_in(curve([3.0, 2.0, 1.0, math.nan, 0.5]))
    assert not series.continues_in(curve([3.0, 2.0]))
    assert not Series(curve([3.0])).continues_in(curve([2.0, 1.0]))
    repeated = curve([3.0, 2.0, 1.5, 1.2, 1.1])
    assert not series.continues_in(repeated)
    later = replace(curve([3.0, 2.0, 1.0, math.nan, 0.5]), elapsed_s=repeated.elapsed_s + 1)
    assert not series.continues_in(later)


SAMPLES = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, -math.inf]))


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


@given(
    values=st.lists(SAMPLES, max_size=400), weight=st.floats(0.0, 0.999), cuts=st.lists(st.integers(0, 400), max_size=6)
)
def test_equals_the_definition_however_it_is_chunked(values: list[float], weight: float, cuts: list[int]) -> None:
    ema = DebiasedEma(weight)
    for chunk in np.split(np.array(values, dtype=np.float64), sorted(min(c, len(values)) for c in cuts)):
        ema.extend(chunk)
    size = max((abs(v) for v in values if math.isfinite(v)), default=1.0)
    np.testing.assert_allclose(ema.values, naive(values, weight), rtol=0, atol=1e-9 * max(size, 1.0))


def test_long_input_is_averaged_in_blocks_to_the_same_result() -> None:
    values = np.random.default_rng(0).normal(1.0, 0.3, 10_000)
    ema = DebiasedEma(0.97)
    ema.extend(values)
    np.testing.assert_allclose(ema.values, naive(values.tolist(), 0.97), rtol=0, atol=1e-9)
