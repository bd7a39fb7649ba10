"""Texts in one folder per class, such as the film reviews of aclImdb."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, cast

from ...config.values import Section
from ...errors import DataError
from ...storage.files import open_regular
from ...storage.paths import user_path
from ..places import is_remote, join, locate
from ..row_files import ENCODINGS, UTF_8, encoding_of
from ..survey.skimming import Survey, deadline, samples_of, trouble
from ..tables import decoded, first_of, read_text
from .image_folder import class_folders, files_by_class, list_classes, recognized_folders, refuse_other_classes
from .kind import FilePath, Recognized, Start, VocabularySize, WordCount, not_exportable
from .text_csv import (
    TextCsvOptions,
    TextKind,
    check_texts,
    described,
    predict_texts,
    text_code,
    text_examples,
    text_start,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from ...code import Imports
    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ..data_code import DataCode
    from ..examples import Examples
    from ..predictions import NewData, Table, TrainedModel

_LOOKED_AT = 1000  # texts of all classes from which the length is chosen
_BEGINNING = 1 << 16  # bytes of them that are read


class TextFolderOptions(Section):
    """Options of `text-folder`: one folder of ``.txt`` files per class."""

    path: Annotated[FilePath, "The folder with one folder per class."]
    validation_path: Annotated[str, "The same for validation; by default a share of `path` is held out."] = ""
    vocabulary: Annotated[VocabularySize, "Words kept; all others become one unknown word."] = 20_000
    length: Annotated[WordCount, "Words per text; longer ones are cut, shorter ones padded."] = 200

    @property
    def of_table(self) -> TextCsvOptions:
        """How the same texts in a table would be read."""
        return TextCsvOptions(path=self.path, vocabulary=self.vocabulary, length=self.length)


class TextFolder(TextKind[TextFolderOptions]):
    """Folders of texts. A class without a folder for validation, where there are such folders, is not used."""

    name = "text-folder"
    title = "one folder of text files per class"
    Options = TextFolderOptions
    new_data = "a text file, a folder of them, or a table with the column {text_column}"

    def recognize(self, place: Path, given: Mapping[str, Any]) -> Recognized | None:
        """Recognize folders with texts, or such folders in train/ and in test/, val/ or the like, side by side."""
        return recognized_folders(place, _is_text)

    def survey(self, path: Path, options: TextFolderOptions) -> Survey:
        """Count the texts of each class."""
        ends_at = deadline()
        counts, validation = files_by_class(path, ends_at, _is_text), None
        if (other := options.validation_path) and not is_remote(other):
            others = files_by_class(Path(locate(other)), ends_at, _is_text)
            counts = {name: count for name, count in counts.items() if name in others}
            validation = sum(others.values())
        if len(counts) < 2:
            return trouble("path", f"{user_path(path)} has to have a folder of .txt files for each class")
        return Survey(total=sum(counts.values()), classes=counts, validation=validation)

    def watched(self, path: Path) -> list[Path]:
        """Return the folders of the classes, too."""
        return [path, *(class_folders(path) if path.is_dir() else ())]

    def start(self, config: RunConfig, found: Survey) -> Start:
        """Keep as many words of each text as nearly all of the first ones have."""
        folders = class_folders(Path(locate(self.options(config).path)))
        used = [one for one in folders if not found.classes or one.name in found.classes]
        texts: list[tuple[str, str, str]] = []
        bad: list[DataError] = []
        for folder in used:
            names = sorted(entry for entry in folder.iterdir() if _is_text(entry.name))
            for name in names[: max(1, _LOOKED_AT // len(used))]:
                try:
                    texts.append((folder.name, *_beginning(name)))
                except DataError as error:
                    bad.append(error)
        facts = (*_read_as([encoding for *_, encoding in texts]), *_left_out(bad, len(texts) + len(bad)))
        start = text_start(
            [len(text.split()) for _, text, _ in texts], samples_of(texts, lambda one: ": ".join(one[:2]))
        )
        return start._replace(skipped=facts)

    def load(self, config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
        """Read the files, split them class by class, and learn the vocabulary from the training texts."""
        import numpy as np

        check_texts(config)
        table, train, notices = _read(self.options(config), on_fetch)
        parts = None
        if train < len(table):
            rows = np.random.default_rng(config.seed).permutation(train)[: config.data.train_limit or None]
            parts = rows, np.arange(train, len(table))
        examples = text_examples(config, self.options(config).of_table, table, parts)
        return replace(examples, notices=(*notices, *examples.notices))

    def describe_files(self, config: RunConfig, reporter: Reporter, note: Callable[[str], None]) -> dict[str, Any]:
        """Describe the texts for training and for validation as `describe_texts` does."""
        options = self.options(config)
        return described(options.of_table, _read(options, note)[0])

    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Predict the labels of the files in a folder, of one file, or of the texts in a table."""
        import pandas as pd

        from ..images.files import files_below

        path = request.only()
        place = Path(locate(path))
        if not place.is_dir() and not _is_text(path):
            return predict_texts(trained, path, reporter)
        names = sorted(filter(_is_text, files_below(str(place)))) if place.is_dir() else [place.name]
        if not names:
            raise DataError(f"{user_path(place)} has no .txt files.")
        texts = [read_text(str(place / name if place.is_dir() else place)) for name in names]
        return predict_texts(trained, path, reporter, pd.DataFrame({"file": names, "text": texts}))

    def code(self, config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
        """Return code that reads the files of each class, and learns the vocabulary again."""
        from ...code import assigned
        from ..data_code import shuffled, split

        options, limit = self.options(config), config.data.train_limit
        if is_remote(options.path) or is_remote(options.validation_path):
            raise not_exportable("a folder of texts in a bucket")
        imports.add("os")
        imports.add("Path", "pathlib")
        imports.add("numpy as np")
        imports.add("pandas as pd")
        folders = [assigned("TRAINING", locate(options.path))]
        has_others = "encoding" in record
        read = "decoded(Path(file).read_bytes())" if has_others else 'Path(file).read_text("utf-8-sig")'
        functions = [*(_DECODED if has_others else []), *_FUNCTION]
        table = [*(line.replace("READ", read) for line in functions), "table = read_folder(TRAINING)"]
        if not options.validation_path:
            parts = split(imports, held_out, limit, "labels")
        else:
            table += ["count = len(table)", "table = pd.concat([table, read_folder(VALIDATION)])"]
            folders += [assigned("VALIDATION", locate(options.validation_path))]
            parts = [shuffled("rows_train", "count", limit), "rows_val = np.arange(count, len(table))"]
        return text_code(options.of_table, record, imports, [*folders, *table], parts)


_DECODED = '''

def decoded(content):
    """Return a text in UTF-16, UTF-8 or Windows-1252, whichever it is."""
    if content.startswith((b"\\xff\\xfe", b"\\xfe\\xff")):
        return content.decode("utf-16", "replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")
'''.splitlines()
_FUNCTION = '''

def read_folder(folder):
    """Return the texts below a folder, and the class of each."""
    rows = []
    for name in CLASSES:
        top = Path(folder, name)
        found = [f"{at}/{file}" for at, _, files in os.walk(top) for file in files]
        for file in sorted(found):
            if file.lower().endswith(".txt") and "/." not in file[len(folder) :]:
                rows.append((READ, name))
    return pd.DataFrame(rows, columns=["text", "label"])


'''.splitlines()


def _is_text(name: str) -> bool:
    return name.lower().endswith(".txt") and not name.startswith(".")


def _beginning(path: Path) -> tuple[str, str]:
    """Return the first words of a text, and its encoding; raise `DataError` if it has none."""
    try:
        with open_regular(path, follows_links=True) as file:
            encoding = encoding_of(cast("BinaryIO", file), user_path(path))
            text = file.read(_BEGINNING).decode(encoding, "replace")
    except OSError as error:
        raise DataError(f"{user_path(path)} cannot be read: {error.strerror}.") from error
    if not text.strip():
        raise DataError(f"{user_path(path)} is empty.")
    return text, encoding


def _left_out(bad: Sequence[DataError], total: int) -> list[str]:
    """Say how many texts cannot be used, and why the first cannot."""
    return [f"{len(bad):,} of {total:,} texts are left out. The first: {bad[0].what}"] if bad else []


def _read_as(encodings: Sequence[str]) -> list[str]:
    """Say how texts are read, if not all as UTF-8."""
    counts = ((encodings.count(encoding), why) for encoding, why in ENCODINGS.items())
    return [f"{count:,} of {len(encodings):,} texts are read as {why}." for count, why in counts if count]


def _read(options: TextFolderOptions, on_fetch: Callable[[str], None]) -> tuple[pd.DataFrame, int, tuple[str, ...]]:
    """Return the texts and labels, those for training first, how many these are, and what the user should know.

    Raises:
        DataError: There are not two classes, validation has others, or a file cannot be read.
    """
    import pandas as pd

    train = _listed(options.path, "path", on_fetch)
    other = _listed(options.validation_path, "validation_path", on_fetch) if options.validation_path else {}
    used = {name: files for name, files in train.items() if files and (not other or other.get(name))}
    refuse_other_classes(locate(options.validation_path), filter(other.get, other), locate(options.path), used)
    if len(used) < 2:
        raise DataError(f"{locate(options.path)} has to have a folder of .txt files for each class.")
    rows: list[tuple[str, str, str]] = []
    bad: list[DataError] = []
    ends = []
    for place, classes in ((options.path, used), (options.validation_path, other)):
        for name, file in ((name, file) for name, files in classes.items() for file in files):
            try:
                rows.append((*decoded(join(locate(place), f"{name}/{file}")), name))
            except DataError as error:
                bad.append(error)
        ends.append(len(rows))
    if not rows:
        raise bad[0]
    texts, encodings, labels = zip(*rows, strict=True)
    table = pd.DataFrame({"text": texts, "label": labels})
    table.attrs["encoding"] = min({*encodings} - {UTF_8}, default=UTF_8)
    left_out = [name for name in train if name not in used]
    notices = [f"Folders that are not used as classes: {first_of(left_out, 3)}."] if left_out else []
    return table, ends[0], (*notices, *_left_out(bad, len(rows) + len(bad)), *_read_as(encodings))


def _listed(path: str, option: str, on_fetch: Callable[[str], None]) -> dict[str, list[str]]:
    """Return the sorted texts below each folder in a folder."""
    _, by_class = list_classes(path, option, on_fetch)
    return {name: sorted(filter(_is_text, files)) for name, files in by_class.items()}
