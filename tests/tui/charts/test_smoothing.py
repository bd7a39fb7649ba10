from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.tui.charts.smoothing import DebiasedEma

SAMPLES = st.one_of(
    st.floats(-1e6, 1e6),
    st.sampled_from([math.nan, math.inf, -math.inf]),
)


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
    values=st.lists(SAMPLES, max_size=400),
    weight=st.floats(0.0, 0.999),
    cuts=st.lists(st.integers(0, 400), max_size=6),
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


def test_values_cannot_be_written_to_and_can_still_be_extended() -> None:
    ema = DebiasedEma(0.5)
    ema.extend(np.array([1.0]))
    with pytest.raises(ValueError, match="read-only"):
        ema.values[0] = 2.0
    ema.extend(np.ones(1000))
    assert len(ema.values) == 1001


@pytest.mark.parametrize("weight", [-0.1, 1.0, math.nan])
def test_refuses_a_weight_that_is_no_share_of_the_past(weight: float) -> None:
    with pytest.raises(ValueError, match="weight"):
        DebiasedEma(weight)
