"""Draws every screen with ASCII characters only, for fonts and locales that lack others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from textual.filter import LineFilter

from .lookalikes import LOOKALIKES

if TYPE_CHECKING:
    from textual.color import Color


class AsciiOnly(LineFilter):
    """Replaces every other character by a similar ASCII character or a question mark."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002  Textual's signature
        """Return a line's segments in ASCII, as wide as before."""
        return [
            segment if segment.text.isascii() else Segment(in_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


_LOOKALIKES = {**LOOKALIKES, "★": "@"}  # not *, of which curves consist


def in_ascii(text: str) -> str:
    """Return a text in ASCII, as wide as before."""
    return "".join(c if c.isascii() else _LOOKALIKES.get(c, "?" * cell_len(c)) for c in text)
