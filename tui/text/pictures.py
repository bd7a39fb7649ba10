"""Draws small pictures as terminal characters: two pixels per cell in colour, or one in shades of grey.

The upper half block ``▀`` shows one pixel in its foreground and the one below in its background.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from rich.cells import set_cell_size

from .cells import clipped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpu_console.engine.runs.class_report import Picture

Pixel = tuple[int, int, int]
"""Red, green and blue, from 0 to 255."""

_GAP = 2
_SHADES = " .:-=+*#%@"  # from black to white on a dark background
_RESET = "\x1b[0m"
_CUBE = (0, 95, 135, 175, 215, 255)  # the levels of xterm's 6×6×6 colour cube


class Depth(StrEnum):
    """How many colours a terminal shows."""

    TRUE = "24 bit"
    INDEXED = "256 colours"
    GREY = "shades in ASCII"


def depth_of(environment: Mapping[str, str], *, is_terminal: bool, is_utf8: bool) -> Depth:
    """Return how many colours pictures can be drawn with; `NO_COLOR` is honoured (https://no-color.org).

    Half blocks need an output in UTF-8.
    """
    term = environment.get("TERM", "")
    if not is_terminal or not is_utf8 or environment.get("NO_COLOR") or term in {"", "dumb"}:
        return Depth.GREY
    has_true = environment.get("COLORTERM", "").lower() in {"truecolor", "24bit"} or term.endswith("-direct")
    return Depth.TRUE if has_true else Depth.INDEXED


def gallery(pictures: Sequence[Picture], width: int, depth: Depth, rows: int = 2) -> list[str]:
    """Draw pictures side by side, each above its caption; those that do not fit into the rows are dropped."""
    side = min(28 if width >= 120 else 16, width)  # in cells, and in pixels, because a cell is twice as high as wide
    each = max(1, (width + _GAP) // (side + _GAP))
    lines: list[str] = []
    for start in range(0, min(len(pictures), rows * each), each):
        shown = pictures[start : start + each]
        drawn = [_drawn(picture, side, depth) for picture in shown]
        tallest = max(len(cells) for cells in drawn)
        for number in range(tallest):
            parts = [cells[number] if number < len(cells) else " " * side for cells in drawn]
            lines.append((" " * _GAP).join(parts).rstrip(" "))
        captions = [set_cell_size(clipped(picture.caption, side), side) for picture in shown]
        lines.append((" " * _GAP).join(captions).rstrip())
    return lines


def _drawn(picture: Picture, side: int, depth: Depth) -> list[str]:
    """Draw one picture as large as fits into a square `side` cells wide; pad every line to that width."""
    scale = side / max(picture.height, picture.width)
    width = max(1, round(picture.width * scale))
    height = max(2, 2 * round(picture.height * scale / 2))
    if depth is Depth.GREY:
        return [line.ljust(side) for line in _shades(_scaled(picture, height // 2, width))]
    pixels = _scaled(picture, height, width)
    pad = " " * (side - width)
    return [_half_blocks(pixels[row], pixels[row + 1], depth) + pad for row in range(0, height, 2)]


def _scaled(picture: Picture, height: int, width: int) -> list[list[Pixel]]:
    """Scale a picture: each new pixel is the mean of the pixels it covers, or the one it lies in."""
    rows = [_span(row, picture.height, height) for row in range(height)]
    columns = [_span(column, picture.width, width) for column in range(width)]
    return [[_mean(picture, row, column) for column in columns] for row in rows]


def _span(index: int, source: int, target: int) -> range:
    start = index * source // target
    return range(start, max(start + 1, (index + 1) * source // target))


def _mean(picture: Picture, rows: range, columns: range) -> Pixel:
    starts = [3 * (row * picture.width + column) for row in rows for column in columns]
    red, green, blue = (sum(picture.rgb[start + part] for start in starts) // len(starts) for part in range(3))
    return red, green, blue


def _half_blocks(above: Sequence[Pixel], below: Sequence[Pixel], depth: Depth) -> str:
    parts: list[str] = []
    before = ""
    for upper, lower in zip(above, below, strict=True):
        code = f"\x1b[38;{_color(upper, depth)};48;{_color(lower, depth)}m"
        parts.append("▀" if code == before else f"{code}▀")
        before = code
    return "".join(parts) + _RESET


def _color(pixel: Pixel, depth: Depth) -> str:
    if depth is Depth.TRUE:
        return "2;{};{};{}".format(*pixel)
    return f"5;{_index(pixel)}"


def _index(pixel: Pixel) -> int:
    """Return the nearest of xterm's 256 colours, from its cube or its 24 greys."""
    steps = [min(range(6), key=lambda step: abs(_CUBE[step] - part)) for part in pixel]
    grey = min(max(round((sum(pixel) / 3 - 8) / 10), 0), 23)
    cube_distance = sum((_CUBE[step] - part) ** 2 for step, part in zip(steps, pixel, strict=True))
    grey_distance = sum((8 + 10 * grey - part) ** 2 for part in pixel)
    if grey_distance < cube_distance:
        return 232 + grey
    return 16 + 36 * steps[0] + 6 * steps[1] + steps[2]


def _shades(pixels: Sequence[Sequence[Pixel]]) -> list[str]:
    """Draw in shades by luminance (ITU-R BT.601), stretched to the picture's range because there are few shades."""
    light = [[299 * red + 587 * green + 114 * blue for red, green, blue in row] for row in pixels]
    least, most = min(map(min, light)), max(map(max, light))
    if least == most:
        least, most = 0, 255_000
    step = (most - least) / (len(_SHADES) - 1)
    return ["".join(_SHADES[round((value - least) / step)] for value in row) for row in light]
