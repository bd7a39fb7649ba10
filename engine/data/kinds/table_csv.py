"""Rows of numbers and categories, and a label that is a class or a number."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ...config.values import Section
from ...errors import DataError
from ..examples import Examples, Input, Signature, Task, of_arrays
from ..places import locate
from ..places import shown as shown_path
from ..predictions import NewData, Table, TrainedModel, predicted
from ..survey.skimming import Survey, column_named, count_classes, first_rows, samples_of, shown
from ..tables import (
    first_of,
    kept_columns,
    noted,
    open_table,
    read_table,
    refuse_class_options,
    refuse_missing,
    refuse_rows,
    require,
    short_name,
)
from .kind import Column, DatasetKind, FilePath, InputsRecord, LabelType, Question, Recognized, Start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ...code import Imports
    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ..data_code import DataCode

_CLASS_LOSSES = ("sparse_categorical_crossentropy", "categorical_crossentropy")
_NUMBER_LOSSES = ("mean_squared_error", "mean_absolute_error", "huber", "log_cosh")
_NUMBER_METRICS = ("mean_absolute_error", "root_mean_squared_error", "mean_squared_error")
_LABELS = ("label", "target", "class", "y", "outcome")
_EMPTY = ["", "NA", "N/A", "NaN", "nan", "null", "None", "?"]  # how tables write that a value is missing
_MOST_CLASSES = 20  # different whole numbers in a label that are taken for classes
_FARTHEST_CLASSES = 100  # how far apart they are at most
_MOST_CATEGORIES = 100  # of a column; rarer ones count as unknown
_MOSTLY = 0.95  # the share of numbers in a column from which the other cells are mistakes
_THOUSANDS = re.compile(r"\s*[+-]?\d{1,3}(,\d{3})+(\.\d+)?\s*")
_SHOWN = 60  # columns that `inspect` describes


class TableCsvOptions(Section):
    """Options of `table-csv`: numbers and categories in a CSV, Parquet or JSON Lines; may be ``.gz``.

    A CSV is separated by `,`, `;` or tabs.
    """

    path: Annotated[FilePath, "The file."]
    label: Annotated[Column, "Column that the model learns to predict."] = "label"
    label_type: LabelType = "class"
    left_out: Annotated[tuple[Column, ...], "Columns that the model does not see, such as row numbers and names."] = ()
    categories: Annotated[tuple[Column, ...], "Columns whose numbers are names, such as postcodes."] = ()

    @property
    def columns(self) -> dict[str, str]:
        """The columns that the table has to have, each with the option that names it."""
        others = {name: option for option in ("left_out", "categories") for name in getattr(self, option)}
        return others | {self.label: "label"}


class LabelScale(BaseModel):
    """How a number is scaled: its mean is subtracted, then it is divided by its standard deviation."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, defer_build=True)
    mean: float
    deviation: Annotated[float, Field(gt=0)]


NO_SCALE = LabelScale(mean=0, deviation=1)


class _Inputs(BaseModel):
    """How the columns become numbers, in the order of the model's inputs."""

    model_config = ConfigDict(strict=True, defer_build=True)
    numbers: dict[str, LabelScale]
    categories: dict[str, list[str]]  # the values that have an input each


class _Record(_Inputs, InputsRecord):
    label_column: str
    separator: str = ","
    class_names: list[str] | None = None
    label: LabelScale | None = None  # of labels that are numbers


