"""Panes beside the curves: the settings of a run, and sample translations."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from ..text.marks import DONE, NOW
from .rows_pane import LinesPane, Row, wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.events import Sample, Translated

    from ..following.run_settings import Setting


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


_LEAST = 16  # minimum width of a line in cells


class SamplesPane(LinesPane):
    """Each sentence, the model's translation and, if it differs, the expected one."""

    is_as_high_as_rows = True

    def __init__(self) -> None:
        super().__init__("7 translations", "samples")
        self._translated: Translated | None = None

    def show(self, translated: Translated) -> None:
        """Show the newest translations; redraws only if they changed."""
        if translated is not self._translated:
            self._translated = translated
            self.border_title = f"7 translations after epoch {translated.epoch}"
            self.rows_changed()

    def head(self) -> list[Row]:
        """Return the epoch, if no frame shows it."""
        if self._translated is None or self.styles.border_top[0]:
            return []
        return [[(f"translations after epoch {self._translated.epoch}", "head")]]

    def laid_out(self) -> list[Row]:
        """Return the lines of all sentences."""
        if self._translated is None:
            return []
        return [row for sample in self._translated.samples for row in self._sentence(sample)]

    def _sentence(self, sample: Sample) -> list[Row]:
        is_right = _words(sample.predicted) == _words(sample.expected)
        predicted = f"{DONE if is_right else NOW} {sample.predicted or '…'}"
        rows = self._wrapped(sample.source, "faint", "")
        rows += self._wrapped(predicted, "best" if is_right else "now", "  ")
        if not is_right:
            rows += self._wrapped(f"  expected: {sample.expected}", "", "    ")
        return rows

    def _wrapped(self, text: str, look: str, indent: str) -> list[Row]:
        width = max(_LEAST, self.size.width)
        return [[(line, look)] for line in wrapped(text, width, indent)]


def _words(text: str) -> list[str]:
    """Return only the words: a model outputs neither capitals nor punctuation."""
    return re.findall(r"\w+", text.lower())
