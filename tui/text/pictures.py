"""Draws small pictures as terminal characters: two pixels per cell in color, or one in shades of grey.

The upper half block ``▀`` shows one pixel in its foreground and the one below in its background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.cells import set_cell_size
from rich.color import Color, ColorSystem

from .cells import clipped

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from tpu_console.engine.runs.class_report import Picture

    Pixels = NDArray[np.int64]
    """Rows of red, green and blue, from 0 to 255."""

_GAP = 2
_SHADES = " .:-=+*#%@"  # from black to white on a dark background
_RESET = "\x1b[0m"


class Depth(StrEnum):
    """How many colors a terminal shows."""

    TRUE = "24 bit"
    INDEXED = "256 colors"
    GREY = "shades in ASCII"


def depth_of(environment: Mapping[str, str], *, is_terminal: bool, is_utf8: bool) -> Depth:
    """Return how many colors pictures can be drawn with; `NO_COLOR` is honored, and half blocks need UTF-8."""
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
        drawn = zip_longest(*(_drawn(picture, side, depth) for picture in shown), fillvalue=" " * side)
        captions = [set_cell_size(clipped(picture.caption, side), side) for picture in shown]
        lines += [(" " * _GAP).join(row).rstrip(" ") for row in (*drawn, captions)]
    return lines


def _drawn(picture: Picture, side: int, depth: Depth) -> list[str]:
    """Draw one picture as large as fits into a square `side` cells wide; pad every line to that width."""
    scale = side / max(picture.height, picture.width)
    width = max(1, round(picture.width * scale))
    height = max(2, 2 * round(picture.height * scale / 2))
    if depth is Depth.GREY:
        # By luminance (ITU-R BT.601), stretched to the picture's range because there are few shades.
        light = _scaled(picture, height // 2, width) @ [299, 587, 114]
        least, most = int(light.min()), int(light.max())
        if least == most:
            least, most = 0, 255_000
        steps = ((light - least) * (len(_SHADES) - 1) / (most - least)).round().astype(int)
        return ["".join(_SHADES[step] for step in row).ljust(side) for row in steps]
    pixels = _scaled(picture, height, width)
    system = ColorSystem.TRUECOLOR if depth is Depth.TRUE else ColorSystem.EIGHT_BIT
    lines = []
    for row in range(0, height, 2):
        parts, before = [], ""
        for pair in zip(pixels[row].tolist(), pixels[row + 1].tolist(), strict=True):
            upper, lower = (Color.from_rgb(*pixel).downgrade(system) for pixel in pair)
            code = f"\x1b[{';'.join((*upper.get_ansi_codes(), *lower.get_ansi_codes(foreground=False)))}m"
            parts.append("▀" if code == before else f"{code}▀")
            before = code
        lines.append("".join(parts) + _RESET + " " * (side - width))
    return lines


def _scaled(picture: Picture, height: int, width: int) -> Pixels:
    """Scale a picture: each new pixel is the mean of the pixels it covers, or the one it lies in."""
    import numpy as np  # commands without pictures do without it

    pixels = np.frombuffer(picture.rgb, np.uint8).reshape(picture.height, picture.width, 3).astype(np.int64)
    covered = []
    for axis, size in enumerate((height, width)):
        starts = np.arange(size) * pixels.shape[axis] // size
        covered.append(np.maximum(1, np.diff(starts, append=pixels.shape[axis])))
        pixels = np.add.reduceat(pixels, starts, axis=axis)
    return pixels // np.multiply.outer(*covered)[..., None]
