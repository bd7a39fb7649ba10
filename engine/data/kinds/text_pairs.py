"""Pairs of sentences, such as those of the Anki project: source, tab and target on each line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ...config.values import Section
from ...errors import DataError
from ...storage.paths import user_path
from ..examples import Examples, Input, Signature, Task, of_arrays
from ..labels import random_split
from ..places import IMAGE_ENDINGS, locate, shown
from ..predictions import NewData, Table, TrainedModel
from ..row_files import TABLES, decoded
from ..tables import check_there, refuse_class_options, refuse_lines, require
from .kind import FileKind, InputsRecord, Length, Name, Recognized, Start, VocabularySize, WordCount
from .skimming import Survey, deadline, in_time, nearly_longest, short_text, text_lines, trouble

if TYPE_CHECKING:
    from ...config.run_config import RunConfig
    from ...messages import Reporter

_SAMPLES = 4
_SAMPLED, _MANY = 2000, 20_000  # lines that are looked at; pairs for which a larger model pays off
_LOSSES = ("sparse_categorical_crossentropy",)
_METRICS = ("accuracy", "sparse_categorical_accuracy", "sparse_top_k_categorical_accuracy")
_NOT_LANGUAGES = {*IMAGE_ENDINGS, ".py", ".md", ".txt", ".csv", ".tsv", ".gz", ".zip", ".tar", ".npz", ".npy"}
_NOT_TEXT = TABLES | {".npz", ".npy"}


class TextPairsOptions(Section):
    """Options of `text-pairs`: a source and a target sentence per line, separated by a tab; may be ``.gz``."""

    path: Annotated[Name, "The file."]
    target_path: Annotated[
        str, "A file with the target sentence of each line, if `path` has the source sentences only."
    ] = ""
    vocabulary: Annotated[VocabularySize, "Words kept per language; all others become one unknown word."] = 15_000
    length: Annotated[WordCount, "Words per sentence; longer ones are cut, shorter ones padded."] = 20


class _Record(InputsRecord):
    source: Annotated[list[str], Field(min_length=4)]
    target: Annotated[list[str], Field(min_length=4)]
    length: Length


class TextPairs(FileKind[TextPairsOptions]):
    """Sentences in two languages."""

    name = "text-pairs"
    title = "two sentences per line, separated by a tab"
    Options = TextPairsOptions
    model = "transformer"
    Record = _Record
    new_data = "a text file with a sentence in each line"

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        """Recognize a file with a tab in its first line, or two files in a folder, such as train.en and train.de."""
        if place.is_dir():
            named = [entry for entry in place.iterdir() if re.fullmatch(r"\.[a-z]{2,3}", entry.suffix)]
            texts = sorted(entry for entry in named if entry.suffix not in _NOT_LANGUAGES and entry.is_file())
            stems = [entry.stem for entry in texts]
            stem = next((stem for stem in ("train", "training", *stems) if stems.count(stem) == 2), None)
            if stem is None:
                return None
            pair = [entry for entry in texts if entry.stem == stem]
            source, target = sorted(pair, key=lambda one: one.suffix != ".en")  # English comes first
            return Recognized({"path": str(source), "target_path": str(target)}, sure=0.7)
        with suppress(DataError):  # it is no text
            first = "" if _NOT_TEXT & {*place.suffixes} else next(text_lines(place), "")
            if "\t" in first and "\0" not in first:
                return Recognized({"path": str(place)}, sure=0.5)
        return None

    def survey_files(self, path: Path, options: TextPairsOptions) -> Survey:
        """Count the pairs, up to the first line without one."""
        lines = 0
        for number, line in enumerate(in_time(text_lines(path), deadline()), 1):
            if line.isspace():
                continue
            lines += 1
            if not options.target_path and not all(_halves(line)):
                what = f"{user_path(path)}, line {number:,} has no tab between a source and a target sentence"
                return trouble("path", f"{what}: '{short_text(line.strip())}'")
        return Survey(total=lines) if lines else trouble("path", f"{user_path(path)} is empty")

    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        """Assume that both vocabularies are as large as they may be."""
        options = self.options(config)
        return _signature(options.length, options.vocabulary, options.vocabulary), ""

    def start(self, config: RunConfig, found: Survey) -> Start:
        """Keep as many words as nearly all of the first sentences have, and fit the model to the number of pairs."""
        options = self.options(config)
        files = filter(None, (options.path, options.target_path))
        lines = (line for file in files for line in islice(text_lines(Path(locate(file))), _SAMPLED))
        sentences = (sentence for line in lines for sentence in line.split("\t")[: 1 if options.target_path else 2])
        length, why = nearly_longest([len(sentence.split()) + 1 for sentence in sentences], 10, 60)
        width = 128 if (found.total or 0) < _MANY else 256
        settings = {"data.options.length": length, "model_options": {"width": width, "heads": 8, "hidden": 4 * width}}
        return Start(settings, {"data.options.length": f"{length} words of each sentence; {why} with the end"})

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        """Read the pairs, learn both vocabularies from the training pairs, and turn all words into numbers.

        The label is the target sentence shifted by one word; padding in it has the weight 0, for metrics to ignore it.
        """
        from ..vocabulary import PADDING, SENTENCES, Vocabulary, length_notice

        options = self.options(config)
        require(config, self.model, _LOSSES, _METRICS)
        refuse_class_options(config)
        on_fetch(f"reading {shown(options.path)}")
        pairs = read_pairs(options)
        rows = random_split(len(pairs), "pairs of sentences", config)
        # The source and the target sentences of each part, which may have none.
        halves = [[*zip(*(pairs[row] for row in part), strict=True)] or [(), ()] for part in rows]
        source = Vocabulary.learn(halves[0][0], options.vocabulary)
        target = Vocabulary.learn(halves[0][1], options.vocabulary, SENTENCES)
        parts = []
        for sources, targets in halves:
            so_far, following = target.encode_targets(targets, options.length)
            inputs = {"source": source.encode(sources, options.length), "target": so_far}
            parts.append((inputs, following, (following != PADDING).astype("float32")))  # the weight of each word
        return of_arrays(
            *parts,
            signature=_signature(options.length, len(source), len(target)),
            record={
                "kind": config.dataset,
                "source": source.words,
                "target": target.words,
                "length": options.length,
                "samples": [pairs[row] for row in rows[1][:_SAMPLES]],
            },
            notices=length_notice(parts[0][1], "target sentences"),
        )

    def describe_files(self, config: RunConfig, reporter: Reporter, note: Callable[[str], None]) -> dict[str, Any]:
        from ..describing import describe_texts

        options = self.options(config)
        sources, targets = zip(*read_pairs(options), strict=True)
        return {"texts": describe_texts({"source": sources, "target": targets}, options.length)}

    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Translate sentences, a row for each line; of a line with tabs, only the part before the first tab."""
        path = request.only()
        check_there(path)
        sentences = [line.partition("\t")[0].strip() for line in decoded(path)[0].removesuffix("\n").split("\n")]
        if not any(sentences):
            raise DataError(f"{shown(path)} has no sentences.")
        translations = trained.translations_of(trained.load_model(), sentences, reporter)
        rows = ((source, said if source else "") for source, said in zip(sentences, translations, strict=True))
        return Table(("source", "translation"), rows)


