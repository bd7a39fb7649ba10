"""The row of tabs that shows which lower pane is visible if there is room for only one."""

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
    """A row of pane names; the visible pane's name is reversed.

    Args:
        names: The names.
        first_number: The number key of the first one, the others follow; None if number keys do something else.
    """

    DEFAULT_CSS = """
    PaneTabs { height: 1; padding: 0 1; }
    """

    class Chosen(Message):
        """A name was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    current: reactive[str] = reactive("")

    def __init__(self, names: Sequence[str], first_number: int | None) -> None:
        super().__init__(id="tabs")
        self._labels = {name: f" {name} " for name in names}
        if first_number is not None:
            for number, name in enumerate(names, first_number):
                self.add(name, number)
        self.set_reactive(PaneTabs.current, names[0])

    def add(self, name: str, number: int) -> None:
        """Add a name, in the order of the numbers, which are the keys that zoom."""
        self._labels[name] = f" {number} {name} "
        self._labels = dict(sorted(self._labels.items(), key=lambda item: item[1]))
        self.refresh(layout=True)

    def render(self) -> Content:
        """Render the names; the chosen one is reversed, because people would read brackets as markup."""
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
