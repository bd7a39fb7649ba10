"""Lines as characters: from fine dots to braille, quadrant or plain glyphs, at a cost that depends on the size only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from .curve import IndexArray

Marker: TypeAlias = Literal["braille", "block", "ascii"]
DotGrid: TypeAlias = npt.NDArray[np.bool_]

# By the sum of the weights of a cell's dots.
_GLYPHS = {"braille": [chr(0x2800 + code) for code in range(256)], "block": " ▘▝▀▖▌▞▛▗▚▐▜▄▙▟█"}
# Weight of each dot inside a cell, shape (down, across), top row first. Braille numbers its dots by columns
# and came to the fourth row later.
_WEIGHTS: dict[Marker, IndexArray] = {
    "braille": np.array([[1, 8], [2, 16], [4, 32], [64, 128]], dtype=np.int64),
    "block": np.array([[1, 2], [4, 8]], dtype=np.int64),
    "ascii": np.array([[1]], dtype=np.int64),
}

FINENESS: dict[Marker, tuple[int, int]] = {"braille": (2, 4), "block": (2, 2), "ascii": (1, 1)}
"""How many dots one character cell holds: side by side, and on top of each other."""


def draw_line(xs: IndexArray, ys: IndexArray, width: int, height: int) -> DotGrid:
    """Dots of the polyline through points ``(n,)``, which must lie inside the grid of ``(height, width)`` dots.

    Row 0 is at the bottom.
    """
    # Points that follow each other in one column become one vertical bar; only the bars are then joined.
    starts = np.flatnonzero(np.diff(xs, prepend=-1))
    ends = np.append(starts, len(xs))[1:] - 1
    columns = xs[starts]
    dots = draw_bars(columns, np.minimum.reduceat(ys, starts), np.maximum.reduceat(ys, starts), width, height)
    # The straight parts from each column's last point to the next column's first one.
    across, climb = np.diff(columns), ys[starts][1:] - ys[ends][:-1]
    lengths = np.maximum(np.abs(across), np.abs(climb))
    part = np.repeat(np.arange(len(lengths)), lengths)
    share = (np.arange(len(part)) - np.repeat(lengths.cumsum() - lengths, lengths)) / lengths[part]
    x = np.rint(columns[part] + share * across[part]).astype(np.int64)
    y = np.rint(ys[ends][part] + share * climb[part]).astype(np.int64)
    dots[y, x] = True
    return dots


def draw_bars(xs: IndexArray, low: IndexArray, high: IndexArray, width: int, height: int) -> DotGrid:
    """Dots of vertical bars between two rows, which lie inside the grid of ``(height, width)`` dots."""
    edges = np.zeros((height + 1, width), dtype=np.int64)
    np.add.at(edges, (low, xs), 1)
    np.add.at(edges, (high + 1, xs), -1)
    dots: DotGrid = edges.cumsum(axis=0)[:height] > 0
    return dots


def glyphs_of(dots: DotGrid, marker: Marker, plain: str) -> dict[tuple[int, int], str]:
    """The characters that show `dots`, by column and row from the bottom, of the cells that are not empty.

    The dots have the shape `(rows * down, columns * across)` for the marker's fineness; row 0 is at the bottom. Where a
    cell is one dot, its glyph is the plain one.
    """
    across, down = FINENESS[marker]
    height, width = dots.shape
    cells = dots.reshape(height // down, down, width // across, across)
    # Top dot row first, as the glyph tables count.
    codes = np.einsum("rjci,ji->rc", cells[:, ::-1], _WEIGHTS[marker])
    rows, columns = np.nonzero(codes)
    known = _GLYPHS.get(marker, (" ", plain))
    glyphs = [known[code] for code in codes[rows, columns].tolist()]
    return dict(zip(zip(columns.tolist(), rows.tolist(), strict=True), glyphs, strict=True))
