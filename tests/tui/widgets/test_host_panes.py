import numpy as np
import pytest

from tests.helpers import replace
from tests.tui.made_runs import made_curve
from tpu_console.tui.charts.curve import Axis, Series
from tpu_console.tui.widgets.host_panes import axis_row, cells_of, spark_rows

GAP, NAN = None, float("nan")


@pytest.mark.parametrize(
    ("seconds", "values", "ends", "drawn"),
    [
        ([0, 1, 2, 3], [1, 90, 2, 3], (0, 4), [90, 3]),  # a cell shows its highest sample
        ([0, 1, 2], [5, 6, 7], (0, 2), [5, 5, 5, 6, 6, 6, 7]),  # a sample holds until the next one
        ([0, 1, 2, 3, 4], [9, 1, 2, 3, 8], (1, 3), [1, 8]),  # earlier ones are left out, later ones in the last cell
        ([0, 1], [NAN, NAN], (0, 1), [GAP] * 3),
        ([0, 1, 2, 3, 60, 61], [5, 5, 5, 5, 7, 7], (0, 62), [5, 5, *[GAP] * 25, 7, GAP, GAP, GAP]),
    ],
)
def test_cells_show_what_was_measured(
    seconds: list[float], values: list[float], ends: tuple[float, float], drawn: list[float | None]
) -> None:
    curve = replace(made_curve("cpu", values), elapsed_s=np.array(seconds))
    cells = cells_of(Series(curve), Axis.TIME, *ends, len(drawn))
    assert [None if np.isnan(value) else value for value in cells] == drawn


@pytest.mark.parametrize("axis", Axis)
def test_all_axes_place_samples_alike(axis: Axis) -> None:
    curve = made_curve("cpu", [1, 2, 3, 4], [0, 1, 2, 3])
    assert cells_of(Series(curve), axis, 0, axis.of(4, 0.04, 8), 4).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(("last", "is_held"), [(60, True), (66, False)])
def test_samples_far_apart_hold_for_three_of_their_gaps(*, last: float, is_held: bool) -> None:
    cells = cells_of(Series(made_curve("cpu", [1] * 5, [0, 10, 20, 30, last])), Axis.STEP, 0, last, 40)
    assert not np.isnan(cells[:5]).any()
    assert bool(np.isnan(cells).any()) is not is_held


def test_bars_in_one_row_and_in_several() -> None:
    cells = np.array([0.0, 50.0, 100.0, NAN])
    assert spark_rows(cells, 100, 1) == ["▁▄█ "]
    assert spark_rows(cells, 100, 2) == ["  █ ", "▁██ "]


def test_labels_stand_where_their_values_are() -> None:
    row = axis_row(Axis.STEP, 0, 900, 45)
    assert len(row) <= 45
    for label in ("200", "400", "600", "800"):
        assert row.index(label) == round(int(label) / 200 * row.index("200"))
    assert axis_row(Axis.STEP, 3, 3, 50).split()[0] == "3"
