"""A table of verdicts, one per row, and everything about one of them in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.content import Content

from tpu_console.engine.preflight.result import Outcome

from ..text.keys import bind
from ..text.tables import NAME_CELLS
from ..text.verdicts import SCREEN_COLUMNS, VERDICT
from .fitting_table import FittingTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from textual.binding import BindingType

    from tpu_console.engine.preflight.result import Verdict

_MARKS = {
    Outcome.FITS: ("✓", "$text-success"),
    Outcome.DOES_NOT_FIT: ("✗", "$text-error"),
    Outcome.DOES_NOT_COMPILE: ("✗", "$text-error"),
    Outcome.UNKNOWN: ("?", "$text-warning"),
}
_FAINT = "$foreground 60%"
_LABELS = {
    **dict.fromkeys(("unknown", "compiler", "memory", "filled by", "step", "quota"), _FAINT),
    **dict.fromkeys(("at best", "likely", "largest", "input", "note"), _FAINT),
    "fits": "$text-success",
    "change": "$text-success",
    "too large": "$text-error",
    "refused": "$text-error",
    "error": "bold $text-error",
    "warning": "bold $text-warning",
}


class VerdictTable(FittingTable):
    """The table of verdicts; enter applies the choice under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("enter", "select_cursor", "Use this"),
    ]

    def __init__(self) -> None:
        super().__init__(SCREEN_COLUMNS, "verdicts")
        self.verdicts: tuple[Verdict, ...] = ()

    @property
    def verdict(self) -> Verdict | None:
        """The verdict under the cursor."""
        return self.verdicts[self.cursor_row] if self.verdicts else None

    def show_verdicts(self, verdicts: Sequence[Verdict]) -> None:
        """Replace the verdicts."""
        self.verdicts = tuple(verdicts)
        self.show({str(number): _cells(verdict) for number, verdict in enumerate(verdicts)})


def _cells(verdict: Verdict) -> dict[str, Content]:
    mark, style = _MARKS[verdict.outcome]
    cells = {column.title: Content(column.written(verdict)) for column in SCREEN_COLUMNS}
    return cells | {VERDICT.title: Content.styled(f"{mark} {VERDICT.written(verdict)}", style)}


def coloured(lines: Iterable[str]) -> Content:
    """Colour the names that lines of `tui.text.verdicts` begin with."""
    parts = []
    for line in lines:
        name = line[:NAME_CELLS]
        style = _LABELS.get(name.rstrip()) if len(line) > NAME_CELLS else None
        parts.append(Content(line) if style is None else Content.assemble((name, style), line[NAME_CELLS:]))
    return Content("\n").join(parts)