def _halves(line: str) -> tuple[str, str]:
    """Return the sentences before the first tab and after it, up to the next."""
    source, _, rest = line.partition("\t")
    return source.strip(), rest.partition("\t")[0].strip()


def _signature(length: int, source_words: int, target_words: int) -> Signature:
    inputs = {name: Input((length,), "int32") for name in ("source", "target")}
    sizes = {"source_vocabulary": source_words, "target_vocabulary": target_words, "length": length}
    return Signature(Task.TRANSLATION, inputs, sizes=sizes)


def read_pairs(options: TextPairsOptions) -> list[tuple[str, str]]:
    """Read pairs of sentences; further columns, such as Anki's attribution, are ignored.

    Raises `DataError` if a file cannot be read or has a line without two sentences, or two files differ in length.
    """
    path, pairs, broken = options.path, [], []
    lines = decoded(path)[0].rstrip("\n").split("\n")
    targets = decoded(options.target_path)[0].rstrip("\n").split("\n") if options.target_path else [""] * len(lines)
    if len(lines) != len(targets):
        what = f"{shown(path)} has {len(lines):,} lines, and {shown(options.target_path)} {len(targets):,}."
        raise DataError(what, remedy="Each line of one is the translation of the same line of the other.")
    for number, (line, other) in enumerate(zip(lines, targets, strict=True), 1):
        source, target = _halves(line)
        target = other.strip() if options.target_path else target
        if source and target:
            pairs.append((source, target))
        elif line.strip() or other.strip():
            broken.append(number)
    remedy = "Each line is a source sentence, a tab and a target sentence."
    refuse_lines(shown(path), broken, "no source and target sentence", remedy)
    return pairs
