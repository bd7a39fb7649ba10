from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.tui.charts.reduction import ExtremaReducer

if TYPE_CHECKING:
    from tpu_console.tui.charts.curve import FloatArray

# Few different values, so that ties between equal samples are common.
SAMPLES = st.one_of(st.integers(-5, 5).map(float), st.sampled_from([math.nan, math.inf, -math.inf]))
SERIES = st.lists(SAMPLES, max_size=300).map(lambda ys: np.array(ys, dtype=np.float64))
LIMITS = st.integers(3, 40)


def reduced(ys: FloatArray, max_points: int) -> ExtremaReducer:
    reducer = ExtremaReducer(max_points)
    reducer.extend(ys)
    return reducer


@given(ys=SERIES, max_points=LIMITS, cuts=st.lists(st.integers(0, 300), max_size=8))
def test_the_choice_does_not_depend_on_the_chunks(ys: FloatArray, max_points: int, cuts: list[int]) -> None:
    whole = reduced(ys, max_points)
    chunked = ExtremaReducer(max_points)
    for chunk in np.split(ys, sorted(min(c, len(ys)) for c in cuts)):
        chunked.extend(chunk)
    np.testing.assert_array_equal(whole.indices, chunked.indices)
    np.testing.assert_array_equal(whole.nan_indices, chunked.nan_indices)
    assert (whole.minimum, whole.maximum) == (chunked.minimum, chunked.maximum)
    assert whole.nonfinite_count == chunked.nonfinite_count


@given(ys=SERIES, max_points=LIMITS)
def test_ends_and_extremes_are_drawn_and_nothing_that_is_not_finite(ys: FloatArray, max_points: int) -> None:
    reducer = reduced(ys, max_points)
    indices = reducer.indices
    finite = np.flatnonzero(np.isfinite(ys))
    assert len(indices) <= max_points + 1
    assert (np.diff(indices) > 0).all()
    if len(finite) == 0:
        assert len(indices) == 0
        return
    assert np.isfinite(ys[indices]).all()
    assert (indices[0], indices[-1]) == (finite[0], finite[-1])
    assert ys[indices].min() == ys[finite].min() == reducer.minimum
    assert ys[indices].max() == ys[finite].max() == reducer.maximum


@given(ys=SERIES, max_points=LIMITS)
def test_every_bucket_keeps_its_own_extremes(ys: FloatArray, max_points: int) -> None:
    reducer = reduced(ys, max_points)
    chosen = set(reducer.indices.tolist())
    size = reducer.bucket_size
    assert size & (size - 1) == 0
    for start in range(0, len(ys), size):
        bucket = ys[start : start + size]
        if np.isfinite(bucket).any():
            lowest = int(np.where(np.isfinite(bucket), bucket, np.inf).argmin())
            highest = int(np.where(np.isfinite(bucket), bucket, -np.inf).argmax())
            assert {start + lowest, start + highest} <= chosen


@given(ys=SERIES, max_points=LIMITS)
def test_every_bucket_with_a_nan_is_marked_once(ys: FloatArray, max_points: int) -> None:
    reducer = reduced(ys, max_points)
    lost = np.flatnonzero(~np.isfinite(ys))
    _, first = np.unique(lost // reducer.bucket_size, return_index=True)
    np.testing.assert_array_equal(reducer.nan_indices, lost[first])
    assert reducer.nonfinite_count == len(lost)


@given(at=st.integers(0, 9_999), height=st.sampled_from([9.0, -9.0]))
def test_a_single_spike_is_never_hidden(at: int, height: float) -> None:
    ys = np.zeros(10_000)
    ys[at] = height
    assert at in reduced(ys, 64).indices


def test_the_past_stays_as_drawn_until_the_buckets_double() -> None:
    ys = np.random.default_rng(1).normal(size=1_000)
    reducer = reduced(ys[:600], 101)
    size = reducer.bucket_size
    settled = 600 // size * size
    before = reducer.indices[reducer.indices < settled]
    reducer.extend(ys[600:800])
    assert reducer.bucket_size == size
    np.testing.assert_array_equal(reducer.indices[reducer.indices < settled], before)


def test_refuses_a_limit_without_room_for_one_bucket() -> None:
    with pytest.raises(ValueError, match="max_points"):
        ExtremaReducer(2)
