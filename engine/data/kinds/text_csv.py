"""Texts and their labels, such as film reviews and their sentiment."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec.structs import replace
from pydantic import Field

from ...config.values import Section
from ..examples import Examples, Input, Signature, Task
from ..places import locate, shown
from ..predictions import NewData, Table, TrainedModel, predicted
from ..split import parts_of, split_by_label
from ..survey import skimming
from ..survey.skimming import Survey, column_named, first_rows
from ..tables import kept_columns, noted, open_table, read_table, refuse_missing
from .kind import (
    FileKind,
    InputsRecord,
    Length,
    Name,
    OptionsT,
    Question,
    Recognized,
    Start,
    VocabularySize,
    WordCount,
    check_label,
    class_count,
    functions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from ...code import Imports
    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ..data_code import DataCode
    from ..split import Parts

TEXT_NAMES, _LABELS = ("text", "review", "sentence", "content", "message"), ("label", "sentiment", "class", "category")
_SENTENCE = 3  # words that a column of texts has on average


class TextCsvOptions(Section):
    """Options of `text-csv`: texts and labels in a CSV, Parquet or JSON Lines; may be ``.gz``."""

    path: Annotated[Name, "The file."]
    inputs: Annotated[Name, "Column of texts; HTML tags are removed."] = "text"
    label: Annotated[Name, "Column of labels."] = "label"
    vocabulary: Annotated[VocabularySize, "Words kept; all others become one unknown word."] = 20_000
    length: Annotated[WordCount, "Words per text; longer ones are cut, shorter ones padded."] = 200


class _Record(InputsRecord):
    text_column: str
    label_column: str
    words: Annotated[list[str], Field(min_length=2)]
    length: Length
    class_names: list[str] | None = None


class TextKind(FileKind[OptionsT]):
    """Texts with a class each; their options have `inputs`, `label`, `vocabulary` and `length`."""

    model = "text"
    Record = _Record
    code_needs = ("class_names", "words")

    @abstractmethod
    def read(self, options: OptionsT, on_fetch: Callable[[str], None]) -> tuple[pd.DataFrame, int, tuple[str, ...]]:
        """Return a table of texts and labels, training rows first; the number of training rows; and notices."""

    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        """Assume that the vocabulary is as large as it may be."""
        classes, assumed = class_count(self.name, found)
        return text_signature(self.options(config), classes), assumed

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        """Read the texts, split them class by class, and learn the vocabulary from those for training."""
        options: Any = self.options(config)
        check_label(config, "class", self.model)
        table, train, notices = self.read(options, on_fetch)
        refuse_missing(options.path, table, (options.inputs, options.label))
        examples = self.examples(config, options, table, parts_of(train, len(table), config))
        return replace(examples, notices=(*notices, *examples.notices))

    def examples(self, config: RunConfig, options: Any, table: pd.DataFrame, parts: Parts | None) -> Examples:
        """Return the examples in a table of texts and labels, with the rows of both parts if given."""
        from ..vocabulary import Vocabulary, length_notice, without_markup

        labels = split_by_label(table[options.label], options.path, config, parts)
        texts = [without_markup(text) for text in table[options.inputs].fillna("")]
        vocabulary = Vocabulary.learn((texts[index] for index in labels.parts[0]), options.vocabulary)
        rows = vocabulary.encode(texts, options.length)
        record = {
            "kind": config.dataset,
            "text_column": options.inputs,
            "label_column": options.label,
            "words": vocabulary.words,
            "length": options.length,
            **noted(table),
        }
        notices, sizes = length_notice(rows[labels.parts[0]], "texts"), {"vocabulary": len(vocabulary)}
        return labels.examples(rows, {"text": Input((options.length,), "int32")}, record, notices, sizes)

    def describe_files(self, config: RunConfig, reporter: Reporter, note: Callable[[str], None]) -> dict[str, Any]:
        """Describe the texts and labels as `describe_texts` does."""
        from ..describing import describe_texts

        options: Any = self.options(config)
        table = self.read(options, note)[0].fillna("")
        texts = {"text": table[options.inputs].tolist()}
        return {"texts": describe_texts(texts, options.length, table[options.label].tolist())}

    def new_texts(self, path: str, column: str) -> pd.DataFrame:
        """Return a table of new texts; raise `DataError` if it has no such column."""
        return open_table(path, [column])

    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Predict labels. The other columns of the table are kept; without any, rows are numbered from 1."""
        from ..vocabulary import Vocabulary, without_markup

        path, record = request.only(), trained.record
        text_column, label_column = record["text_column"], record["label_column"]
        table = self.new_texts(path, text_column)
        refuse_missing(path, table, [text_column])
        kept = kept_columns(table, (text_column, label_column))
        numbers = Vocabulary(record["words"]).encode([*map(without_markup, table[text_column])], record["length"])
        return predicted(trained, kept, numbers, label_column, reporter)

    def rows_code(
        self, options: Any, record: dict[str, Any], imports: Imports, table: list[str], parts: list[str]
    ) -> DataCode:
        """Return code that learns the vocabulary again, given lines that make `table`, `rows_train` and `rows_val`."""
        from ...code import assigned, literal
        from ..data_code import DataCode, datasets
        from ..vocabulary import PLAIN

        for name in ("re", "unicodedata", "numpy as np", "pandas as pd"):
            imports.add(name)
        imports.add("Counter", "collections")
        most = options.vocabulary - len(PLAIN)
        lines = [
            assigned("CLASSES", record["class_names"]),
            f"LENGTH = {options.length}  # words per text",
            *_FUNCTIONS,
            *table,
            f"labels = table[{literal(options.label)}].str.strip().map(CLASSES.index).to_numpy()",
            f"texts = [words_of(text) for text in table[{literal(options.inputs)}]]",
            *parts,
            "y_train, y_val = labels[rows_train], labels[rows_val]",
            "",
            "counts = Counter(word for row in rows_train for word in texts[row])",
            f"vocabulary = {{word: n for n, (word, _) in enumerate(counts.most_common({most}), 2)}}",
            "x_train = encode([texts[row] for row in rows_train])",
            "x_val = encode([texts[row] for row in rows_val])",
            *datasets("x", "y"),
        ]
        return DataCode(lines, "y_train")


