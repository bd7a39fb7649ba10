"""Pictures and bars as a terminal shows them."""

import re
from typing import Any

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tpu_console.engine.runs.class_report import Picture
from tpu_console.tui.text.pictures import Depth, depth_of, gallery
from tpu_console.tui.text.tables import Bar, bar_chart


def halves(height: int = 16, width: int = 16) -> Picture:
    """A picture whose upper half is red and whose lower half is blue."""
    red, blue = bytes((255, 0, 0)) * width, bytes((0, 0, 255)) * width
    return Picture("halves", height, width, red * (height // 2) + blue * (height - height // 2))


def shown(lines: list[str], columns: int = 80) -> Any:
    screen = pyte.Screen(columns, max(24, len(lines) + 1))
    pyte.Stream(screen).feed("\r\n".join(lines))
    return screen


@pytest.mark.parametrize(
    ("environment", "is_terminal", "is_utf8", "expected"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, True, True, Depth.TRUE),
        ({"TERM": "xterm-direct"}, True, True, Depth.TRUE),
        ({"TERM": "xterm-256color"}, True, True, Depth.INDEXED),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": "1"}, True, True, Depth.GREY),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, False, True, Depth.GREY),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, True, False, Depth.GREY),
        ({}, True, True, Depth.GREY),
    ],
)
def test_colors_are_used_if_the_terminal_has_them(
    environment: dict[str, str], is_terminal: bool, is_utf8: bool, expected: Depth
) -> None:
    assert depth_of(environment, is_terminal=is_terminal, is_utf8=is_utf8) is expected


@pytest.mark.parametrize("depth", [Depth.TRUE, Depth.INDEXED])
def test_each_cell_shows_two_pixels_in_their_colors(depth: Depth) -> None:
    screen = shown(gallery([halves()], 80, depth))
    cells = [[screen.buffer[row][column] for column in range(16)] for row in range(8)]
    assert {cell.data for row in cells for cell in row} == {"▀"}
    assert {(cell.fg, cell.bg) for row in cells[:4] for cell in row} == {("ff0000", "ff0000")}
    assert {(cell.fg, cell.bg) for row in cells[4:] for cell in row} == {("0000ff", "0000ff")}
    assert screen.buffer[0][16].bg == "default"
    assert screen.display[8].startswith("halves")


def test_without_color_light_and_dark_are_ascii_characters() -> None:
    rows = bytes((255, 255, 255)) * 8 * 4 + bytes(3) * 8 * 4
    assert gallery([Picture("x", 8, 8, rows)], 80, Depth.GREY) == ["@" * 16] * 4 + [""] * 4 + ["x"]
    lines = {level: gallery([Picture("", 4, 4, bytes([level]) * 48)], 16, Depth.GREY)[0] for level in (0, 128, 255)}
    assert lines == {0: "", 128: "+" * 16, 255: "@" * 16}


@pytest.mark.parametrize(("height", "width"), [(100, 50), (1, 48), (48, 1)])
@pytest.mark.parametrize("depth", Depth)
def test_proportions_are_kept_as_far_as_cells_allow(height: int, width: int, depth: Depth) -> None:
    picture = Picture("", height, width, bytes((200, 10, 10)) * (height * width))
    screen = shown(gallery([picture], 80, depth))
    drawn = [row for row in range(20) if screen.buffer[row][0].data != " "]
    across = sum(screen.buffer[0][column].data != " " for column in range(80))
    assert across == max(1, round(16 * width / max(height, width)))
    assert abs(2 * len(drawn) - 16 * height / max(height, width)) <= 2


@pytest.mark.parametrize("width", [5, 40, 79, 220])
@pytest.mark.parametrize("depth", Depth)
def test_a_gallery_is_never_wider_than_its_width(width: int, depth: Depth) -> None:
    lines = gallery([Picture("健康な葉 of a plant", 5, 7, bytes(range(105)))] * 30, width, depth)
    assert lines
    assert all(cell_len(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= width for line in lines)


def test_bars_are_aligned_and_the_longest_fills_the_line() -> None:
    bars = [Bar("healthy", 400, ("400", "40%")), Bar("rust", 100, ("100", "10%")), Bar("none", 0, ("0", "0%"))]
    assert bar_chart(bars, ("class", "count", "share"), 36) == [
        "class    count  share",
        "healthy    400    40%  █████████████",
        "rust       100    10%  ███▎",
        "none         0     0%",
    ]
    # A label has half of the line, or less, but at least 8 cells; a bar has at least one.
    for width, label, bar in ((80, "x" * 39 + "…", "█" * 31), (30, "x" * 12 + "…", "█" * 8), (16, "xxxxxxx…", "█")):
        assert bar_chart([Bar("x" * 60, 5, ("5",))], ("", "count"), width)[1] == f"{label}      5  {bar}"
    assert bar_chart([Bar("a", 1_000_000, ("1",)), Bar("b", 1, ("1",))], ("", ""), 80)[2].endswith("▏"), "it is seen"


@given(
    labels=st.lists(st.text(st.characters(categories=["L", "N", "P", "Zs"]), max_size=60), min_size=1, max_size=8),
    values=st.lists(st.floats(0, 1e12), min_size=8, max_size=8),
    width=st.integers(40, 200),
)
def test_a_chart_is_never_wider_than_its_width(labels: list[str], values: list[float], width: int) -> None:
    bars = [Bar(label, value, ("1,000", "10.0%")) for label, value in zip(labels, values, strict=False)]
    lines = bar_chart(bars, ("class", "train", "share"), width)
    assert len(lines) == len(bars) + 1
    assert all(cell_len(line) <= width for line in lines)
