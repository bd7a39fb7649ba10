"""A Textual app that shows one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import App
from textual.widgets import Static

if TYPE_CHECKING:
    from textual.app import ComposeResult


class Trivial(App[None]):
    """Shows one line."""

    def compose(self) -> ComposeResult:
        """Lay out the line."""
        yield Static("A trivial app")


if __name__ == "__main__":
    Trivial().run()
