"""Whether a screen is being closed when something that was read for it arrives."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.widget import Widget


def is_closing(widget: Widget) -> bool:
    """Return whether the screen of a widget is closed or being closed; its other widgets go first."""
    return not (widget.is_attached and widget.screen.display)
