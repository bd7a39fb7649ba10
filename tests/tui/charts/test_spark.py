from __future__ import annotations

import numpy as np
import pytest

from tpu_console.tui.charts.curve import Axis, Curve, FloatArray, Series
from tpu_console.tui.widgets.system_pane import axis_row, cells_of, spark_rows


def series_of(seconds: list[float], values: list[float]) -> Series:
    """One sample a second, ten steps a second."""
    x = np.array(seconds)
    return Series(Curve("cpu", 10 * x, x / 4, x, np.array(values), is_validation=False))


def drawn(cells: FloatArray) -> list[float | None]:
    return [None if np.isnan(value) else value for value in cells]


def test_a_cell_shows_its_highest_sample() -> None:
    series = series_of([0, 1, 2, 3], [1, 90, 2, 3])
    assert drawn(cells_of(series, Axis.TIME, 0, 4, 2)) == [90, 3]


@pytest.mark.parametrize(("axis", "right"), [(Axis.STEP, 40), (Axis.EPOCH, 1.0), (Axis.TIME, 4)])
def test_all_axes_place_samples_alike(axis: Axis, right: float) -> None:
    series = series_of([0, 1, 2, 3], [1, 2, 3, 4])
    assert drawn(cells_of(series, axis, 0, right, 4)) == [1, 2, 3, 4]


def test_what_was_not_measured_stays_empty() -> None:
    series = series_of([0, 1, 2, 3, 60, 61], [5, 5, 5, 5, 7, 7])
    cells = drawn(cells_of(series, Axis.TIME, 0, 62, 31))
    assert cells[:2] == [5, 5]
    assert cells[3:25] == [None] * 22
    assert 7 in cells[25:]


def test_a_sample_holds_until_the_next_where_there_are_more_cells_than_samples() -> None:
    assert drawn(cells_of(series_of([0, 1, 2], [5, 6, 7]), Axis.TIME, 0, 2, 7)) == [5, 5, 5, 6, 6, 6, 7]


@pytest.mark.parametrize(("last", "is_held"), [(60, True), (66, False)])
def test_samples_far_apart_hold_for_three_of_their_gaps(*, last: float, is_held: bool) -> None:
    cells = cells_of(series_of([0, 10, 20, 30, last], [1] * 5), Axis.TIME, 0, last, 40)
    assert not np.isnan(cells[:5]).any()
    assert bool(np.isnan(cells).any()) is not is_held


def test_samples_before_the_axis_are_left_out_and_later_ones_are_in_the_last_cell() -> None:
    series = series_of([0, 1, 2, 3, 4], [9, 1, 2, 3, 8])
    assert drawn(cells_of(series, Axis.TIME, 1, 3, 2)) == [1, 8]


def test_nothing_measured_draws_nothing() -> None:
    nan = float("nan")
    assert drawn(cells_of(series_of([0, 1], [nan, nan]), Axis.TIME, 0, 1, 3)) == [None] * 3


def test_bars_in_one_row_and_in_several() -> None:
    cells = np.array([0.0, 50.0, 100.0, np.nan])
    assert spark_rows(cells, 100, 1) == ["▁▄█ "]
    assert spark_rows(cells, 100, 2) == ["  █ ", "▁██ "]


def test_labels_stand_where_their_values_are() -> None:
    row = axis_row(Axis.STEP, 0, 900, 45)
    assert len(row) <= 45
    for label in ("200", "400", "600", "800"):
        assert row.index(label) == round(int(label) / 200 * row.index("200"))
    assert axis_row(Axis.STEP, 3, 3, 50).split()[0] == "3"
