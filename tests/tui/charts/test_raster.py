from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.tui.charts.scene import draw_line, glyphs_of

if TYPE_CHECKING:
    from tpu_console.tui.charts.legend import Marker

POINTS = st.lists(st.tuples(st.integers(0, 29), st.integers(0, 19)), min_size=1, max_size=60)


@given(points=POINTS)
def test_a_line_passes_its_points_and_has_no_gap(points: list[tuple[int, int]]) -> None:
    xs, ys = (np.array(part, dtype=np.int64) for part in zip(*points, strict=True))
    dots = draw_line(xs, ys, 30, 20)
    assert dots[ys, xs].all()
    # Everything set can be reached from the first point in steps of one dot.
    reached = {points[0]}
    border = [points[0]]
    lit = {(int(x), int(y)) for y, x in zip(*np.nonzero(dots), strict=True)}
    while border:
        x, y = border.pop()
        around = {(x + i, y + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & lit - reached
        reached |= around
        border.extend(around)
    assert reached == lit


@given(points=POINTS)
def test_a_line_stays_between_its_lowest_and_highest_point(points: list[tuple[int, int]]) -> None:
    xs, ys = (np.array(part, dtype=np.int64) for part in zip(*points, strict=True))
    rows, columns = np.nonzero(draw_line(xs, ys, 30, 20))
    assert (rows.min(), rows.max()) == (ys.min(), ys.max())
    assert (columns.min(), columns.max()) == (xs.min(), xs.max())


def test_no_points_are_no_dots() -> None:
    none = np.array([], dtype=np.int64)
    assert not draw_line(none, none, 4, 4).any()


@pytest.mark.parametrize(
    ("marker", "shape", "corner", "glyph"),
    [
        ("braille", (4, 2), (0, 0), "⡀"),
        ("braille", (4, 2), (3, 1), "⠈"),
        ("block", (2, 2), (0, 0), "▖"),
        ("block", (2, 2), (1, 1), "▝"),
        ("ascii", (1, 1), (0, 0), "*"),
    ],
)
def test_a_dot_lands_in_its_corner_of_the_glyph(
    marker: Marker, shape: tuple[int, int], corner: tuple[int, int], glyph: str
) -> None:
    dots = np.zeros(shape, dtype=np.bool_)
    dots[corner] = True
    assert glyphs_of(dots, marker, "*") == {(0, 0): glyph}


def test_cells_are_counted_from_the_bottom_left() -> None:
    dots = np.zeros((8, 6), dtype=np.bool_)
    dots[7, 5] = True
    assert [*glyphs_of(dots, "braille", "*")] == [(2, 1)]
