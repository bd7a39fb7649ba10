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
        first_number: The key that zooms the first of them; the others follow.
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
        self._labels: dict[str, str] = {}
        for number, name in enumerate(names, first_number):
            self.add(name, number)
        self.set_reactive(PaneTabs.current, names[0])

    def add(self, name: str, number: int) -> None:
        """Put another name where its number belongs.

        Args:
            name: The pane.
            number: The key that zooms it.
        """
        self._labels[name] = f" {number} {name} "
        self._labels = dict(sorted(self._labels.items(), key=lambda item: item[1]))
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
