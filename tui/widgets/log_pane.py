"""Shows the end of ``console.log``: the output of native code, and tracebacks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.cells import cell_len

from .rows_pane import Row, RowsPane

if TYPE_CHECKING:
    from collections.abc import Sequence

_HARMLESS = re.compile(r"[IW]\d{4} |WARNING:")  # how TensorFlow begins information and warnings
_ALARMS = ("error", "traceback", "exception", "fatal", "failed")


class LogPane(RowsPane):
    """Shows the last lines of the log, unchanged."""

    def __init__(self) -> None:
        super().__init__("5 log", "log")
        self._lines: Sequence[str] = ()
        self._widest = 0

    def show(self, lines: Sequence[str]) -> None:
        """Show the log's last lines; redraws only if they changed."""
        if lines is not self._lines:
            self._lines = lines
            self._widest = max((cell_len(line) for line in lines), default=0)
            self.rows_changed()

    def row_count(self) -> int:
        """Return the number of lines, or 1 for a remark if there are none."""
        return max(1, len(self._lines))

    def widest(self) -> int:
        """Cells of the longest line."""
        return self._widest

    def row(self, index: int) -> Row:
        """One line."""
        if not self._lines:
            return [("the log is empty", "faint")]
        line = self._lines[index]
        is_alarm = not _HARMLESS.match(line) and any(word in line.lower() for word in _ALARMS)
        return [(line, "bad" if is_alarm else "")]
