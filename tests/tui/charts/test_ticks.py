from __future__ import annotations

import math

import pytest

from tpu_console.tui.charts.ticks import format_value, label_ticks


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
