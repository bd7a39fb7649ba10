"""Predicts the labels of texts in a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...data.vocabulary import Vocabulary, without_markup
from .input_tables import open_table, refuse_empty
from .table import BATCH, Table, chosen, class_count, outputs_of, probabilities

if TYPE_CHECKING:
    from ...messages import Reporter
    from .table import Request
    from .trained import TrainedRun


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
