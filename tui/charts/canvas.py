"""The cells of a plot, and what stands in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .raster import FINENESS

if TYPE_CHECKING:
    from .curve import IndexArray
    from .pens import PenColor
    from .raster import Marker
    from .scale import Scale
    from .series import Line


@dataclass(frozen=True, slots=True)
class Canvas:
    """The cells inside the axes, and what lies where."""

    x: Scale  # of the columns
    y: Scale  # of the rows, from the bottom
    marker: Marker  # kind of glyph

    @property
    def dot_columns(self) -> int:
        """Dots side by side."""
        return self.x.cells * FINENESS[self.marker].across

    @property
    def dot_rows(self) -> int:
        """Dots on top of each other."""
        return self.y.cells * FINENESS[self.marker].down

    def dots(self, line: Line) -> tuple[IndexArray, IndexArray]:
        """The dot column and the dot row of every sample."""
        fine = FINENESS[self.marker]
        return self.x.dots(line.x, fine.across), self.y.dots(line.y, fine.down)

    def cells(self, line: Line) -> list[tuple[int, int]]:
        """The column and the row of every sample, the same as those of its dot."""
        fine = FINENESS[self.marker]
        x, y = self.dots(line)
        return list(zip((x // fine.across).tolist(), (y // fine.down).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class Layer:
    """Glyphs of one look; a later layer covers an earlier one."""

    columns: list[int]  # canvas column of each glyph
    rows: list[int]  # canvas row of each glyph, from the bottom
    glyphs: list[str]  # one character each
    color: PenColor | None  # colour of all of them; None for the text's own
    is_dim: bool = False  # whether they are drawn dim, in the background
