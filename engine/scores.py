"""Per-class scores of a run on its validation data, as they are kept in the run's ``report.json``.

Only plain values: the console reads them without loading what computed them (`engine.report`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from engine.errors import ConsoleError
from engine.files import read_text

if TYPE_CHECKING:
    from engine.rundir import RunDirectory

_LARGEST_FILE = 256 << 20
"""Bytes; the matrix of ten thousand classes is 200 MB of JSON."""

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
        values = json.loads(read_text(path, _LARGEST_FILE))
        classes = tuple(ClassScore(**score) for score in values.pop("classes"))
        mistakes = tuple(Mistake(**mistake) for mistake in values.pop("mistakes"))
        matrix = tuple(tuple(map(int, row)) for row in values.pop("matrix"))
        report = ClassReport(classes=classes, mistakes=mistakes, matrix=matrix, **values)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConsoleError(f"{path.name} of {run.run_id} is damaged or cannot be read.") from error
    if {len(classes)} != {len(matrix), *map(len, matrix)}:
        raise ConsoleError(f"{path.name} of {run.run_id} is damaged: its matrix does not fit its classes.")
    return report
