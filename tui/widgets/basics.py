"""What several widgets and screens share: texts that scroll, and whether a screen is being closed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.containers import VerticalScroll

from ..text.keys import bind

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.widget import Widget


SCROLL_KEYS = [bind("up", "scroll_up"), bind("down", "scroll_down")]


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
