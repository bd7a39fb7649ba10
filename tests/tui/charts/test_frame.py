from __future__ import annotations

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from tpu_console.tui.charts.frame import with_crosshair


@pytest.mark.parametrize(
    ("row", "is_axis", "crossed"),
    [
        ("1.0┤  ·", False, "1.0┤ ┊·"),
        ("1.0┤ ··", False, "1.0┤ ┊·"),
        ("1.0┤ ⣿·", False, "1.0┤ ⣿·"),
        ("   └─┬─", True, "   └─┴─"),
        ("   └─!─", True, "   └─!─"),
    ],
)
def test_the_crosshair_stands_where_nothing_else_does(row: str, is_axis: bool, crossed: str) -> None:
    strip = Strip([Segment(row[:5], Style(dim=True)), Segment(row[5:])])
    drawn = with_crosshair(strip, 5, is_axis=is_axis)
    assert drawn.text == crossed
    assert drawn.cell_length == len(row)
