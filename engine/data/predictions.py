"""What a kind of dataset gets to predict new data, and the table that it returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from ..errors import DataError
from ..runs.class_report import read_report
from ..storage.paths import user_path

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ..config.run_config import RunConfig
    from ..messages import Reporter
    from ..runs.run_directory import RunDirectory

BATCH = 64  # examples per batch


class NewData(Struct, frozen=True):
    """What to predict."""

    data: tuple[str, ...]  # files or folders, as the user wrote them
    images: str | None = None  # folder of the images that a table names; None to look beside the table
    skip_bad: bool = False  # whether to skip images that cannot be read instead of failing
    arrays: Path = Path("predictions.npz")  # the file of predictions that do not fit into a table

    def only(self) -> str:
        """Return the only file; raise `DataError` if there are several."""
        if len(self.data) > 1:
            what = f"Only images can be predicted from several files, and {len(self.data)} are given."
            raise DataError(what, remedy="Predict one file at a time.")
        return self.data[0]


class Table(Struct, frozen=True):
    """Predictions."""

    columns: tuple[str, ...]
    rows: Iterable[Sequence[str]]  # one text or number per column, computed lazily
    skipped: int = 0  # rows without a prediction
    # What does not fit into a row, in the order of the rows.
    arrays: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainedModel(ABC):
    """A trained run, as `engine.jobs.predict` opens it."""

    run: RunDirectory
    config: RunConfig
    record: dict[str, Any]  # its ``inputs.json``, with what the kind's `Record` requires; empty if it has none

    @abstractmethod
    def load_model(self, inputs: Any = None) -> Any:
        """Load the model; raise `ConsoleError` if it is damaged, or needs code that is missing.

        With a batch of inputs, a custom model that Keras cannot save or load whole is made again by its function.
        """

    @abstractmethod
    def outputs_of(
        self, model: Any, batches: Iterable[Any], total: int, reporter: Reporter
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the model's output for each example in batches of inputs, probabilities rather than logits.

        Raises `DataError` if an input cannot be read or does not fit, or an output is not a number.
        """

    @abstractmethod
    def named_outputs(
        self, batches: Iterable[Any], total: int | None, reporter: Reporter
    ) -> dict[str, NDArray[np.float32]]:
        """Return the model's outputs by name for batches of inputs of any structure; the only one has no name."""

    @abstractmethod
    def translations_of(self, model: Any, sentences: Sequence[str], reporter: Reporter) -> Iterator[str]:
        """Yield a sentence in the other language for each sentence."""

    def class_names(self, classes: int) -> tuple[str, ...]:
        """Return the names of the model's classes; raise `DataError` if the run's record does not fit its model."""
        names = tuple(map(str, self.record.get("classes") or self.record.get("class_names") or ()))
        if not names:
            report = read_report(self.run)
            names = tuple(one.name for one in report.classes) if report is not None else ()
        if names and len(names) != classes:
            what = f"The run {self.run.run_id} has {len(names)} classes, but its model distinguishes {classes}."
            raise DataError(what)
        return names or tuple(map(str, range(classes)))

    def classes_of(self, model: Any) -> tuple[str, ...]:
        """Return the names of the classes that a model distinguishes; raise `DataError` if it does not."""
        shape = None
        with suppress(AttributeError, ValueError):
            shape = model.output_shape
        if not (isinstance(shape, tuple) and len(shape) == 2 and isinstance(shape[1], int)):
            raise DataError(
                f"The model's output has shape {shape}, which is not a value for each class.",
                remedy="Predict by hand with keras.models.load_model.",
            )
        return self.class_names(max(shape[1], 2))  # a single value is the probability of the second class

    def damaged(self, what: str) -> DataError:
        """Return the error that the record is damaged, and how."""
        return DataError(f"{user_path(self.run.inputs)} is damaged: {what}.")

    def scale(self, largest: float = 255.0) -> float:
        """Return what pixels are multiplied by for the model, given the largest one."""
        return 1.0 if self.config.data.pixels == "raw" else 1 / largest


def number(value: float) -> str:
    """Write a number with six digits."""
    return f"{value:.6g}"


def chosen(output: NDArray[np.float32], names: Sequence[str]) -> tuple[str, str]:
    """Return the most likely class and its probability."""
    best = int(output.argmax())
    return names[best], number(output[best])


def probabilities(output: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a probability per class, also for a binary model with a single output."""
    import numpy as np

    return np.array([1 - output[0], output[0]], np.float32) if len(output) == 1 else output


def predicted(
    trained: TrainedModel, kept: pd.DataFrame, inputs: Any, label: str, reporter: Reporter, *, has_classes: bool = True
) -> Table:
    """Predict rows of inputs: each gets the cells that are kept of it, and a class and its probability, or a number."""
    model = trained.load_model()
    names = trained.classes_of(model) if has_classes else ()
    batches = (inputs[start : start + BATCH] for start in range(0, len(inputs), BATCH))
    outputs = trained.outputs_of(model, batches, len(inputs), reporter)
    rows = (
        (*cells, *(chosen(probabilities(output), names) if names else (number(output.item()),)))
        for cells, output in zip(kept.itertuples(index=False, name=None), outputs, strict=True)
    )
    return Table((*map(str, kept.columns), label, *(["probability"] if names else [])), rows)
