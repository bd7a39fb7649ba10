"""The row of tabs that shows which pane is visible if there is room for only one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual.events import Click
    from textual.screen import Screen


def mark_pane(screen: Screen[Any], name: str, css_class: str) -> None:
    """Give a class to the widget with a name as its id and to the containers around it, and to no others."""
    marked = {node for pane in screen.query(f"#{name}") for node in pane.ancestors_with_self} if name else set()
    for widget in screen.query("*"):
        widget.set_class(widget in marked, css_class)


class PaneTabs(Widget):
    """The labels of panes by their ids. The current pane's is reversed, and the pane has the class ``-current``."""

    DEFAULT_CSS = """
    PaneTabs { height: 1; padding: 0 1; }
    """

    class Chosen(Message):
        """The user chose a pane."""

    panes: reactive[Mapping[str, str]] = reactive(dict, layout=True)
    current: reactive[str] = reactive("", init=False)

    def __init__(self, panes: Mapping[str, str]) -> None:
        super().__init__(id="tabs")
        self.set_reactive(PaneTabs.panes, panes)
        self.set_reactive(PaneTabs.current, next(iter(panes)))

    def on_mount(self) -> None:
        """Mark the first pane when the screen has mounted all of them."""
        self.screen.call_later(self.watch_current)

    def watch_current(self) -> None:
        """Mark the current pane."""
        mark_pane(self.screen, self.current, "-current")

    def choose(self, name: str) -> None:
        """Show a pane and enter it."""
        self.current = name
        self.screen.query_one(f"#{name}").focus()
        self.post_message(self.Chosen())

    def choose_next(self) -> None:
        """Show and enter the next pane."""
        names = [*self.panes]
        self.choose(names[(names.index(self.current) + 1) % len(names)])

    def render(self) -> Content:
        """Render the labels; the current one is reversed, because people would read brackets as markup."""
        return Content.assemble(
            *((f" {label} ", "bold reverse" if name == self.current else "dim") for name, label in self.panes.items())
        )

    def on_click(self, event: Click) -> None:
        """Choose the pane whose label was clicked."""
        if (position := event.get_content_offset(self)) is None:
            return
        end = 0
        for name, label in self.panes.items():
            end += len(label) + 2
            if position.x < end:
                self.choose(name)
                return