def text_signature(options: Any, classes: int) -> Signature:
    """Return the shapes of texts, given the options of a `TextKind`; the vocabulary may be smaller."""
    inputs = {"text": Input((options.length,), "int32")}
    return Signature(Task.CLASSES, inputs, classes, {"vocabulary": options.vocabulary})


def text_start(words: Sequence[int], samples: tuple[str, ...]) -> Start:
    """Return how to train on texts: with as many words of each as nearly all of the first ones have."""
    length, why = skimming.nearly_longest(words, 30, 500)
    reason = f"{length} words of each text; {why}"
    return Start({"data.options.length": length}, {"data.options.length": reason}, samples=samples)


class TextCsv(TextKind[TextCsvOptions]):
    """A table of texts and labels."""

    name = "text-csv"
    title = "a table of texts and labels"
    Options = TextCsvOptions
    new_data = "a table with the column {text_column}"

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        """Recognize a CSV by the names of its columns, or by one that has most of the words and another with labels."""
        heading, rows = first_rows(place)
        asked, text = given.get("label"), column_named(heading, TEXT_NAMES)
        label = asked if isinstance(asked, str) else column_named(heading, _LABELS)
        sure = 0.8 if text and label else 0.6
        if not text:
            words = {name: sum(_words(rows, index)) for index, name in enumerate(heading)}
            text = max(words, key=lambda name: words[name], default="")
            if not text or words[text] < max(_SENTENCE * len(rows), sum(words.values()) / 2):
                return None
        rows += [] if label else skimming.last_rows(place)
        labels = [label] if label else skimming.label_columns(heading, rows, [text])
        found = {"path": str(place), "inputs": text}
        if len(labels) == 1:
            return Recognized({**found, "label": labels[0]}, sure)
        question = Question("label", "Which column has the labels?", {name: name for name in labels})
        return Recognized(found, sure, question) if labels else None

    def survey_files(self, path: Path, options: TextCsvOptions) -> Survey:
        """Count the texts of each class."""
        return skimming.count_classes(path, {options.inputs: "inputs", options.label: "label"}, [options.label])

    def start(self, config: RunConfig, found: Survey) -> Start:
        """Keep as many words of each text as nearly all of the first ones have."""
        options = self.options(config)
        heading, rows = first_rows(Path(locate(options.path)))
        text, label = heading.index(options.inputs), heading.index(options.label)
        whole = [row for row in rows if len(row) > max(text, label)]
        samples = skimming.samples_of(whole, lambda row: f"{row[label]}: {row[text]}")
        return text_start(_words(rows, text), samples)

    def read(
        self, options: TextCsvOptions, on_fetch: Callable[[str], None]
    ) -> tuple[pd.DataFrame, int, tuple[str, ...]]:
        """Read the table."""
        on_fetch(f"reading {shown(options.path)}")
        table = read_table(options.path, {options.inputs: "inputs", options.label: "label"})
        return table, len(table), ()

    def code(self, config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
        """Return code that reads the table with pandas, and learns the vocabulary again."""
        from ...code import assigned
        from ..data_code import split, table_code

        options = self.options(config)
        table = [assigned("TABLE", locate(options.path)), *table_code(imports, options.path, record, dtype="str")]
        parts = split(imports, held_out, config.data.train_limit, "labels")
        return self.rows_code(options, record, imports, table, parts)


_FUNCTIONS = functions('''
def words_of(text):
    """Return the words of a text, without HTML tags and punctuation."""
    text = re.sub(r"</?[a-zA-Z][^<>]*>", " ", text).lower()
    text = re.sub("['’ʼ`´]", "", text)
    plain = (" " if unicodedata.category(c)[0] in "PS" else c for c in text)
    return "".join(plain).split()


def encode(texts):
    """Return the numbers of the words: 0 is padding, 1 an unknown word."""
    numbers = np.zeros((len(texts), LENGTH), "int32")
    for row, text in zip(numbers, texts):
        known = [vocabulary.get(word, 1) for word in text[:LENGTH]]
        row[: len(known)] = known
    return numbers
''')


def _words(rows: list[list[str]], place: int) -> list[int]:
    """Return how many words each row has in one column."""
    return [len(row[place].split()) for row in rows if place < len(row)]
