"""Scores per class on the validation data, as in a run's ``report.json``; `training.class_scoring` computes them."""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING, Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import replace

from ..errors import ConsoleError
from ..sanitize import Count, Measure, printable_values
from ..storage.files import read_json

if TYPE_CHECKING:
    from .run_directory import RunDirectory

_LARGEST, _LARGEST_PICTURES = 256 << 20, 1 << 20  # bytes of a file
MOST_PICTURES = 24  # of mistakes in a run's folder
LARGEST_SUMMARY = 100  # classes, up to which a summary has each of them and the whole matrix


class ClassScore(Struct, frozen=True):
    """Scores of one class; None if they would divide by zero."""

    name: str
    precision: Measure | None  # of the examples predicted as it, the share that belong to it; None if there are none
    recall: Measure | None  # of its examples, the share that were predicted as it; None if it has no examples
    f1: Measure | None  # the harmonic mean of both; None if the class was neither present nor predicted
    examples: Count


class Mistake(Struct, frozen=True):
    """Examples of one class that were predicted as another."""

    label: str  # name of their class
    taken_for: str  # name of the predicted class
    count: Count  # their number
    share: Measure  # their share of all examples of their class


class Picture(Struct, frozen=True):
    """A picture small enough to draw in a terminal."""

    caption: str  # the text below it; for a mistake, its class and the predicted one
    height: Count  # its rows of pixels
    width: Count  # its columns of pixels
    rgb: bytes  # three bytes per pixel, row by row


class ClassReport(Struct, frozen=True):
    """A model's predictions on validation data, per class."""

    examples: Count  # number of examples
    accuracy: Measure  # the share that was predicted correctly
    balanced_accuracy: Measure  # the mean recall of the classes that have examples
    not_numbers: Count  # examples with NaN or infinite outputs; they count as wrong and are in no column
    is_partial: bool  # whether there is more validation data than was scored
    classes: tuple[ClassScore, ...]  # one entry per class, in the order of their numbers
    mistakes: tuple[Mistake, ...]  # the most frequent mistakes, the most frequent first
    matrix: tuple[tuple[Count, ...], ...]  # counts; one row per class of the examples, one column per predicted class
    pictures: tuple[Picture, ...] = ()  # some examples that were predicted as another class, from ``mistakes.json``
    epoch: Count = 0  # the epoch that the scored weights are from; 0 if unknown
    is_best: bool = False  # whether that is the best epoch
    is_last: bool = False  # whether it is the last one; otherwise its weights were restored
    output: str = ""  # the name of the output that was scored, if the model has several
    others: tuple[ClassReport, ...] = ()  # the reports of its other outputs

    @property
    def of_outputs(self) -> tuple[ClassReport, ...]:
        """The reports of all outputs, this one first."""
        return (replace(self, others=()), *self.others)

    def as_dict(self, *, is_brief: bool = False) -> dict[str, Any]:
        """Return plain values without the pictures; a brief summary of very many classes leaves out the single ones."""
        values = to_builtins(replace(self, pictures=(), others=()))
        missing = ["pictures", "others", *(["output"] if not self.output else [])]
        missing += ["epoch", "is_best", "is_last"] if not self.epoch else []
        missing += ["matrix", "classes"] if is_brief and len(self.classes) > LARGEST_SUMMARY else []
        values = {name: value for name, value in values.items() if name not in missing}
        return {**values, "others": [one.as_dict(is_brief=is_brief) for one in self.others]} if self.others else values


def read_report(run: RunDirectory) -> ClassReport | None:
    """Return a run's report; None if there is none. Raises `ConsoleError` if it exists and cannot be read."""
    damaged = f"{run.report.name} of {run.run_id} is damaged"
    try:
        report = convert(printable_values(read_json(run.report, _LARGEST)), ClassReport)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConsoleError(f"{damaged} or cannot be read.") from error
    for one in report.of_outputs:
        if not one.classes or {len(one.classes)} != {len(one.matrix), *map(len, one.matrix)}:
            raise ConsoleError(f"{damaged}: its matrix does not fit its classes.")
    try:  # the scores do not need the pictures
        pictures = tuple(
            Picture(str(one["caption"]), int(one["height"]), int(one["width"]), b64decode(one["rgb"]))
            for one in printable_values(read_json(run.mistakes, _LARGEST_PICTURES))[:MOST_PICTURES]
        )
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        pictures = ()
    is_whole = all(min(one.height, one.width) > 0 and len(one.rgb) == 3 * one.height * one.width for one in pictures)
    return replace(report, pictures=pictures if is_whole else ())
