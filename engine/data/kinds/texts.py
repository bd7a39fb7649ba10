"""Texts and their labels, such as film reviews: in a table, or in one folder per class."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from msgspec.structs import replace
from pydantic import Field

from ...config.values import Section
from ...errors import DataError
from ...storage.paths import user_path
from ..examples import Examples, Input, Signature, Task
from ..images.files import files_below
from ..labels import parts_of, split_by_label
from ..places import is_remote, join, locate, shown
from ..predictions import NewData, Table, TrainedModel, predicted
from ..row_files import ENCODINGS, UTF_8, decoded
from ..tables import first_of, kept_columns, noted, open_table, read_table, refuse_missing
from . import image_files, kind, skimming
from .kind import InputsRecord, Name, OptionsT, Recognized, Start, VocabularySize, WordCount
from .skimming import Survey, column_named, first_rows

if TYPE_CHECKING:
    import pandas as pd

    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ..code import DataCode
    from ..labels import Parts

TEXT_NAMES, _LABELS = ("text", "review", "sentence", "content", "message"), ("label", "sentiment", "class", "category")
_SENTENCE = 3  # words that a column of texts has on average
_LOOKED_AT = 1000  # texts of all classes from which the length is chosen


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
    length: kind.Length
    class_names: list[str] | None = None


class TextKind(kind.FileKind[OptionsT]):
    """Texts with a class each; their options have `inputs`, `label`, `vocabulary` and `length`."""

    model = "text"
    Record = _Record
    code_needs = ("class_names", "words")

    @abstractmethod
    def read(self, options: OptionsT, on_fetch: Callable[[str], None]) -> tuple[pd.DataFrame, int, tuple[str, ...]]:
        """Return a table of texts and labels, training rows first; the number of training rows; and notices."""

    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        """Assume that the vocabulary is as large as it may be."""
        classes, assumed = kind.class_count(self.name, found)
        return text_signature(self.options(config), classes), assumed

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        """Read the texts, split them class by class, and learn the vocabulary from those for training."""
        options: Any = self.options(config)
        kind.check_label(config, "class", self.model)
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

    def write_rows(self, code: DataCode, options: Any, table: Callable[[], None], rows: Sequence[str] = ()) -> None:
        """Write the lines that learn the vocabulary; `table` writes those that make the table; `rows`: see `split`."""
        from ..vocabulary import PLAIN

        most, inputs, label = options.vocabulary - len(PLAIN), code.literal(options.inputs), code.literal(options.label)
        code.needs("re", "unicodedata", "pandas as pd", Counter="collections")
        code.assign(CLASSES=code.record["class_names"])
        code.add(f"LENGTH = {options.length}  # words per text")
        code.functions(_FUNCTIONS)
        table()
        code.add(f"labels = table[{label}].str.strip().map(CLASSES.index).to_numpy()")
        code.add(f"texts = [words_of(text) for text in table[{inputs}]]")
        code.split("labels", "labels", rows=rows)
        code.add(
            "",
            "counts = Counter(word for row in rows_train for word in texts[row])",
            f"vocabulary = {{word: n for n, (word, _) in enumerate(counts.most_common({most}), 2)}}",
            "x_train = encode([texts[row] for row in rows_train])",
            "x_val = encode([texts[row] for row in rows_val])",
        )
        code.datasets("x", "y_train")


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
        question = kind.Question("label", "Which column has the labels?", {name: name for name in labels})
        return Recognized(found, sure, question) if labels else None

    def survey_files(self, path: Path, options: TextCsvOptions) -> Survey:
        wanted = {options.inputs: "inputs", options.label: "label"}
        return skimming.count_classes(path, wanted, [options.label], filled=[options.inputs])

    def start(self, config: RunConfig, found: Survey) -> Start:
        options = self.options(config)
        heading, rows = first_rows(Path(locate(options.path)))
        text, label = heading.index(options.inputs), heading.index(options.label)
        whole = [row for row in rows if len(row) > max(text, label)]
        samples = skimming.samples_of(whole, lambda row: f"{row[label]}: {row[text]}")
        return text_start(_words(rows, text), samples)

    def read(
        self, options: TextCsvOptions, on_fetch: Callable[[str], None]
    ) -> tuple[pd.DataFrame, int, tuple[str, ...]]:
        on_fetch(f"reading {shown(options.path)}")
        table = read_table(options.path, {options.inputs: "inputs", options.label: "label"})
        return table, len(table), ()

    def write_code(self, code: DataCode) -> None:
        options = self.options(code.config)
        self.write_rows(code, options, partial(code.table, options.path, {"dtype": "str"}))


_FUNCTIONS = '''
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
'''


def _words(rows: list[list[str]], place: int) -> list[int]:
    """Return how many words each row has in one column."""
    return [len(row[place].split()) for row in rows if place < len(row)]


class TextFolderOptions(Section):
    """Options of `text-folder`: one folder of ``.txt`` files per class."""

    path: Annotated[Name, "The folder with one folder per class."]
    validation_path: Annotated[str, "The same for validation; by default a share of `path` is held out."] = ""
    vocabulary: Annotated[VocabularySize, "Words kept; all others become one unknown word."] = 20_000
    length: Annotated[WordCount, "Words per text; longer ones are cut, shorter ones padded."] = 200
    inputs: ClassVar = "text"  # the columns of the table that they are read into
    label: ClassVar = "label"


class TextFolder(TextKind[TextFolderOptions]):
    """Folders of texts. If there are folders for validation, a class without one is not used."""

    name = "text-folder"
    title = "one folder of text files per class"
    Options = TextFolderOptions
    new_data = "a text file, a folder of them, or a table with the column {text_column}"

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        return image_files.recognized_folders(place, _is_text)

    def survey_files(self, path: Path, options: TextFolderOptions) -> Survey:
        return image_files.survey_folders(path, options.validation_path, _is_text, "texts", needs_both=True)

    def start(self, config: RunConfig, found: Survey) -> Start:
        table, _, notices = self.read(self.options(config), lambda _: None, _LOOKED_AT)
        rows = [*table.itertuples(index=False, name=None)]
        start = text_start(
            [len(text.split()) for text, _ in rows], skimming.samples_of(rows, lambda row: f"{row[1]}: {row[0]}")
        )
        return start._replace(skipped=notices)

    def read(
        self, options: TextFolderOptions, on_fetch: Callable[[str], None], most: int = 0
    ) -> tuple[pd.DataFrame, int, tuple[str, ...]]:
        """Read the files, or only the first ones of each class, about `most` in each part."""
        import pandas as pd

        folders = {option: path for option in ("path", "validation_path") if (path := getattr(options, option))}
        parts = []
        for option, path in folders.items():
            _, by_class = image_files.list_classes(path, option, on_fetch)
            parts.append({name: sorted(filter(_is_text, files)) for name, files in by_class.items()})
        listed, other = parts[0], parts[-1]
        used = {name: files for name, files in listed.items() if files and other.get(name)}
        image_files.refuse_other_classes(
            locate(options.validation_path), filter(other.get, other), locate(options.path), used
        )
        if len(used) < 2:
            raise DataError(f"{locate(options.path)} needs one folder of .txt files per class, at least two.")
        rows, ends, encodings, bad = list[tuple[str, str]](), [], list[str](), list[DataError]()
        for path, classes in zip(folders.values(), (used, *parts[1:]), strict=True):
            for name, files in classes.items():
                for file in files[: max(1, most // len(classes)) if most else None]:
                    try:
                        text, encoding = decoded(join(locate(path), f"{name}/{file}"))
                    except DataError as error:
                        bad.append(error)
                        continue
                    rows.append((text, name))
                    encodings.append(encoding)
            ends.append(len(rows))
        if not rows:
            raise bad[0]
        table = pd.DataFrame(rows, columns=[options.inputs, options.label])
        table.attrs["encoding"] = min({*encodings} - {UTF_8}, default=UTF_8)
        unused, total = [name for name in listed if name not in used], len(rows) + len(bad)
        notices = [f"Folders that are not used as classes: {first_of(unused, 3)}."] if unused else []
        notices += [f"{len(bad):,} of {total:,} texts are left out. The first: {bad[0].what}"] if bad else []
        counts = [(encodings.count(encoding), why) for encoding, why in ENCODINGS.items()]
        notices += [f"{count:,} of {total:,} texts are read as {why}." for count, why in counts if count]
        return table, ends[0], tuple(notices)

    def new_texts(self, path: str, column: str) -> pd.DataFrame:
        import pandas as pd

        place = Path(locate(path))
        if not place.is_dir() and not _is_text(path):
            return super().new_texts(path, column)
        names = sorted(filter(_is_text, files_below(str(place)))) if place.is_dir() else [place.name]
        if not names:
            raise DataError(f"{user_path(place)} has no .txt files.")
        texts = [decoded(str(place / name if place.is_dir() else place))[0] for name in names]
        return pd.DataFrame({"file": names, column: texts})

    def write_code(self, code: DataCode) -> None:
        options = self.options(code.config)
        if is_remote(options.path) or is_remote(options.validation_path):
            raise kind.not_exportable("a folder of texts in a bucket")

        folders = {"TRAINING": locate(options.path)}
        lines, rows = ["table = read_folder(TRAINING)"], list[str]()
        if options.validation_path:
            folders["VALIDATION"] = locate(options.validation_path)
            lines += ["count = len(table)", "table = pd.concat([table, read_folder(VALIDATION)])"]
            rows = [f"rows_train = {code.shuffled('count')}", "rows_val = np.arange(count, len(table))"]

        def table() -> None:
            code.needs("os", Path="pathlib")
            code.assign(**folders)
            code.functions(_READ_FOLDER)
            code.add(*lines)

        self.write_rows(code, options, table, rows)


_READ_FOLDER = '''
def decoded(content):
    """Return a text in UTF-16, UTF-8 or Windows-1252, whichever it is."""
    if content.startswith((b"\\xff\\xfe", b"\\xfe\\xff")):
        return content.decode("utf-16", "replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")


def read_folder(folder):
    """Return the texts below a folder, and the class of each."""
    rows = []
    for name in CLASSES:
        top = Path(folder, name)
        found = [f"{at}/{file}" for at, _, files in os.walk(top) for file in files]
        for file in sorted(found):
            if file.lower().endswith(".txt") and "/." not in file[len(folder) :]:
                rows.append((decoded(Path(file).read_bytes()), name))
    return pd.DataFrame(rows, columns=["text", "label"])
'''


def _is_text(name: str) -> bool:
    return name.lower().endswith(".txt") and not name.startswith(".")
