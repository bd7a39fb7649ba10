"""Shows the settings of a run beside its curves, those that differ from its preset first."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from .rows_pane import LinesPane, Row, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..text.settings import Setting

_INDENT = "  "


class SettingsPane(LinesPane):
    """A name and a value per row; values that do not fit continue below."""

    def __init__(self) -> None:
        super().__init__("settings", "settings")
        self._settings: Sequence[Setting] = ()

    def show(self, settings: Sequence[Setting]) -> None:
        """Show settings."""
        self._settings = settings
        self.rows_changed()

    def laid_out(self) -> list[Row]:
        """Return the lines of all settings."""
        rows: list[Row] = []
        for is_changed, settings in groupby(self._settings, lambda one: one.preset is not None):
            if is_changed:
                rows.append([("changed from the preset", "head")])
            elif rows:
                rows += [[], [("as in the preset", "head")]]
            for setting in settings:
                rows += self._wrapped(setting, "now" if is_changed else "")
        return rows

    def _wrapped(self, setting: Setting, look: str) -> list[Row]:
        text = f"{setting.key} {setting.text}"
        first, *others = wrapped(text, max(16, self.room), _INDENT) or [text]
        key = first[: len(setting.key)]
        return [[(key, "faint"), (first[len(key) :], look)], *([(line, look)] for line in others)]
