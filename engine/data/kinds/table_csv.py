"""Rows of numbers and categories, and a label that is a class or a number."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict

from ...config.values import Section
from ...errors import DataError
from ..examples import Examples, Input
from ..labels import LabelScale, scale_of, split_by_label, split_numbers
from ..places import locate, shown
from ..predictions import NewData, Table, TrainedModel, predicted
from ..tables import first_of, kept_columns, noted, open_table, read_table, refuse_lines, refuse_missing, short_name
from .kind import FileKind, InputsRecord, LabelType, Name, Question, Recognized, Start, check_label
from .skimming import Survey, column_named, count_classes, first_rows, last_rows, samples_of, short_text

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ..code import DataCode
    from ..labels import Parts

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

    path: Annotated[Name, "The file."]
    label: Annotated[Name, "Column that the model learns to predict."] = "label"
    label_type: LabelType = "class"
    left_out: Annotated[tuple[Name, ...], "Columns that the model does not see, such as row numbers and names."] = ()
    categories: Annotated[tuple[Name, ...], "Columns whose numbers are names, such as postcodes."] = ()

    @property
    def columns(self) -> dict[str, str]:
        """The columns that the table has to have, each with the option that names it."""
        others = {name: option for option in ("left_out", "categories") for name in getattr(self, option)}
        return others | {self.label: "label"}


class _Inputs(BaseModel):
    """How the columns become numbers, in the order of the model's inputs."""

    model_config = ConfigDict(strict=True, defer_build=True)
    numbers: dict[str, LabelScale]
    categories: dict[str, list[str]]  # the values that have an input each


class _Record(_Inputs, InputsRecord):
    label_column: str
    class_names: list[str] | None = None
    label: LabelScale | None = None  # of labels that are numbers


