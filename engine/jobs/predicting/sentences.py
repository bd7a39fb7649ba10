"""Translates a text file with one sentence per line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...data.tables import read_text, shown
from ...errors import DataError
from ...training.translations import Translator
from .input_tables import check_there
from .table import BATCH, Table, inputs_fit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ...messages import Reporter
    from .table import Request
    from .trained import TrainedRun


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
