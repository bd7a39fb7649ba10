"""The command palette: every key of a screen by its name."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette


class Palette(CommandPalette):
    """Textual's palette, which survives a page key before its list is shown, and two choices at once."""

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Close; a second choice, which arrives when it is closed, would close the screen below."""
        if self.is_active:
            return super().dismiss(result)
        return AwaitComplete()

    def _action_command_list(self, action: str) -> None:
        with suppress(KeyError):  # a hidden list has no lines, and moving by a page looks for one
            super()._action_command_list(action)
