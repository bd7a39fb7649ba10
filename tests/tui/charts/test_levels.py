from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.tui.charts.levels import Extremes

if TYPE_CHECKING:
    from tpu_console.tui.charts.curve import FloatArray

# Few different values, so that ties between equal samples are common.
SAMPLES = st.one_of(st.integers(-5, 5).map(float), st.sampled_from([math.nan, math.inf, -math.inf]))
# Long enough for many blocks of 64: short lists are repeated, and shifted by a prime.
SERIES = st.tuples(st.lists(SAMPLES, max_size=150), st.integers(1, 31)).map(
    lambda parts: np.array((parts[0] + [1.0]) * parts[1], dtype=np.float64)
)
LIMITS = st.integers(2, 40)
SHARES = st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted)


def extremes_of(ys: FloatArray) -> Extremes:
    extremes = Extremes()
    extremes.update(ys)
    return extremes


def part_of(ys: FloatArray, shares: list[float]) -> tuple[int, int]:
    return int(shares[0] * len(ys)), math.ceil(shares[1] * len(ys))


@given(ys=SERIES, shares=SHARES, most=LIMITS, cuts=st.lists(st.integers(0, 4000), max_size=8))
def test_the_choice_does_not_depend_on_how_samples_came(
    ys: FloatArray, shares: list[float], most: int, cuts: list[int]
) -> None:
    whole, grown = extremes_of(ys), Extremes()
    for cut in sorted(cuts):
        grown.update(ys[:cut])
    grown.update(ys)
    first, last = part_of(ys, shares)
    for one, other in zip(whole.within(ys, first, last, most), grown.within(ys, first, last, most), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (whole.lowest, whole.highest) == (grown.lowest, grown.highest)
    assert whole.nonfinite_count == grown.nonfinite_count == np.count_nonzero(~np.isfinite(ys))


@given(ys=SERIES, shares=SHARES, most=LIMITS)
def test_a_part_keeps_its_ends_and_the_extremes_of_every_bucket(ys: FloatArray, shares: list[float], most: int) -> None:
    first, last = part_of(ys, shares)
    chosen, nan = extremes_of(ys).within(ys, first, last, most)
    part = ys[first:last]
    finite = first + np.flatnonzero(np.isfinite(part))
    assert (np.diff(chosen) > 0).all()
    assert np.isfinite(ys[chosen]).all()
    assert len(chosen) <= 2 * (most + 2) + 2
    assert set(nan) <= set(first + np.flatnonzero(~np.isfinite(part)))
    assert bool(len(nan)) == (len(finite) < len(part))
    if not len(finite):
        assert not len(chosen)
        return
    assert (chosen[0], chosen[-1]) == (finite[0], finite[-1])
    size = 1
    while (last - 1) // size - first // size >= most:
        size *= 2
    for begin in range(first // size * size, last, size):
        bucket = np.arange(max(begin, first), min(begin + size, last))
        bucket = bucket[np.isfinite(ys[bucket])]
        if len(bucket):
            kept = ys[np.intersect1d(chosen, bucket)]
            assert (kept.min(), kept.max()) == (ys[bucket].min(), ys[bucket].max())


@given(ys=SERIES)
def test_the_lowest_and_the_highest_are_the_first_of_all(ys: FloatArray) -> None:
    extremes = extremes_of(ys)
    finite = np.isfinite(ys)
    if not finite.any():
        assert (extremes.lowest, extremes.highest) == (-1, -1)
        return
    assert extremes.lowest == np.where(finite, ys, np.inf).argmin()
    assert extremes.highest == np.where(finite, ys, -np.inf).argmax()


@given(at=st.integers(0, 9_999), height=st.sampled_from([9.0, -9.0]))
def test_a_single_spike_is_never_hidden(at: int, height: float) -> None:
    ys = np.zeros(10_000)
    ys[at] = height
    assert at in extremes_of(ys).within(ys, 0, len(ys), 32)[0]


@pytest.mark.parametrize("ends", [(0, 100_000), (40_000, 60_000), (50_000, 50_300)])
def test_the_past_stays_as_drawn_while_the_buckets_do(ends: tuple[int, int]) -> None:
    ys = np.random.default_rng(1).normal(size=101_000)
    extremes = extremes_of(ys)
    first, last = ends
    before = extremes.within(ys, first, last, 300)[0]
    after = extremes.within(ys, first, last + 40, 300)[0]
    settled = last - 1024
    np.testing.assert_array_equal(before[before < settled], after[after < settled])
