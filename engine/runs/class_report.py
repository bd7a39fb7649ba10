"""Per-class scores of a run on its validation data, as they are kept in the run's ``report.json``.

Only plain values: the console reads them without loading what computed them (`engine.training.class_scoring`).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ..errors import ConsoleError
from ..sanitize import printable_values
from ..storage.files import read_json

if TYPE_CHECKING:
    from .run_directory import RunDirectory

_LARGEST = 256 << 20
LARGEST_SUMMARY = 100
"""Classes up to which a summary holds every class and the whole matrix; ``report.json`` always does."""


@dataclass(frozen=True, slots=True)
class ClassScore:
    """How well one class is told from the others; shares are None where they would divide by zero.

    Args:
        name: The class.
        precision: Of the examples taken for it, the share that are of it; None when none was.
        recall: Of its examples, the share that were found; None when it has none.
        f1: The harmonic mean of both; None when the class occurs nowhere.
        examples: Its examples.
    """

    name: str
    precision: float | None
    recall: float | None
    f1: float | None
    examples: int


@dataclass(frozen=True, slots=True)
class Mistake:
    """Examples of one class that were taken for another.

    Args:
        label: Name of the class they are of.
        taken_for: Name of the class they were taken for.
        count: How many.
        share: Of all examples of the class they are of.
    """

    label: str
    taken_for: str
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class ClassReport:
    """A model's answers on validation data, class by class.

    Args:
        examples: How many there are.
        accuracy: The share that was told right.
        balanced_accuracy: The mean recall of the classes that have examples, each counting alike.
        not_numbers: Examples for which the model gave no number; they count as wrong and stand in no column.
        is_partial: Whether there is more validation data than was looked at.
        classes: One entry a class, in the order of their numbers.
        mistakes: The most frequent mistakes, the most frequent first.
        matrix: Counts; a row for each class that the examples are of, a column for each that they were taken for.
    """

    examples: int
    accuracy: float
    balanced_accuracy: float
    not_numbers: int
    is_partial: bool
    classes: tuple[ClassScore, ...]
    mistakes: tuple[Mistake, ...]
    matrix: tuple[tuple[int, ...], ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def brief(self) -> dict[str, Any]:
        """Return plain values for a summary: of very many classes only what concerns all of them."""
        values = self.as_dict()
        if len(self.classes) > LARGEST_SUMMARY:
            del values["matrix"], values["classes"]
        return values


def read_report(run: RunDirectory) -> ClassReport | None:
    """Return a run's report; None where there is none.

    Raises:
        ConsoleError: It is there and cannot be read.
    """
    path = run.report
    try:
        report: ClassReport = _adapter().validate_python(printable_values(read_json(path, _LARGEST)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConsoleError(f"{path.name} of {run.run_id} is damaged or cannot be read.") from error
    if not report.classes or {len(report.classes)} != {len(report.matrix), *map(len, report.matrix)}:
        raise ConsoleError(f"{path.name} of {run.run_id} is damaged: its matrix does not fit its classes.")
    if not _is_possible(report):
        raise ConsoleError(f"{path.name} of {run.run_id} is damaged: it has impossible numbers.")
    return report


@cache
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(ClassReport)


def _is_possible(report: ClassReport) -> bool:
    """Return whether all counts are at least 0 and not absurd, and all shares between 0 and 1."""
    scores, mistakes = report.classes, report.mistakes
    counts = [report.examples, report.not_numbers, *(one.examples for one in scores), *(one.count for one in mistakes)]
    shares = [report.accuracy, report.balanced_accuracy, *(one.share for one in mistakes)]
    shares += [share for one in scores for share in (one.precision, one.recall, one.f1) if share is not None]
    ends = [end for row in report.matrix for end in (min(row), max(row))]
    return all(0 <= count <= 2**53 for count in (*counts, *ends)) and all(
        math.isnan(share) or 0 <= share <= 1 for share in shares
    )
