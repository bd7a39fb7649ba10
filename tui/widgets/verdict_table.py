"""A table of verdicts, one per row, and everything about one of them in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.content import Content

from tpu_console.engine.preflight.result import Outcome

from ..text.numbers import NONE, duration
from ..text.tables import NAME_CELLS, Column
from ..text.verdict_text import headroom, peak_text
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
_COLUMNS = (
    Column("TPU", 11),
    Column("Batch", 10, right=True),
    Column("Precision", 9),
    Column("Verdict", 12),
    Column("HBM peak", 8, right=True),
    Column("Free", 4, right=True),
    Column("Step at best", 6, right=True),
    Column("examples/s", 5, right=True),
    Column("Epoch", 3, right=True),
    Column("Whole run", 7, right=True),
    Column("Limited by", 2),
)


class VerdictTable(FittingTable):
    """The table of verdicts; enter applies the choice under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "select_cursor", "Use this", show=False, tooltip="Use this batch and precision in the form."),
    ]

    def __init__(self) -> None:
        super().__init__(_COLUMNS, "verdicts")
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
    memory, bound = verdict.memory, verdict.bound
    texts = dict.fromkeys((column.title for column in _COLUMNS), NONE)
    texts |= {"TPU": verdict.tpu, "Batch": f"{verdict.replica_batch:,}"}
    texts["Precision"] = verdict.precision.removeprefix("mixed_")
    if memory is not None:
        texts |= {"HBM peak": peak_text(memory), "Free": headroom(memory)}
    if bound is not None:
        texts |= {
            "Step at best": duration(bound.step_s),
            "examples/s": f"{bound.images_per_s:,.0f}",
            "Epoch": duration(bound.epoch_s),
            "Whole run": duration(bound.run_s),
            "Limited by": bound.limited_by,
        }
    cells = {title: Content(text) for title, text in texts.items()}
    return cells | {"Verdict": Content.styled(f"{mark} {verdict.outcome.value}", style)}


def coloured(lines: Iterable[str]) -> Content:
    """Colour the names that lines of `tui.text.verdicts` begin with."""
    parts = []
    for line in lines:
        name = line[:NAME_CELLS]
        style = _LABELS.get(name.rstrip()) if len(line) > NAME_CELLS else None
        parts.append(Content(line) if style is None else Content.assemble((name, style), line[NAME_CELLS:]))
    return Content("\n").join(parts)
