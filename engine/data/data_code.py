"""Lines of an exported script that read examples, which the kinds share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..code.writing import call, write
from .places import is_remote

if TYPE_CHECKING:
    from ..code.imports import Imports


@dataclass(slots=True)
class DataCode:
    """Code that makes `train` and `validation`, datasets of single examples."""

    lines: list[str]
    labels: str = ""  # the variable with the class numbers of the training examples; empty if there is none
    top: float = 0.0  # the largest stored pixel; 0 if the examples are not images
    are_shares: bool = False  # whether a label is a probability for each class
    marks: list[str] = field(default_factory=list)  # what differs from the run, in sentences


def datasets(inputs: str, labels: str) -> list[str]:
    """Return the lines that make both datasets from arrays, such as ``x_train`` and ``x_val``."""
    name = "tf.data.Dataset.from_tensor_slices"
    return [f"train = {name}(({inputs}_train, {labels}_train))", f"validation = {name}(({inputs}_val, {labels}_val))"]


def split(imports: Imports, held_out: int, limit: int, numbers: str) -> list[str]:
    """Return the lines that split rows by their class numbers as `stratified_split` does."""
    imports.add("numpy as np")
    imports.add("train_test_split", "sklearn.model_selection")
    given = {"test_size": str(held_out), "random_state": "SEED", "stratify": numbers}
    shuffled = "np.random.default_rng(SEED).permutation(np.sort(rows_train))"
    return [
        f"rows = np.arange(len({numbers}))",
        write(call("train_test_split", "rows", **given), 0, "rows_train, rows_val = "),
        f"rows_train = {shuffled}{f'[:{limit}]' if limit else ''}",
    ]


def opened(path: str) -> str:
    """Return what pandas reads: of a remote table, only what TensorFlow opens, as in the run."""
    return "tf.io.gfile.GFile(TABLE)" if is_remote(path) else "TABLE"
