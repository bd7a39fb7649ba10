"""What several widgets and screens share: texts that wrap or scroll, tabs, and whether a screen is being closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from ..text.keys import bind
from ..text.plan_text import PlanLine, laid_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from textual.events import Click
    from textual.screen import Screen

SCROLL_KEYS = [bind("up", "scroll_up"), bind("down", "scroll_down")]


class FactLines(Static):
    """Entries that are wrapped for the width; a container that scrolls keeps a column free for its bar."""

    DEFAULT_CSS = "FactLines { height: auto; width: 1fr; }"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002  Textual's own name
        super().__init__(id=id, classes=classes, markup=False)
        self.entries: Sequence[PlanLine] = ()

    def show(self, entries: Sequence[PlanLine]) -> None:
        """Show other entries."""
        self.entries = entries
        around = self.parent.scrollable_content_region if isinstance(self.parent, Widget) else self.size
        self.update(laid_out(entries, max(16, self.size.width or around.width)))

    def on_resize(self) -> None:
        """Wrap the entries again, once all is laid out: another height is not seen before."""
        self.call_after_refresh(lambda: self.show(self.entries))


class Overflow(VerticalScroll):
    """Parts of a screen that take focus only if there is something to scroll."""

    DEFAULT_CSS = "Overflow { scrollbar-size-vertical: 1; }"

    def allow_focus(self) -> bool:
        """Whether there is something to scroll."""
        return self.max_scroll_y > 0


class ScrollingText(VerticalScroll):
    """A text that scrolls."""

    DEFAULT_CSS = """
    ScrollingText { scrollbar-size: 1 1; scrollbar-background: $background; scrollbar-color: $foreground 25%; }
    """
    BINDINGS = [*SCROLL_KEYS]


def call_back(widget: Widget, then: Callable[..., object], *arguments: object) -> None:
    """Call something in the app's thread, from another one, unless the screen of a widget was closed meanwhile."""
    widget.app.call_from_thread(lambda: None if is_closing(widget) else then(*arguments))


def is_closing(widget: Widget) -> bool:
    """Return whether the screen of a widget is closed or being closed; its other widgets go first."""
    return not (widget.is_attached and widget.screen.display)


def mark_pane(screen: Screen[Any], name: str, css_class: str) -> None:
    """Give a class to the widget with a name as its id and to the containers around it, and to no others."""
    marked = {node for pane in screen.query(f"#{name}") for node in pane.ancestors_with_self} if name else set()
    for widget in screen.query("*"):
        widget.set_class(widget in marked, css_class)


class PaneTabs(Widget):
    """The labels of panes by their ids. The current pane's is reversed, and the pane has the class ``-current``."""

    DEFAULT_CSS = "PaneTabs { height: 1; padding: 0 1; }"

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
