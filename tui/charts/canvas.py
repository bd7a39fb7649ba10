"""The cells of a plot, and what stands in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .raster import FINENESS, scale
from .series import Line

if TYPE_CHECKING:
    from .curve import IndexArray
    from .pens import PenColor
    from .raster import Marker


@dataclass(frozen=True, slots=True)
class Canvas:
    """The part of the plane that is seen, and the cells that show it."""

    left: float  # left end, in the axis's unit
    right: float  # right end
    low: float  # lower end
    high: float  # upper end
    width: int  # columns
    height: int  # rows
    marker: Marker  # kind of glyph

    def dots(self, line: Line) -> tuple[IndexArray, IndexArray]:
        """The dot column and the dot row of every sample."""
        fine = FINENESS[self.marker]
        x = scale(line.x, self.left, self.right, self.width * fine.across)
        return x, scale(line.y, self.low, self.high, self.height * fine.down)

    def cells(self, line: Line) -> list[tuple[int, int]]:
        """The cell of every sample, the same as that of its dot."""
        fine = FINENESS[self.marker]
        x, y = self.dots(line)
        return list(zip((x // fine.across).tolist(), (y // fine.down).tolist(), strict=True))

    def clipped(self, line: Line) -> Line:
        """A line with every value inside the vertical range."""
        return Line(line.x, np.clip(line.y, self.low, self.high))


@dataclass(frozen=True, slots=True)
class Layer:
    """Glyphs of one look; a later layer covers an earlier one."""

    columns: list[int]  # canvas column of each glyph
    rows: list[int]  # canvas row of each glyph, from the bottom
    glyphs: list[str]  # one character each
    color: PenColor | None  # colour of all of them; None for the text's own
    is_dim: bool = False  # whether they are drawn dim, in the background


def cell_of(position: float, low: float, high: float, cells: int) -> int:
    """Return the number of the cell, of so many between two ends, in which a position lies."""
    return int(scale(np.array([position]), low, high, cells)[0])
