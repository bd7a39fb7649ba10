from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.engine.runs.metrics import metric_called
from tpu_console.tui.charts.y_range import full_range, robust_range

if TYPE_CHECKING:
    from tpu_console.tui.charts.curve import FloatArray

NOTHING = np.empty(0)
FALLING = np.linspace(2.0, 1.0, 200)
VALUES = st.lists(st.floats(-1e6, 1e6), max_size=200).map(np.array)


@pytest.mark.parametrize(("spike", "seen"), [(60.0, (1.0, 2.0)), (2.8, (1.0, 2.8)), (-9.0, (1.0, 2.0))])
def test_one_spike_does_not_change_the_range_but_a_steep_beginning_is_seen(
    spike: float, seen: tuple[float, float]
) -> None:
    spiked = np.concatenate(([spike], FALLING))
    assert robust_range([spiked], [spiked], ()) == seen


@pytest.mark.parametrize(("spike", "is_seen"), [(3.0, True), (3.01, False), (0.0, True), (-0.01, False)])
def test_a_spike_that_is_no_sample_is_seen_if_it_at_most_doubles_the_range(spike: float, is_seen: bool) -> None:
    low, high = robust_range([FALLING], [np.append(FALLING, spike)], ()) or (0, 0)
    assert (low <= spike <= high) is is_seen


@pytest.mark.parametrize(("far", "is_seen"), [(225.0, True), (226.0, False), (-125.0, True), (-126.0, False)])
def test_what_is_three_boxes_away_from_the_box_is_seen_as_the_rest(far: float, is_seen: bool) -> None:
    samples = np.append(np.arange(100.0) + (far < 0), far)  # quartiles at 25 and 75
    low, high = robust_range([samples], [samples], ()) or (0, 0)
    assert (low <= far <= high) is is_seen


@given(samples=VALUES, kept=VALUES.filter(len))
def test_validation_and_the_newest_value_are_always_seen(samples: FloatArray, kept: FloatArray) -> None:
    low, high = robust_range([samples], [samples], [kept]) or (1, 0)
    assert low <= kept.min()
    assert high >= kept.max()


@given(samples=VALUES.filter(lambda values: len(values) > 3))
def test_most_samples_are_seen(samples: FloatArray) -> None:
    low, high = robust_range([samples], [samples], ()) or (1, 0)
    assert np.count_nonzero((samples >= low) & (samples <= high)) >= len(samples) - 2 * max(int(0.15 * len(samples)), 1)


def test_the_first_steep_tenth_of_a_loss_does_not_flatten_the_rest() -> None:
    loss = np.concatenate((np.geomspace(100.0, 1.0, 20), np.linspace(1.0, 0.4, 180)))
    low, high = robust_range([loss], [loss], ()) or (0, 0)
    assert high < 5.0
    assert low == 0.4


def test_the_steps_of_a_rate_that_is_constant_in_between_are_seen() -> None:
    rate = np.concatenate((np.full(20, 0.1), np.full(160, 0.01), np.full(20, 0.001)))
    assert robust_range([rate], [rate], ()) == (0.001, 0.1)
    spiked = np.append(np.full(199, 0.01), 5.0)
    assert robust_range([spiked], [spiked], ()) == (0.01, 0.01)


def test_without_values_there_is_no_range() -> None:
    assert robust_range([NOTHING], [NOTHING], ()) is None
    assert full_range([NOTHING]) is None
    assert full_range([NOTHING, FALLING]) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("name", "fits"), [("val_loss", True), ("learning_rate", True), ("accuracy", False), ("auc", False)]
)
def test_losses_and_rates_fit_a_logarithmic_scale(name: str, fits: bool) -> None:
    assert metric_called(name).fits_log_scale is fits
