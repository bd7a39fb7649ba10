from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tpu_console.tui.charts.curve import Axis
from tpu_console.tui.charts.ticks import axis_ticks, format_value, label_ticks, round_ticks, value_ticks


@given(low=st.floats(-1e9, 1e9), size=st.floats(1e-9, 1e9), most=st.integers(1, 12), log_scale=st.booleans())
def test_ticks_lie_inside_and_their_labels_differ(low: float, size: float, most: int, log_scale: bool) -> None:
    if log_scale:
        low, size = low / 1e8, size / 1e8
    high = low + size
    assume(size > 1e-5 * max(abs(low), abs(high), 1e-3))
    ticks = value_ticks(low, high, most, log_scale=log_scale)
    assert len(ticks) <= most
    margin = 1e-6 * size
    assert all(low - margin <= tick.position <= high + margin for tick in ticks)
    assert len({tick.label for tick in ticks}) == len(ticks)


@given(low=st.floats(-1e6, 1e6), size=st.floats(1e-3, 1e6), most=st.integers(3, 12))
def test_there_are_at_least_a_few_ticks(low: float, size: float, most: int) -> None:
    assert len(round_ticks(low, low + size, most)) >= max(1, most // 3)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.0, 0.5, 1.0], ["0", "0.5", "1.0"]),
        ([0.0, 1000.0, 2000.0], ["0", "1k", "2k"]),
        ([0.0, 20_000.0], ["0", "20k"]),
        ([500_000.0, 1_000_000.0], ["0.5M", "1.0M"]),
        ([0.0, 2e-5, 4e-5], ["0", "2e-5", "4e-5"]),
        ([0.0], ["0"]),
        ([], []),
    ],
)
def test_labels_share_one_unit(values: list[float], labels: list[str]) -> None:
    assert label_ticks(values) == labels


@pytest.mark.parametrize(("high_s", "label"), [(90.0, "50s"), (1800.0, "10min"), (36_000.0, "5h"), (864_000.0, "5d")])
def test_time_is_written_in_a_unit_people_use(high_s: float, label: str) -> None:
    assert label in [tick.label for tick in axis_ticks(0.0, high_s, 4, Axis.TIME)]


def test_time_ticks_stand_where_their_label_says() -> None:
    positions = {tick.label: tick.position for tick in axis_ticks(0.0, 1800.0, 4, Axis.TIME)}
    assert positions["10min"] == 600.0


def test_steps_are_written_in_thousands() -> None:
    assert [tick.label for tick in axis_ticks(0.0, 20_000.0, 4, Axis.STEP)] == ["0", "10k", "20k"]


def test_there_is_no_half_a_step() -> None:
    assert [tick.label for tick in axis_ticks(1.0, 3.0, 8, Axis.STEP)] == ["1", "2", "3"]
    assert [tick.label for tick in axis_ticks(0.0, 1.0, 2, Axis.EPOCH)] == ["0", "1"]
    assert "0.5" in [tick.label for tick in axis_ticks(0.0, 1.0, 3, Axis.EPOCH)]


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.001, 100.0, ["0.001", "0.01", "0.1", "1", "10", "100"]),
        (1e-6, 1e-4, ["1e-6", "1e-5", "1e-4"]),
        (0.4, 3.0, ["0.5", "1.0", "2.0"]),
        (0.6, 0.7, ["0.60", "0.62", "0.70"]),
    ],
)
def test_a_log_axis_is_labelled_over_any_range(low: float, high: float, labels: list[str]) -> None:
    ticks = value_ticks(math.log10(low), math.log10(high), 6, log_scale=True)
    assert set(labels) <= {tick.label for tick in ticks}


@pytest.mark.parametrize("decades", range(3, 12))
@pytest.mark.parametrize("most", range(3, 9))
def test_a_log_axis_has_three_labels_or_more(decades: int, most: int) -> None:
    ticks = value_ticks(-3.3, -3.3 + decades, most, log_scale=True)
    assert 3 <= len(ticks) <= most


@given(low=st.floats(-1e6, 1e6), size=st.floats(1e-3, 1e6), most=st.integers(4, 12))
def test_a_linear_axis_has_three_labels_or_more(low: float, size: float, most: int) -> None:
    assume(size > 1e-4 * abs(low))
    assert 3 <= len(value_ticks(low, low + size, most, log_scale=False)) <= most


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.12, "0.1200"),
        (12.0, "12.00"),
        (1234.0, "1234"),
        (123_456.0, "1.23e5"),
        (1.5e-7, "1.50e-7"),
        (0.0, "0"),
        (-0.5, "-0.5000"),
        (math.nan, "NaN"),
        (-math.inf, "-inf"),
    ],
)
def test_values_have_four_significant_digits(value: float, text: str) -> None:
    assert format_value(value) == text
