"""Texts in one folder per class, such as the film reviews of aclImdb."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from ...config.values import Section
from ...errors import DataError
from ...storage.paths import user_path
from ..images.files import files_below
from ..places import is_remote, join, locate
from ..row_files import ENCODINGS, UTF_8, decoded
from ..survey.skimming import Survey, samples_of
from ..tables import first_of
from .image_folder import list_classes, recognized_folders, refuse_other_classes, survey_folders
from .kind import Name, Recognized, Start, VocabularySize, WordCount, functions, not_exportable
from .text_csv import TextKind, text_start

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pandas as pd

    from ...code import Imports
    from ...config.run_config import RunConfig
    from ..data_code import DataCode

_LOOKED_AT = 1000  # texts of all classes from which the length is chosen


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
        """Recognize folders with texts, or such folders in train/ and in test/, val/ or the like, side by side."""
        return recognized_folders(place, _is_text)

    def survey_files(self, path: Path, options: TextFolderOptions) -> Survey:
        """Count the texts of each class."""
        return survey_folders(path, options.validation_path, _is_text, "texts", needs_both=True)

    def start(self, config: RunConfig, found: Survey) -> Start:
        """Keep as many words of each text as nearly all of the first ones have."""
        table, _, notices = self.read(self.options(config), lambda _: None, _LOOKED_AT)
        rows = [*table.itertuples(index=False, name=None)]
        start = text_start([len(text.split()) for text, _ in rows], samples_of(rows, lambda row: f"{row[1]}: {row[0]}"))
        return start._replace(skipped=notices)

    def read(
        self, options: TextFolderOptions, on_fetch: Callable[[str], None], most: int = 0
    ) -> tuple[pd.DataFrame, int, tuple[str, ...]]:
        """Read the files, or only the first ones of each class, about `most` in each part."""
        import pandas as pd

        folders = {option: path for option in ("path", "validation_path") if (path := getattr(options, option))}
        parts = []
        for option, path in folders.items():
            _, by_class = list_classes(path, option, on_fetch)
            parts.append({name: sorted(filter(_is_text, files)) for name, files in by_class.items()})
        listed, other = parts[0], parts[-1]
        used = {name: files for name, files in listed.items() if files and other.get(name)}
        refuse_other_classes(locate(options.validation_path), filter(other.get, other), locate(options.path), used)
        if len(used) < 2:
            raise DataError(f"{locate(options.path)} has to have a folder of .txt files for each class.")
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
        """Read the files in a folder, one file, or a table."""
        import pandas as pd

        place = Path(locate(path))
        if not place.is_dir() and not _is_text(path):
            return super().new_texts(path, column)
        names = sorted(filter(_is_text, files_below(str(place)))) if place.is_dir() else [place.name]
        if not names:
            raise DataError(f"{user_path(place)} has no .txt files.")
        texts = [decoded(str(place / name if place.is_dir() else place))[0] for name in names]
        return pd.DataFrame({"file": names, column: texts})

    def code(self, config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
        """Return code that reads the files of each class, and learns the vocabulary again."""
        from ...code import assigned
        from ..data_code import shuffled, split

        options, limit = self.options(config), config.data.train_limit
        if is_remote(options.path) or is_remote(options.validation_path):
            raise not_exportable("a folder of texts in a bucket")
        imports.add("os")
        imports.add("Path", "pathlib")
        table = [*_FUNCTION, "table = read_folder(TRAINING)"]
        folders = [assigned("TRAINING", locate(options.path))]
        if not options.validation_path:
            parts = split(imports, held_out, limit, "labels")
        else:
            table += ["count = len(table)", "table = pd.concat([table, read_folder(VALIDATION)])"]
            folders.append(assigned("VALIDATION", locate(options.validation_path)))
            parts = [shuffled("rows_train", "count", limit), "rows_val = np.arange(count, len(table))"]
        return self.rows_code(options, record, imports, [*folders, *table], parts)


_FUNCTION = functions('''
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
''')


def _is_text(name: str) -> bool:
    return name.lower().endswith(".txt") and not name.startswith(".")
