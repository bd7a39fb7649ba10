"""What several widgets and screens share: texts that wrap or scroll, and whether a screen is being closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Static

from ..text.keys import bind
from ..text.plan_text import PlanLine, laid_out

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


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

    DEFAULT_CSS = """
    Overflow { scrollbar-size-vertical: 1; }
    """

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
