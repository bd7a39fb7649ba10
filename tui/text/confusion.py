"""Lays out class scores and the confusion matrix as text, for plain output and for the screen."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import TYPE_CHECKING

from msgspec import Struct
from rich.cells import cell_len, set_cell_size

from .numbers import count, plural
from .tables import Column, as_lines, clipped, widest

if TYPE_CHECKING:
    from tpu_console.engine.runs.class_report import ClassReport, ClassScore, Mistake

LARGEST_MATRIX = 20  # most classes for which plain text shows the matrix, and every class in numerical order

_LONGEST_NAME, _SHORTEST_NAME = 24, 6
_LONGEST_HEAD = 12
_WIDEST_CELL = 7
READING = "rows: true class; columns: predicted class"
MISTAKES = "mistakes, true → predicted"


def clean(name: str, cells: int = _LONGEST_NAME) -> str:
    """Write a class's name in at most `cells` cells."""
    return clipped(name.strip() or "(no name)", cells)


SCORE_COLUMNS = (
    Column("class", 9, value=lambda one: clean(one.name)),
    Column("precision", 2, right=True, value=attrgetter("precision"), text="{:.3f}".format),
    Column("recall", 3, right=True, value=attrgetter("recall"), text="{:.3f}".format),
    Column("F1", 4, right=True, value=attrgetter("f1"), text="{:.3f}".format),
    Column("examples", 1, right=True, value=attrgetter("examples"), text=count),
)
"""The columns of the scores of a class."""


def headline(report: ClassReport) -> str:
    """Say which model was scored on how many examples, how many predictions were correct, and of which output."""
    kind = "best" if report.is_best else "last" if report.is_last else "restored"
    first = f"{kind} model (epoch {report.epoch:,}), " if report.epoch else ""
    first += f"{report.output}: " * bool(report.output) + "the first " * report.is_partial
    lost = f", {report.not_numbers:,} with NaN predictions" if report.not_numbers else ""
    counted = f"{plural(report.examples, 'validation example')}, {plural(len(report.classes), 'class', 'classes')}"
    scores = f"accuracy {report.accuracy:.4f}, balanced {report.balanced_accuracy:.4f}"
    return f"{first}{counted}: {scores}{lost}"


def ordered(report: ClassReport) -> list[ClassScore]:
    """Return the classes by number, or the worst first if there are many; classes without examples come last."""
    return list(report.classes) if len(report.classes) <= LARGEST_MATRIX else worst_first(report)


def worst_first(report: ClassReport) -> list[ClassScore]:
    """Return the classes by F1; those without examples come last."""
    return sorted(report.classes, key=lambda one: (not one.examples, 1.0 if one.f1 is None else one.f1))


def score_lines(report: ClassReport, width: int | None) -> list[str]:
    """Lay out one row per class in a width of cells; if there are many classes, only the worst."""
    scores = ordered(report)
    lines = as_lines(SCORE_COLUMNS, scores[:LARGEST_MATRIX], width)
    if (left := len(scores) - LARGEST_MATRIX) > 0:
        lines.append(f"… and {plural(left, 'class', 'classes')} with better scores; report.json lists them all")
    return lines


def mistake_text(mistake: Mistake) -> str:
    """Say which class was confused with which, how often, and for what share of its examples."""
    return f"{clean(mistake.label)} → {clean(mistake.taken_for)} ({mistake.count:,}×, {mistake.share:.0%} of them)"


class MatrixLayout(Struct, frozen=True):
    """The layout of a confusion matrix."""

    report: ClassReport  # the class report to show
    label: int  # width of a row's name in cells
    cell: int  # width of a column in cells, including the gap before it
    is_numbered: bool  # whether column headings are class numbers instead of names

    @property
    def width(self) -> int:
        """Width of a line in cells."""
        return self.label + self.cell * len(self.report.matrix)

    def head(self) -> str:
        """Return the heading above the rows."""
        names = [clean(one.name, _LONGEST_HEAD) for one in self.report.classes]
        heads = map(str, range(len(names))) if self.is_numbered else names
        return " " * self.label + "".join(" " * (self.cell - cell_len(head)) + head for head in heads)

    def row_name(self, row: int) -> str:
        """Return the name at the start of a row, with its number if the columns are numbered."""
        name = self.report.classes[row].name
        text = f"{row} {name}" if self.is_numbered and name != str(row) else name
        return set_cell_size(clean(text, self.label), self.label)

    def cells(self, row: int) -> Iterator[tuple[str, float]]:
        """Yield each cell of a row: its text, and its share of the row's examples."""
        total = self.report.classes[row].examples
        for column, counted in enumerate(self.report.matrix[row]):
            # An empty cell is a dot, so that counts stand out; on the diagonal too, where 0 is a bad result.
            text = str(counted) if counted or row == column else "·"
            yield text.rjust(self.cell), counted / total if total else 0.0


def layout_of(report: ClassReport, width: int | None) -> MatrixLayout:
    """Choose a layout: with names above the columns if they fit, else with numbers and as wide as needed."""
    names = widest([clean(one.name) for one in report.classes])
    heads = widest([clean(one.name, _LONGEST_HEAD) for one in report.classes])
    digits, number = len(str(max(map(max, report.matrix)))), len(str(len(report.classes) - 1))
    named = MatrixLayout(report, names, max(heads, digits) + 2, is_numbered=False)
    if width is None or named.width <= width:
        return named
    label = min(names + number + 1, _LONGEST_NAME, max(_SHORTEST_NAME, width // 3))
    room = (width - label) // len(report.matrix)
    return MatrixLayout(report, label, max(number + 1, digits + 1, min(room, _WIDEST_CELL)), is_numbered=True)


def matrix_lines(report: ClassReport, width: int | None) -> list[str]:
    """Lay out the matrix; empty if there are too many classes or too little room."""
    layout = layout_of(report, width)
    if len(report.classes) > LARGEST_MATRIX or (width is not None and layout.width > width):
        return []
    rows = [layout.row_name(row) + "".join(text for text, _ in layout.cells(row)) for row in range(len(report.matrix))]
    return [READING, layout.head(), *rows]
