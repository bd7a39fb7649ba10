"""Predicts the labels of texts in a table, or translates its sentences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...data.places import is_remote, locate
from ...data.tables import read_table, read_text, shown
from ...data.vocabulary import Vocabulary, without_markup
from ...errors import DataError, did_you_mean
from ...training.translations import Translator
from .table import BATCH, Table, chosen, class_count, inputs_fit, outputs_of, probabilities

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd

    from ...messages import Reporter
    from .table import Request
    from .trained import TrainedRun


def check_there(path: str) -> None:
    """Check that a file exists; raise `DataError` if it does not."""
    place = locate(path)
    if not is_remote(place) and not Path(place).is_file():
        what = "is a folder, not a file" if Path(place).is_dir() else "does not exist"
        raise DataError(f"{shown(path)} {what}.")


def refuse_empty(table: pd.DataFrame, column: str, path: str) -> None:
    """Raise `DataError` with the first row that is empty in a column, if there is one."""
    empty = table[column].isna().to_numpy()
    if empty.any():
        raise DataError(f"{shown(path)}: row {empty.argmax() + 1:,} is empty in column '{column}'.")


def open_table(path: str, columns: Sequence[str], **settings: Any) -> pd.DataFrame:
    """Read a CSV table whose cells are texts; raise `DataError` if it cannot be read, or lacks one of these columns."""
    check_there(path)
    table = read_table(path, read_text(path), {}, **settings)
    for name in columns:
        if name not in table.columns:
            nearest = did_you_mean(name, [str(column) for column in table.columns])
            raise DataError(f"{shown(path)} has no column '{name}', which the run was trained on; {nearest}")
    return table


def predict_texts(trained: TrainedRun, request: Request, reporter: Reporter) -> Table:
    """Predict labels. The other columns of the table are kept; without any, rows are numbered from 1.

    Raises:
        DataError: The table cannot be read, or has no column of texts.
    """
    path, record = request.only(), trained.record
    text_column, label_column = record["text_column"], record["label_column"]
    table = open_table(path, [text_column])
    refuse_empty(table, text_column, path)
    texts = [without_markup(text) for text in table[text_column]]
    kept = table.drop(columns=[text_column, *({label_column} & set(table.columns))]).fillna("")
    if not len(kept.columns):
        kept = kept.assign(row=range(1, len(table) + 1)).astype(str)
    model = trained.load_model()
    names = trained.class_names(class_count(model))
    numbers = Vocabulary(record["words"]).encode(texts, record["length"])
    batches = (numbers[start : start + BATCH] for start in range(0, len(numbers), BATCH))
    outputs = outputs_of(model, batches, len(numbers), reporter, trained.activation)
    rows = (
        (*cells, *chosen(probabilities(output), names))
        for cells, output in zip(kept.itertuples(index=False, name=None), outputs, strict=True)
    )
    return Table((*map(str, kept.columns), label_column, "probability"), rows)


def translate_sentences(trained: TrainedRun, request: Request, reporter: Reporter) -> Table:
    """Translate sentences, a row for each line; of a line with tabs, only the part before the first tab.

    Raises:
        DataError: The file cannot be read, or has no sentence.
    """
    path = request.only()
    check_there(path)
    sentences = [line.partition("\t")[0].strip() for line in read_text(path).removesuffix("\n").split("\n")]
    if not any(sentences):
        raise DataError(f"{shown(path)} has no sentences.")
    translator = Translator(trained.load_model(), trained.record)
    return Table(("source", "translation"), _translated(translator, sentences, reporter))


def _translated(translator: Translator, sentences: Sequence[str], reporter: Reporter) -> Iterator[tuple[str, str]]:
    for start in range(0, len(sentences), BATCH):
        part = sentences[start : start + BATCH]
        # The last batch is padded to the shape of the others, so that nothing is compiled again.
        filled = [*part, *[""] * (BATCH - len(part))] if start else part
        with inputs_fit():
            translations = translator.translate(filled)
        yield from ((source, said if source else "") for source, said in zip(part, translations, strict=False))
        reporter.progress("translating", start + len(part), len(sentences), "sentences")
