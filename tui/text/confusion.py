"""Scores of each class and the confusion matrix as text: what stands in which cell, whatever draws it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .numbers import plural
from .tables import Column, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpu_console.engine.runs.class_report import ClassReport, ClassScore, Mistake

LARGEST_MATRIX = 20
"""Classes up to which plain text holds the matrix, and every class in the order of their numbers."""

_LONGEST_NAME, _SHORTEST_NAME = 24, 6
_LONGEST_HEAD = 12
_WIDEST_CELL = 7
READING = "rows: true class; columns: predicted class"


def cell_len(text: str) -> int:
    """Return the cells that a text takes: two for a character of East Asia, none for an accent on the one before."""
    # As rich counts them; but rich alone takes longer to import than everything else that `show` needs.
    return len(text) if text.isascii() else sum(_width(character) for character in text)


def _width(character: str) -> int:
    return 0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1


def set_cell_size(text: str, cells: int) -> str:
    """Cut a text off or fill it up to so many cells."""
    while cell_len(text) > cells:
        text = text[:-1]
    return text + " " * (cells - cell_len(text))


def clean(name: str, cells: int = _LONGEST_NAME) -> str:
    """Write a class's name in so many cells at most."""
    text = name.strip() or "(no name)"
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def share(value: float | None) -> str:
    """Write a share with three decimals; a dash where there is none."""
    return "–" if value is None else f"{value:.3f}"


def headline(report: ClassReport) -> str:
    """Say how many examples were looked at and how many were told right."""
    first = "the first " if report.is_partial else ""
    lost = f", {report.not_numbers:,} with NaN predictions" if report.not_numbers else ""
    examples = plural(report.examples, "validation example")
    return (
        f"{first}{examples}, {plural(len(report.classes), 'class', 'classes')}: "
        f"accuracy {report.accuracy:.4f}, balanced {report.balanced_accuracy:.4f}{lost}"
    )


def ordered(report: ClassReport) -> list[ClassScore]:
    """Return the classes by number, or the worst first when they are many; those without any examples come last."""
    if len(report.classes) <= LARGEST_MATRIX:
        return list(report.classes)
    return sorted(report.classes, key=lambda one: (not one.examples, 1.0 if one.f1 is None else one.f1))


def score_lines(report: ClassReport, width: int | None) -> list[str]:
    """Lay out a row a class; of many classes only the worst.

    Args:
        report: The report.
        width: Cells available; None for no limit.
    """
    scores = ordered(report)
    shown = scores[:LARGEST_MATRIX]
    columns = [
        Column("class", 9),
        Column("precision", 2, right=True),
        Column("recall", 3, right=True),
        Column("F1", 4, right=True),
        Column("examples", 1, right=True),
    ]
    rows = [
        [clean(one.name), share(one.precision), share(one.recall), share(one.f1), f"{one.examples:,}"] for one in shown
    ]
    lines = table(columns, rows, width)
    if left := len(scores) - len(shown):
        lines.append(f"… and {plural(left, 'class', 'classes')} with better scores; report.json lists them all")
    return lines


def mistake_text(mistake: Mistake) -> str:
    """Say which class was mistaken for which: how often, and in what share of its examples."""
    return f"{clean(mistake.label)} → {clean(mistake.taken_for)} ({mistake.count:,}×, {mistake.share:.0%} of them)"


@dataclass(frozen=True, slots=True)
class MatrixLayout:
    """How a confusion matrix is laid out.

    Args:
        report: What it shows.
        label: Cells of a row's name.
        cell: Cells of a column, the gap before it included.
        is_numbered: Whether columns are headed by the numbers of the classes instead of their names.
        is_share: Whether cells hold hundredths of their row instead of counts.
    """

    report: ClassReport
    label: int
    cell: int
    is_numbered: bool
    is_share: bool = False

    @property
    def width(self) -> int:
        """Cells of a line."""
        return self.label + self.cell * len(self.report.matrix)

    def head(self) -> str:
        """The line above the rows."""
        names = (
            str(n) if self.is_numbered else clean(one.name, _LONGEST_HEAD) for n, one in enumerate(self.report.classes)
        )
        return " " * self.label + "".join(" " * (self.cell - cell_len(name)) + name for name in names)

    def row_name(self, row: int) -> str:
        """The name at a row's beginning, with its number where columns are headed by numbers."""
        name = self.report.classes[row].name
        text = f"{row} {name}" if self.is_numbered and name != str(row) else name
        return set_cell_size(clean(text, self.label), self.label)

    def cells(self, row: int) -> Iterator[tuple[str, float]]:
        """Go through a row's cells: the text, and its share of the row's examples."""
        total = self.report.classes[row].examples
        for column, count in enumerate(self.report.matrix[row]):
            part = count / total if total else 0.0
            number = f"{100 * part:.0f}" if self.is_share else str(count)
            # Nothing is a dot, so that what is there stands out; also on the diagonal, where a 0 says that it is bad.
            text = number if count or row == column else "·"
            yield text.rjust(self.cell), part


def fitting_layout(report: ClassReport, width: int | None) -> MatrixLayout | None:
    """Choose the layout that says most in the width there is; None where there is too little for any.

    Args:
        report: The report.
        width: Cells available; None for no limit.
    """
    number = len(str(len(report.classes) - 1))
    for layout in _layouts(report):
        if width is None or layout.width <= width:
            return layout
        room = width - layout.cell * len(report.matrix)
        if layout.is_numbered and room >= _SHORTEST_NAME + number:
            return replace(layout, label=room)
    return None


def scrolling_layout(report: ClassReport, width: int) -> MatrixLayout:
    """Choose the layout for a pane that scrolls sideways: counts in any case, names where they fit."""
    named, counts, _ = _layouts(report)
    if named.width <= width:
        return named
    label = min(counts.label, max(_SHORTEST_NAME, width // 3))
    room = (width - label) // len(report.matrix)
    return replace(counts, label=label, cell=max(counts.cell, min(room, _WIDEST_CELL)))


def _layouts(report: ClassReport) -> tuple[MatrixLayout, MatrixLayout, MatrixLayout]:
    """Return the layouts with names and counts, numbers and counts, numbers and shares, each narrower."""
    longest = max(cell_len(clean(one.name)) for one in report.classes)
    heads = max(cell_len(clean(one.name, _LONGEST_HEAD)) for one in report.classes)
    digits = len(str(max(map(max, report.matrix))))
    number = len(str(len(report.classes) - 1))
    labels = min(longest + number + 1, _LONGEST_NAME)
    return (
        MatrixLayout(report, longest, max(heads, digits) + 2, is_numbered=False),
        MatrixLayout(report, labels, max(number, digits) + 1, is_numbered=True),
        MatrixLayout(report, labels, max(number + 1, 3), is_numbered=True, is_share=True),
    )


def matrix_lines(report: ClassReport, width: int | None) -> list[str]:
    """Lay out the matrix of a few classes; nothing where there are many, or no room for it."""
    layout = fitting_layout(report, width) if len(report.classes) <= LARGEST_MATRIX else None
    if layout is None:
        return []
    unit = ", in percent of each row" if layout.is_share else ""
    rows = [layout.row_name(row) + "".join(text for text, _ in layout.cells(row)) for row in range(len(report.matrix))]
    return [f"{READING}{unit}", layout.head(), *rows]
