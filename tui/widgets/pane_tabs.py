"""The row that says which of the lower panes is seen when there is room for one only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.events import Click


class PaneTabs(Widget):
    """Names of panes in a row, the one that is seen in reverse.

    Args:
        names: The panes.
        first_number: The key that zooms the first of them.
    """

    DEFAULT_CSS = """
    PaneTabs { height: 1; padding: 0 1; }
    """

    class Chosen(Message):
        """A name was clicked.

        Args:
            name: The pane.
        """

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    current: reactive[str] = reactive("")

    def __init__(self, names: Sequence[str], first_number: int) -> None:
        super().__init__(id="tabs")
        self._first_number = first_number
        self._labels: dict[str, str] = {}
        for name in names:
            self.add(name)
        self.set_reactive(PaneTabs.current, names[0])

    def add(self, name: str) -> None:
        """Put another name behind the others."""
        self._labels[name] = f" {self._first_number + len(self._labels)} {name} "
        self.refresh()

    def render(self) -> Content:
        """The names; brackets would be read as markup by people, so the chosen one is reversed."""
        return Content.assemble(
            *((label, "bold reverse" if name == self.current else "dim") for name, label in self._labels.items())
        )

    def on_click(self, event: Click) -> None:
        """Choose the pane whose name was clicked."""
        position = event.get_content_offset(self)
        if position is None:
            return
        end = 0
        for name, label in self._labels.items():
            end += len(label)
            if position.x < end:
                self.post_message(self.Chosen(name))
                return