class TableCsv(DatasetKind[TableCsvOptions]):
    """A table of numbers and categories.

    Numbers are scaled to mean 0 and standard deviation 1, an empty cell being the mean. A category is 1 in the column
    of its value and 0 in those of the others.
    """

    name = "table-csv"
    title = "a table of numbers and categories"
    Options = TableCsvOptions
    model = "mlp"
    most_per_step = 256
    Record = _Record
    code_needs = ("numbers", "categories")
    new_data = "a table with the columns {seen}"

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        """Recognize a CSV with names of columns that has no texts, ratings or file names."""
        names, rows = first_rows(place)
        heading = [*map(shown, names)]
        if len(heading) < 2 or len({*heading}) < len(heading):
            return None
        columns = {name: [row[index].strip() for row in rows if index < len(row)] for index, name in enumerate(heading)}
        asked = given.get("label")
        label = asked if isinstance(asked, str) else column_named(heading, _LABELS)
        useless = [name for name, values in columns.items() if name != label and _useless(values)]
        candidates = [name for name in heading if name not in useless]
        if len(candidates) < 2:
            return None
        options: dict[str, Any] = {"path": str(place), "left_out": tuple(useless)}
        if label not in columns:
            answers = {name: name for name in reversed(candidates)}
            return Recognized(options, sure=0.55, question=Question("label", "What is to be predicted?", answers))
        # Numbers are classes if there are at most 20 whole ones that are not far apart.
        numbers = {_value(value) for value in columns[label] if value not in _EMPTY}
        are_numbers = bool(numbers) and None not in numbers
        known = [number for number in numbers if number is not None]
        if are_numbers and len(known) <= _MOST_CLASSES and max(known) - min(known) <= _FARTHEST_CLASSES:
            are_numbers = not all(map(float.is_integer, known))
        return Recognized(options | {"label": label, "label_type": "number" if are_numbers else "class"}, sure=0.55)

    def survey(self, path: Path, options: TableCsvOptions) -> Survey:
        """Count the rows, of each class if there are any."""
        has_classes = options.label_type == "class"
        found = count_classes(path, options.columns, options.label if has_classes else "")
        return found if has_classes or found.problems else Survey(total=found.total)

    def start(self, config: RunConfig, found: Survey) -> Start:
        """Say why columns are left out, and show some rows."""
        options = self.options(config)
        heading, rows = first_rows(Path(locate(options.path)))
        why = [f"{name} ({_useless([row[place].strip() for row in rows if place < len(row)]) or 'as asked'})"
               for place, name in enumerate(heading) if name in options.left_out]  # fmt: skip
        seen = [(name, index) for index, name in enumerate(heading) if name not in options.left_out]
        samples = samples_of(rows, lambda row: ", ".join(f"{name} {row[i]}" for name, i in seen if i < len(row)))
        return Start({}, {"data.options.left_out": f"left out: {first_of(why)}"} if why else {}, samples=samples)

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        """Read the table, split it, and learn from the training rows how numbers are scaled and which categories are.

        Raises:
            DataError: The file is missing, a label is, or a cell of numbers has something else.
        """
        options = self.options(config)
        check_table(config, options)
        on_fetch(f"reading {shown_path(options.path)}")
        return table_examples(config, options, _read(options))

    def describe_files(self, config: RunConfig, reporter: Reporter, note: Callable[[str], None]) -> dict[str, Any]:
        """Describe each column: its range and mean, or its most frequent values."""
        options, facts = self.options(config), {}
        table = _read(options)
        for name in table.columns[:_SHOWN]:
            filled = table[name].dropna()
            numbers = filled.map(_value)
            if name not in options.categories and len(filled) and numbers.notna().all():
                facts[name] = f"{numbers.min():.4g} to {numbers.max():.4g}, mean {numbers.mean():.4g}"
            else:
                counts = Counter(filled.str.strip()).most_common()
                facts[name] = first_of([f"{short_name(value, 30)} {count:,}" for value, count in counts], 5)
            if len(filled) < len(table):
                facts[name] += f", {len(table) - len(filled):,} empty"
        return {"facts": facts}

    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Predict labels. Columns that the model does not see are kept; without any, rows are numbered from 1."""
        path, record = request.only(), _Record.model_validate(trained.record)
        seen = [*record.numbers, *record.categories]
        table = open_table(path, seen, na_values=_EMPTY)
        rows, kept = _encoded(table, record, path), kept_columns(table, (*seen, record.label_column))
        return predicted(trained, kept, rows, record.label_column, reporter, has_classes=record.label is None)

    def code(self, config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
        """Return code that reads the table with pandas, and scales and numbers it as the run did."""
        from ...code import assigned
        from ..data_code import random_split, split, table_code

        options = self.options(config)
        csv = {"dtype": "str", "keep_default_na": "False", "na_values": "EMPTY", "skipinitialspace": "True"}
        table = [assigned("TABLE", locate(options.path)), assigned("EMPTY", _EMPTY)]
        table += table_code(imports, options.path, record, **csv)
        parts = random_split(held_out, config.data.train_limit, "labels")
        if options.label_type == "class":
            parts = split(imports, held_out, config.data.train_limit, "labels")
        return rows_code(options, record, imports, table, parts)


def rows_code(
    options: TableCsvOptions, record: dict[str, Any], imports: Imports, table: list[str], parts: list[str]
) -> DataCode:
    """Return code that scales and numbers rows, given the lines that make `table`, and `rows_train` and `rows_val`."""
    from ...code import assigned, literal
    from ..data_code import DataCode, datasets

    known = _Record.model_validate(record)
    imports.add("numpy as np")
    label, has_classes = f"table[{literal(options.label)}].str.strip()", known.label is None
    lines = [
        *([assigned("CLASSES", known.class_names)] if has_classes else []),
        "# Mean and standard deviation of each number; the values of each category.",
        assigned("NUMBERS", {name: (one.mean, one.deviation) for name, one in known.numbers.items()}),
        assigned("CATEGORIES", known.categories),
        *_FUNCTION,
        *table,
        f"labels = {label}.map(CLASSES.index).to_numpy()"
        if has_classes
        else f'labels = pd.to_numeric({label}.str.replace(",", "")).to_numpy("float32")',
        *parts,
        "y_train, y_val = labels[rows_train], labels[rows_val]",
        "x_train, x_val = encoded(table)[rows_train], encoded(table)[rows_val]",
        *datasets("x", "y"),
    ]
    return DataCode(lines, "y_train" if has_classes else "")


def deviation_notice(labels: NDArray[Any]) -> str:
    """Say how far validation labels are from their mean, which is what a model has to beat."""
    error = f"{labels.std():.4g}"
    return f"The validation labels have a standard deviation of {error}, the error of predicting the mean."


def check_table(config: RunConfig, options: TableCsvOptions) -> None:
    """Raise `DataError` if a configuration does not fit the type of the label."""
    if options.label_type == "class":
        require(config, TableCsv.model, _CLASS_LOSSES)
    else:
        check_numbers(config, TableCsv.model)


def check_numbers(config: RunConfig, model: str) -> None:
    """Raise `DataError` if a configuration does not fit labels that are numbers, for a model with this name."""
    require(config, model, _NUMBER_LOSSES, _NUMBER_METRICS)
    refuse_class_options(config)


def table_examples(
    config: RunConfig,
    options: TableCsvOptions,
    table: pd.DataFrame,
    parts: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None,
) -> Examples:
    """Return the examples in a table as `_read` returns it, with the rows of both parts if they are given."""
    from ..split import random_split, split_by_label

    column = table[options.label]
    record: dict[str, Any] = {"kind": config.dataset, "label_column": options.label, **noted(table)}
    if options.label_type == "class":
        names, labels, split = split_by_label(column, options.path, config, parts)
        train, validation, notices = split.train, split.validation, split.notices
        record |= {"class_names": names, "class_counts": split.class_counts}
        label = NO_SCALE
    else:
        names, labels = (), _numbers(column, options.path).to_numpy().astype("float32")
        train, validation = parts or random_split(len(labels), "rows", config)
        label = scale_of(labels[train])
        record |= {"label": label.model_dump()}
        notices = (deviation_notice(labels[validation]),)
    learned, more = _learned(table, train, options)
    rows = _encoded(table, learned, options.path)
    return of_arrays(
        *((rows[part], labels[part]) for part in (train, validation)),
        signature=signature_of({"row": Input((rows.shape[1],))}, len(names), label),
        class_names=names,
        record=record | learned.model_dump(),
        notices=(*notices, *more),
    )


_FUNCTION = '''

def encoded(table):
    """Return rows of numbers with mean 0 and deviation 1, and of categories as 0 and 1."""
    numbers = [
        (pd.to_numeric(table[name].str.replace(",", "").str.strip()).fillna(mean) - mean) / deviation
        for name, (mean, deviation) in NUMBERS.items()
    ]
    categories = [
        table[name].fillna("").str.strip() == value
        for name, values in CATEGORIES.items()
        for value in values
    ]
    return np.stack(numbers + categories, axis=1).astype("float32")


'''.splitlines()


def _value(cell: str) -> float | None:
    """Return the number in a cell; None if it has something else."""
    try:
        return float(cell.replace(",", "") if _THOUSANDS.fullmatch(cell) else cell)
    except ValueError:
        return None


def _useless(values: list[str]) -> str:
    """Return why a column says nothing about new rows, given its first cells; an empty string if it may say some."""
    filled = [value for value in values if value not in _EMPTY]
    different = {*filled}
    if len(different) < 2:
        return "always the same" if different else "empty"
    if len(filled) <= _MOST_CLASSES or len(different) <= len(filled) // 2:
        return ""
    numbers = [number for value in different if (number := _value(value)) is not None]
    if len(numbers) < len(different):
        return "nearly every value differs"
    is_count = len(different) == len(filled) and max(numbers) - min(numbers) == len(filled) - 1
    return "counts the rows" if is_count and all(map(float.is_integer, numbers)) else ""


def _read(options: TableCsvOptions) -> pd.DataFrame:
    """Return the table as text, with NaN in empty cells and a label in every row."""
    table = read_table(options.path, options.columns, na_values=_EMPTY)
    refuse_missing(options.path, table, [options.label])
    return table


def _numbers(column: pd.Series[str], path: str) -> pd.Series[float]:
    """Return the numbers in a column, NaN in empty cells; raise `DataError` with the lines that have something else."""
    import numpy as np
    import pandas as pd

    numbers: pd.Series[float] = pd.to_numeric(column, errors="coerce").astype("float64")
    broken = (column.notna() & ~np.isfinite(numbers)).to_numpy()
    if broken.any():  # 1,234 may be a number
        numbers[broken] = column[broken].map(_value).astype("float64")
        broken = broken & ~np.isfinite(numbers.to_numpy())
    refuse_rows(path, broken, f"no number in column '{column.name}'")
    return numbers


def signature_of(inputs: dict[str, Input], classes: int, label: LabelScale) -> Signature:
    """Return the signature of inputs and a label that is a class, or a number on a scale."""
    task = Task.CLASSES if classes else Task.NUMBER
    return Signature(task, inputs, classes, label_mean=label.mean, label_deviation=label.deviation)


def scale_of(values: Any) -> LabelScale:
    """Return how to scale some numbers; equal ones are only moved to 0."""
    return LabelScale(mean=float(values.mean()), deviation=float(values.std(ddof=0)) or 1.0)


def _learned(table: pd.DataFrame, train: NDArray[np.intp], options: TableCsvOptions) -> tuple[_Inputs, tuple[str, ...]]:
    """Learn the inputs from the training rows, and say which categories are cut off.

    A column is one of numbers if all of its cells are, or if 19 of 20 are: then the others are mistakes.
    """
    inputs, notices = _Inputs(numbers={}, categories={}), []
    for name in table.columns:
        if name == options.label or name in options.left_out:
            continue
        filled = table[name].dropna()
        if name not in options.categories and sum(_value(cell) is not None for cell in filled) > _MOSTLY * len(filled):
            numbers = _numbers(table[name], options.path).iloc[train].dropna()
            if len(numbers):
                inputs.numbers[name] = scale_of(numbers)
            continue
        counts = Counter(table[name].iloc[train].fillna("").str.strip())
        inputs.categories[name] = sorted(value for value, _ in counts.most_common(_MOST_CATEGORIES))
        if len(counts) > _MOST_CATEGORIES:
            cut = f"the model knows the {_MOST_CATEGORIES} most frequent ones"
            notices.append(f"Column '{name}' has {len(counts):,} different values; {cut}.")
    if not inputs.numbers and not inputs.categories:
        raise DataError(f"{shown_path(options.path)} has no column to learn from.", remedy="Set data.options.left_out.")
    return inputs, tuple(notices)


def _encoded(table: pd.DataFrame, inputs: _Inputs, path: str) -> NDArray[np.float32]:
    """Return a row of inputs for each row of a table, of shape (rows, inputs)."""
    import numpy as np

    columns: list[pd.Series[Any]] = []
    for name, scale in inputs.numbers.items():
        columns.append((_numbers(table[name], path).fillna(scale.mean) - scale.mean) / scale.deviation)
    columns += [table[name].fillna("").str.strip() == value
                for name, values in inputs.categories.items() for value in values]  # fmt: skip
    return np.stack(columns, axis=1).astype("float32")
