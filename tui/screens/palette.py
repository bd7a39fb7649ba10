"""The command palette: every key of a screen by its name."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette


class Palette(CommandPalette):
    """Textual's palette, but a page key before its list is shown and two choices at once do no harm."""

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Close once: a second choice, arriving after the first, would close the screen below."""
        if self.is_active:
            return super().dismiss(result)
        return AwaitComplete()

    def _action_command_list(self, action: str) -> None:
        with suppress(KeyError):  # moving by a page needs the lines of the list, and a hidden one has none
            super()._action_command_list(action)
