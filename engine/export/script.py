"""Writes a run as plain Keras, as the Keras docs would: a script, or a notebook with the same sections.

Texts of a run are untrusted: `engine.code` keeps them in strings.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import keras

from ..code import call, docstring, literal, literals, write
from ..config.catalog import DATASETS, is_user_reference
from ..data.data_code import DataCode, datasets
from ..data.kinds.kind import not_exportable
from ..data.kinds.table import KINDS
from ..errors import ConsoleError, DataError
from ..input.placement import augmentation_layers
from ..sanitize import printable
from .keras_code import ExportedRun, model_lines
from .training_code import file_name, input_lines, training_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..code import Imports
    from ..config.run_config import RunConfig
    from ..runs.state import RunState


@dataclass(slots=True)
class Script:
    """A run as plain Keras."""

    title: str
    sections: dict[str, list[str]]  # the lines of each part, by its title
    marks: list[str]  # what differs from the run, in sentences

    @property
    def text(self) -> str:
        """The script."""
        parts = [docstring(self._introduction()) + "\n"]
        for title, lines in self.sections.items():
            heading = f"# {title}\n\n" if title != "Set-up" else ""
            parts.append(heading + "\n".join(lines) + "\n")
        return re.sub(r"\n{4,}", "\n\n\n", "\n".join(parts))  # two empty lines around functions

    @property
    def notebook(self) -> str:
        """The same as a Jupyter notebook."""
        numbers = count(1)
        # In a notebook's text, nothing may be a link, a picture, HTML or a formula.
        plain = re.sub(r"[^\w\s.,:;()/-]|_", lambda match: f"&#{ord(match[0])};", self._introduction())
        cells = [_cell(numbers, "markdown", f"# {plain}")]
        for title, lines in self.sections.items():
            cells.append(_cell(numbers, "markdown", f"## {title}"))
            cells.append(_cell(numbers, "code", "\n".join(lines).strip("\n")))
        kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
        metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
        return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"

    def _introduction(self) -> str:
        same = "It trains on the same examples in the same order, with the same seed, and does not need tpu-console."
        paragraphs = [self.title, same, *(["What differs from the run:"] if self.marks else [])]
        text = "\n\n".join(textwrap.fill(printable(paragraph), 86) for paragraph in paragraphs)
        marks = (textwrap.fill(f"- {printable(mark)}", 86, subsequent_indent="  ") for mark in self.marks)
        return "\n".join((text, *marks))


def _cell(numbers: Iterator[int], kind: str, source: str) -> dict[str, Any]:
    more: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    lines = source.splitlines(keepends=True)
    return {"cell_type": kind, "id": f"cell-{next(numbers)}", "metadata": {}, **more, "source": lines}


def script_of(config: RunConfig, state: RunState, record: dict[str, Any], run_id: str) -> Script:
    """Write a run as plain Keras; the record is its ``inputs.json``.

    Raises:
        ConsoleError: It has not begun to train, or cannot be exported as code.
    """
    if state.accelerator is None or state.data is None or state.fit is None:
        raise ConsoleError(
            f"The run {run_id} has not begun to train.",
            why="The script needs to know its data and its devices.",
            remedy="Wait until it trains, or choose another run.",
        )
    config = config.model_copy(update={"batch_size": state.fit.replica_batch or config.batch_size})
    is_compiled = state.model is not None and state.model.is_compiled
    run = ExportedRun(config, state.accelerator, state.data, state.fit, is_compiled, record)
    if len({replica.process for replica in run.accelerator.replicas}) > 1:
        raise not_exportable(f"{run_id} trained on several hosts, and `hosts`")
    keras.config.set_dtype_policy(config.precision)
    run.imports.add("keras")
    run.imports.add("tensorflow as tf")
    data = data_code(config, run.data.validation_examples or 0, record, run.imports)
    run.marks += data.marks
    top = 1.0 if config.data.pixels == "unit" else data.top or 1.0
    changes = augmentation_layers(config.augmentation, top, config.seed)
    in_model = run.data.augments_in_model
    inputs = input_lines(run, data, [] if in_model else changes)
    model = model_lines(run, changes if in_model else [])
    training = training_lines(run, data.labels)
    environment, devices = run.framework.code(run.accelerator.accelerator, run.replicas)
    results = [
        f'model.save("{file_name(config.name)}.keras")',
        "for name, values in history.history.items():",
        '    print(f"{name}: {values[-1]:.4f}")',
    ]
    if names := sorted({one.action for one in state.steered if not one.refused} & {"epochs", "learning_rate"}):
        text = f"The run was changed while it trained ({', '.join(names)}); here its first settings apply throughout."
        run.marks.append(text)
    sections = {
        "Set-up": [*run.imports.lines(environment), "", *_constants(run), *(["", *devices] if devices else [])],
        "Data": [*data.lines, *inputs],
        "Model": model,
        "Training": training,
        "Results": results,
    }
    title = f"Train {config.name}, as in the run {run_id} of tpu-console."
    return Script(title, sections, [*dict.fromkeys(run.marks)])


def data_code(config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
    """Return the code that reads a run's examples; raise `DataError` if it cannot be exported as code.

    The record is the run's ``inputs.json``. The imports that the code needs are added to `imports`.
    """
    kind = KINDS.get(config.dataset)
    if kind is None:
        return _own(config, record, imports) if is_user_reference(config.dataset) else _arrays(config, imports)
    if missing := [name for name in kind.code_needs if not record.get(name)]:
        raise DataError(f"The run's inputs.json does not contain its {' and '.join(missing)}.")
    code = kind.code(config, held_out, record, imports)
    counts = record.get("class_counts", {})
    if any(sum(pair) == 1 for pair in zip(*counts.values(), strict=False)):
        code.marks.append("A class has only one example: the run used it for training, but the split here will fail.")
    return code


def _own(config: RunConfig, record: dict[str, Any], imports: Imports) -> DataCode:
    forms = record.get("returned", ["examples", "examples"])
    if "" in forms:
        raise DataError(
            f"{config.dataset} returned a generator, a PyDataset or a table, which cannot be exported as code.",
            remedy="Return arrays, such as table.to_numpy(), or a tf.data.Dataset, and train again.",
        )
    parts = dict(zip(("train", "validation"), forms, strict=False))
    names = ", ".join(name if form else "_" for name, form in parts.items())
    lines = [write(call(imports.own(config.dataset), **literals(config.data.options)), 0, f"{names} = ")]
    for name, form in parts.items():
        if form == "arrays":
            lines.append(f"{name} = tf.data.Dataset.from_tensor_slices({name})")
        elif form == "batches":
            lines.append(f"{name} = {name}.unbatch()")
    if "kept" in forms:
        return DataCode(["# Batches as the function made them.", *lines])
    return DataCode(["# Datasets of single examples: (inputs, label).", *lines])


def _arrays(config: RunConfig, imports: Imports) -> DataCode:
    info = DATASETS[config.dataset]
    shape = ", ".join(map(str, info.input_shape))
    if config.dataset == "digits":
        imports.add("load_digits", "sklearn.datasets")
        imports.add("train_test_split", "sklearn.model_selection")
        split = {"test_size": config.data.validation_fraction}
        lines = [
            "images, labels = load_digits(return_X_y=True)",
            f"images = images.reshape(-1, {shape})",
            write(
                call("train_test_split", "images", "labels", **literals(split), random_state="SEED", stratify="labels"),
                0,
                "x_train, x_val, y_train, y_val = ",
            ),
        ]
    else:
        module = config.dataset.replace("-", "_")
        lines = [f"(x_train, y_train), (x_val, y_val) = keras.datasets.{module}.load_data()"]
        if info.input_shape[2] == 1:
            lines += [f"x_train = x_train.reshape(-1, {shape})", f"x_val = x_val.reshape(-1, {shape})"]
        else:
            lines += ["y_train, y_val = y_train.flatten(), y_val.flatten()"]
    if limit := config.data.train_limit:
        lines.append(f"x_train, y_train = x_train[:{limit}], y_train[:{limit}]")
    return DataCode([*lines, *datasets("x", "y")], "y_train", 16.0 if config.dataset == "digits" else 255.0)


def _constants(run: ExportedRun) -> list[str]:
    config = run.config
    batch = f"{config.batch_size}"
    if run.replicas > 1:
        batch += f" * {run.replicas}  # per replica × replicas"
    lines = [f"SEED = {config.seed}", f"BATCH_SIZE = {batch}", f"EPOCHS = {config.epochs}", ""]
    if config.precision != "float32":
        lines.append(f"keras.config.set_dtype_policy({literal(config.precision)})")
    shuffling = config.seed % (2**31 - 2) + 1
    return [
        *lines,
        "keras.utils.set_random_seed(SEED)",
        f"tf.random.set_seed({shuffling})  # for the shuffling below",
    ]
