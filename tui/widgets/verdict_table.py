"""A table of verdicts, one per row, and everything about one of them in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.content import Content
from textual.widgets import DataTable

from tpu_console.engine.preflight.result import Outcome

from ..text.numbers import duration, milliseconds
from ..text.verdict_text import headroom, peak_text

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
    **dict.fromkeys(("unknown", "compiler", "memory", "step", "quota", "at best", "largest", "input", "note"), _FAINT),
    "fits": "$text-success",
    "too large": "$text-error",
    "refused": "$text-error",
    "error": "bold $text-error",
    "warning": "bold $text-warning",
}
_TEXTS = {"TPU", "Precision", "Verdict", "Limited by"}
_NAME_CELLS = 13  # as `tui.text.tables.labelled` writes names
# Title and width; those after the gap are visible if there is room, or by scrolling.
_COLUMNS = (
    ("TPU", 6),
    ("Batch", 7),
    ("Precision", 9),
    ("Verdict", 18),
    ("HBM peak", 10),
    ("Free", 10),
    ("Best ms", 7),
    ("images/s", 11),
    ("Epoch", 7),
    ("Whole run", 9),
    ("Limited by", 10),
)


class VerdictTable(DataTable[Content]):
    """The table of verdicts; enter applies the choice under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Use this", show=False, tooltip="Use this batch and precision in the form."),
    ]

    def __init__(self) -> None:
        super().__init__(cursor_type="row", id="verdicts", cell_padding=1)
        for title, width in _COLUMNS:
            self.add_column(title if title in _TEXTS else title.rjust(width), width=width)
        self.verdicts: tuple[Verdict, ...] = ()

    @property
    def chosen(self) -> Verdict | None:
        """The verdict under the cursor."""
        return self.verdicts[self.cursor_row] if self.verdicts else None

    def show(self, verdicts: Sequence[Verdict]) -> None:
        """Replace the verdicts."""
        self.verdicts = tuple(verdicts)
        self.clear()
        for verdict in verdicts:
            self.add_row(*_cells(verdict))


def _cells(verdict: Verdict) -> list[Content]:
    mark, style = _MARKS[verdict.outcome]
    memory, bound = verdict.memory, verdict.bound
    texts = ["–"] * 2 if memory is None else [peak_text(memory), headroom(memory)]
    if bound is None:
        texts += ["–"] * 5
    else:
        texts += [
            milliseconds(1e3 * bound.step_s),
            f"{bound.images_per_s:,.0f}",
            duration(bound.epoch_s),
            duration(bound.run_s),
            bound.limited_by,
        ]
    widths = [width for _, width in _COLUMNS[4:]]
    return [
        Content(verdict.tpu),
        Content(f"{verdict.replica_batch:,}".rjust(_COLUMNS[1][1])),
        Content(verdict.precision.removeprefix("mixed_")),
        Content.assemble((f"{mark} {verdict.outcome.value}", style)),
        *(Content(text.rjust(width)) for text, width in zip(texts[:-1], widths, strict=False)),
        Content(texts[-1]),
    ]


def coloured(lines: Iterable[str]) -> Content:
    """Colour the names that lines begin with.

    Args:
        lines: Lines as `tui.text.verdicts` writes them.
    """
    parts = []
    for line in lines:
        name = line[:_NAME_CELLS]
        style = _LABELS.get(name.rstrip()) if len(line) > _NAME_CELLS else None
        parts.append(Content(line) if style is None else Content.assemble((name, style), line[_NAME_CELLS:]))
    return Content("\n").join(parts)
