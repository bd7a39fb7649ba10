"""A checkbox that can be read without colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.widgets import Checkbox

if TYPE_CHECKING:
    from textual.content import Content


class TickBox(Checkbox):
    """A checkbox with a mark when it is on and none when it is off.

    Textual's checkbox shows the mark in both states, in different colours.
    """

    def render(self) -> Content:
        """The mark, if it is on, and the label."""
        self.BUTTON_INNER = "X" if self.value else " "
        return super().render()