class TableCsv(FileKind[TableCsvOptions]):
    """A table of numbers and categories.

    Numbers get mean 0 and standard deviation 1, an empty cell is the mean; a category is 1 in the column of its value.
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
        heading = [*map(short_text, names)]
        if len(heading) < 2 or len({*heading}) < len(heading):
            return None
        columns, ends = (_columns(heading, part) for part in (rows, last_rows(place)))
        asked = given.get("label")
        label = asked if isinstance(asked, str) else column_named(heading, _LABELS)
        useless = tuple(name for name in heading if name != label and _useless(columns[name], ends[name]))
        candidates = [name for name in heading if name not in useless]
        if len(candidates) < 2:
            return None
        options: dict[str, Any] = {"path": str(place), "left_out": useless}
        if label not in columns:
            answers = {name: name for name in reversed(candidates)}
            return Recognized(options, sure=0.55, question=Question("label", "What is to be predicted?", answers))
        label_type = "class" if _are_classes(columns[label] + ends[label]) else "number"
        return Recognized(options | {"label": label, "label_type": label_type}, sure=0.55)

    def survey_files(self, path: Path, options: TableCsvOptions) -> Survey:
        classes = [options.label] if options.label_type == "class" else []
        return count_classes(path, options.columns, classes, filled=[options.label], empty=_EMPTY)

    def start(self, config: RunConfig, found: Survey) -> Start:
        options = self.options(config)
        heading, rows = first_rows(Path(locate(options.path)))
        columns = _columns(heading, rows)
        left_out = [name for name in heading if name in options.left_out]

        def line(row: list[str]) -> str:
            cells = zip(heading, row, strict=False)
            return ", ".join(f"{name} {cell}" for name, cell in cells if name not in left_out)

        why = first_of([f"{name} ({_useless(columns[name]) or 'as asked'})" for name in left_out])
        reasons = {"data.options.left_out": f"left out: {why}"} if why else {}
        return Start({}, reasons, samples=samples_of(rows, line))

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        """Read the table, split it, and learn from the training rows how to scale numbers, and which categories are."""
        options = self.options(config)
        check_label(config, options.label_type, self.model)
        on_fetch(f"reading {shown(options.path)}")
        return self.examples(config, options, _read(options))

    def examples(self, config: RunConfig, options: Any, table: pd.DataFrame, parts: Parts | None = None) -> Examples:
        """Return the examples in a table as `_read` returns it, with the rows of both parts if they are given."""
        column = table[options.label]
        if options.label_type == "class":
            labels = split_by_label(column, options.path, config, parts)
        else:
            labels = split_numbers(_numbers(column, options.path).to_numpy().astype("float32"), config, parts)
        learned, notices = _learned(table, labels.parts[0], options)
        rows = _encoded(table, learned, options.path)
        record = {"kind": config.dataset, "label_column": options.label, **noted(table), **learned.model_dump()}
        return labels.examples(rows, {"row": Input((rows.shape[1],))}, record, notices)

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
        table = open_table(path, seen, _EMPTY)
        kept = kept_columns(table, (*seen, record.label_column))
        rows = _encoded(table, record, path)
        return predicted(trained, kept, rows, record.label_column, reporter, has_classes=record.label is None)

    def write_code(self, code: DataCode) -> None:
        options = self.options(code.config)
        csv = {"dtype": "str", "keep_default_na": "False", "na_values": "EMPTY", "skipinitialspace": "True"}
        self.write_rows(code, options, partial(code.table, options.path, csv, EMPTY=_EMPTY))

    def write_rows(self, code: DataCode, options: Any, table: Callable[[], None], rows: Sequence[str] = ()) -> None:
        """Write the lines that scale and encode rows; `table` writes those that make the table; `rows`: see `split`."""
        known, column = _Record.model_validate(code.record), f"table[{code.literal(options.label)}].str.strip()"
        labels = f'pd.to_numeric({column}.str.replace(",", "")).to_numpy("float32")'
        code.needs("pandas as pd")
        if has_classes := known.label is None:
            code.assign(CLASSES=known.class_names)
            labels = f"{column}.map(CLASSES.index).to_numpy()"
        code.add("# Mean and standard deviation of each number; the values of each category.")
        scales = {name: (scale.mean, scale.deviation) for name, scale in known.numbers.items()}
        code.assign(NUMBERS=scales, CATEGORIES=known.categories)
        code.functions(_FUNCTION)
        table()
        code.add(f"labels = {labels}")
        code.split("labels", "labels" if has_classes else "", rows=rows)
        code.add("x_train, x_val = encoded(table)[rows_train], encoded(table)[rows_val]")
        code.datasets("x", "y_train" if has_classes else "")


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
'''


def _value(cell: str) -> float | None:
    """Return the number in a cell; None if it has something else."""
    try:
        return float(cell.replace(",", "") if _THOUSANDS.fullmatch(cell) else cell)
    except ValueError:
        return None


def _columns(heading: Sequence[str], rows: Sequence[list[str]]) -> dict[str, list[str]]:
    """Return the cells of each column."""
    return {name: [row[place].strip() for row in rows if place < len(row)] for place, name in enumerate(heading)}


def _useless(values: Sequence[str], ends: Sequence[str] = ()) -> str:
    """Return why a column says nothing about new rows, given its first and last cells; nothing if it may say some."""
    filled = [value for value in values if value not in _EMPTY]
    different = {*filled}
    if len(different.union(ends).difference(_EMPTY)) < 2:
        return "always the same" if different else "empty"
    if len(filled) <= _MOST_CLASSES or len(different) <= len(filled) // 2:
        return ""
    numbers = [number for value in different if (number := _value(value)) is not None]
    if len(numbers) < len(different):
        are_mistakes = sum(_value(value) is not None for value in filled) > _MOSTLY * len(filled)
        return "" if are_mistakes else "nearly every value differs"  # the lines of mistakes are refused
    is_count = len(different) == len(filled) and max(numbers) - min(numbers) == len(filled) - 1
    return "counts the rows" if is_count and all(map(float.is_integer, numbers)) else ""


def _are_classes(values: Sequence[str]) -> bool:
    """Return whether labels are classes: words, or a few whole numbers that are not far apart.

    A few words among fractions are mistakes, whose lines are refused.
    """
    filled = [_value(value) for value in values if value not in _EMPTY]
    numbers, words = {number for number in filled if number is not None}, filled.count(None)
    are_whole = all(map(float.is_integer, numbers))
    if not numbers or (words and (are_whole or len(filled) - words <= _MOSTLY * len(filled))):
        return True
    return are_whole and len(numbers) <= _MOST_CLASSES and max(numbers) - min(numbers) <= _FARTHEST_CLASSES


def _read(options: TableCsvOptions) -> pd.DataFrame:
    """Return the table as text, with NaN in empty cells and a label in every row."""
    table = read_table(options.path, options.columns, _EMPTY)
    refuse_missing(options.path, table, [options.label])
    return table


def _numbers(column: pd.Series[str], path: str) -> pd.Series[float]:
    """Return the numbers in a column, NaN in empty cells; raise `DataError` with the lines that have something else."""
    import numpy as np
    import pandas as pd

    numbers: pd.Series[float] = pd.to_numeric(column, errors="coerce").astype("float64")
    broken = column.notna() & ~np.isfinite(numbers)
    if broken.any():  # 1,234 may be a number
        numbers[broken] = column[broken].map(_value).astype("float64")
        broken &= ~np.isfinite(numbers)
    refuse_lines(shown(path), column.index[broken], f"no number in column '{column.name}'")
    return numbers


def _learned(table: pd.DataFrame, train: NDArray[np.intp], options: TableCsvOptions) -> tuple[_Inputs, tuple[str, ...]]:
    """Learn the inputs from the training rows, and say which categories are cut off.

    If 19 of 20 cells in a column are numbers, the others count as mistakes.
    """
    inputs, notices = _Inputs(numbers={}, categories={}), []
    for name in table.columns.difference([options.label, *options.left_out], sort=False):
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
        raise DataError(f"{shown(options.path)} has no column to learn from.", remedy="Set data.options.left_out.")
    return inputs, tuple(notices)


def _encoded(table: pd.DataFrame, inputs: _Inputs, path: str) -> NDArray[np.float32]:
    """Return a row of inputs for each row of a table, of shape (rows, inputs)."""
    import numpy as np

    columns: list[pd.Series[Any]] = []
    for name, scale in inputs.numbers.items():
        columns.append((_numbers(table[name], path).fillna(scale.mean) - scale.mean) / scale.deviation)
    for name, values in inputs.categories.items():
        columns += [table[name].fillna("").str.strip() == value for value in values]
    return np.stack(columns, axis=1).astype("float32")
