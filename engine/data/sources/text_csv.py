"""Loads a table of texts and labels, such as film reviews and their sentiment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from ...config.data_options import TextCsvOptions
from ...errors import DataError
from ..examples import Examples, Input, Signature, Task
from ..plain_text import class_order
from ..split import stratified_split
from ..tables import read_table, read_text, refuse_rows, require, shown
from ..vocabulary import Vocabulary, length_notice, without_markup

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from numpy.typing import NDArray

    from ...config.run_config import RunConfig

_LOSSES = ("sparse_categorical_crossentropy", "categorical_crossentropy")


def load(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
    """Read the table, split it class by class, and learn the vocabulary from the training texts.

    Raises:
        DataError: The file cannot be used, or the model or loss does not fit it.
    """
    options = TextCsvOptions.model_validate(config.data.options)
    require(config, "text", _LOSSES)
    on_fetch(f"reading {shown(options.path)}")
    texts, labels, class_names = _read(options)
    split = stratified_split(labels, class_names, config.data.validation_fraction, config.seed, config.data.train_limit)
    vocabulary = Vocabulary.learn((texts[index] for index in split.train), options.vocabulary)
    train, validation = (
        (vocabulary.encode([texts[index] for index in part], options.length), labels[part])
        for part in (split.train, split.validation)
    )
    return Examples(
        train=tf.data.Dataset.from_tensor_slices(train),
        validation=tf.data.Dataset.from_tensor_slices(validation) if len(split.validation) else None,
        train_count=len(split.train),
        validation_count=len(split.validation),
        signature=Signature(
            Task.CLASSES,
            {"text": Input((options.length,), "int32")},
            len(class_names),
            sizes={"vocabulary": len(vocabulary)},
        ),
        class_names=class_names,
        record={
            "kind": config.dataset,
            "text_column": options.text_column,
            "label_column": options.label_column,
            "words": vocabulary.words,
            "length": options.length,
            "class_names": class_names,
            "class_counts": split.class_counts,
        },
        notices=(*split.notices, *length_notice(train[0], "texts")),
    )


def _read(options: TextCsvOptions) -> tuple[list[str], NDArray[np.int32], tuple[str, ...]]:
    columns = {"text_column": options.text_column, "label_column": options.label_column}
    table = read_table(options.path, read_text(options.path), columns)
    table = table[[options.text_column, options.label_column]]
    for column in columns.values():
        missing = (table[column].isna() | (table[column].str.strip() == "")).to_numpy()
        refuse_rows(options.path, missing, f"nothing in column '{column}'")
    names = _class_names(table[options.label_column], options)
    numbers = {name: number for number, name in enumerate(names)}
    labels = table[options.label_column].str.strip().map(numbers).to_numpy().astype(np.int32)
    return [without_markup(text) for text in table[options.text_column]], labels, names


def _class_names(column: pd.Series[str], options: TextCsvOptions) -> tuple[str, ...]:
    """Return the classes in order: numbers by value, then names."""
    names = column.str.strip().unique().tolist()
    if len(names) == 1:
        raise DataError(
            f"{shown(options.path)}: all {len(column):,} labels in column '{options.label_column}' are '{names[0]}'.",
            remedy="Training needs at least two classes; set data.options.label_column to another column.",
        )
    if len(names) > len(column) // 2:
        raise DataError(
            f"{shown(options.path)}: column '{options.label_column}' has {len(names):,} different labels in "
            f"{len(column):,} rows, too many for a classification.",
            remedy="Set data.options.label_column to the column with the classes.",
        )
    return tuple(sorted(names, key=class_order))
