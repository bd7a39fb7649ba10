"""The command palette: every key of a screen by its name."""

from __future__ import annotations

from contextlib import suppress

from textual.command import CommandPalette


class Palette(CommandPalette):
    """Textual's palette, which survives a page key before its list is shown."""

    def _action_command_list(self, action: str) -> None:
        with suppress(KeyError):  # a hidden list has no lines, and moving by a page looks for one
            super()._action_command_list(action)
