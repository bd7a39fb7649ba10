"""Detects the format of data from names and first lines, and chooses how to train on it for the first time."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ...config.reading import EARLIER_OPTIONS, parse_config, value_text, with_changes
from ...errors import ConfigError, ConsoleError, DataError, Problem
from ...sanitize import printable
from ...storage.paths import user_path
from ..places import KAGGLE, is_remote, locate
from ..row_files import TABLES, UNREADABLE, TooSlowError, has_images, is_parquet, opened
from ..tables import first_of
from .asking import kaggle_folder
from .hf import Hf
from .skimming import Survey, first_rows, unreadable
from .table import KINDS, is_name, kind_of, named_kind, survey

if TYPE_CHECKING:
    from ...config.run_config import RunConfig
    from ..places import OnFetch
    from .kind import DatasetKind, Question, Recognized

_STEPS = 3000  # of a first training, about
_LONGEST_NAME = 64
_MANY = 100_000  # examples to assume if there are too many to count
_MOST_BESIDE = 50  # tables of a folder that are looked at
_BY_TRAIN_CSV, _BY_OTHER_TABLE = 0.9, 0.5  # how sure it is that a folder is read by a table in it
_OPTIONS = "data.options."
_COLUMNS = ("inputs", "label", "columns")  # options that name columns or arrays
_REMEDY = (
    f"Name the format, as in `tpu-console inspect image-csv --set data.options.path=…`: {', '.join(KINDS)}.\n"
    "Read anything else, such as sounds, with a function of yours: `tpu-console inspect mine.py:data`."
)
_A_CLASS_EACH = (
    "Images and texts need a folder for each class, or a table that names them; boxes and masks are not supported."
)
_REMEDIES = {
    ".zip .tar .tgz .tbz2 .txz .7z .rar": "Unpack it, and name the folder.",
    ".xlsx .xls .ods": "Save the sheet as CSV.",
    ".json": "Write one object per line: pandas.read_json(OLD).to_json(NEW, orient='records', lines=True).",
    ".npy": "Save inputs and labels in one file: numpy.savez('data.npz', x=numpy.load('x.npy'), y=labels).",
}
"""What to do with files of some endings."""


def config_for(dataset: str, options: Mapping[str, Any]) -> RunConfig:
    """Return a configuration that loads a dataset; raise `ConfigError` if the options do not fit."""
    model, loss, _ = kind_of(dataset).goals(options)
    values = {"dataset": dataset, "model": model, "loss": loss, "batch_size": 32, "epochs": 1}
    return parse_config(values | {"metrics": [], "data": {"options": dict(options)}})


class FirstRun(NamedTuple):
    """How to train on a file or folder."""

    config: RunConfig
    notes: tuple[tuple[str, str], ...]  # what was found and chosen: a label and a sentence each


def first_run(path: str, changes: Sequence[tuple[str, Any]] = (), on_fetch: OnFetch = lambda _: None) -> FirstRun:
    """Return how to train on a file, a folder or named data, such as ``tfds:mnist``, for the first time.

    `changes` are the settings that the user chose, by dotted key. Their options of the dataset are heeded; the caller
    applies the others. `on_fetch` is called with how much has arrived of data that is downloaded to be looked at.
    Raises `UndecidedError` if the user has to name an option, `DataError` if the format is unknown or the data cannot
    be used, and `ConfigError` if the options do not fit.
    """
    chosen = dict(changes)
    dataset, options = guess(path, changes, on_fetch)
    kind = KINDS[dataset]
    if "skip_bad" in kind.Options.model_fields:
        options = {"skip_bad": True, **options}
    config = config_for(dataset, options)
    found = survey(config)
    if found.problems:
        raise ConfigError(found.problems)
    start = kind.start(config, found)
    called = path.partition(":")[2] if is_name(path) else Path(locate(path)).resolve().name.partition(".")[0]
    train = found.train(config.data.validation_fraction) or _MANY
    batch = 1 << (max(1, min(kind.most_per_step, train // 8)).bit_length() - 1)
    epochs = min(max(round(_STEPS * batch / train), 5), 60)
    settings: dict[str, Any] = {"name": _name_for(called), "batch_size": batch, "epochs": epochs}
    settings["metrics"] = list(kind.goals(options)[2])
    reasons = dict(start.reasons)
    if found.held_out(config.data.validation_fraction) != 0:
        patience = settings["early_stopping.patience"] = max(3, epochs // 5)
        reasons["early_stopping.patience"] = f"training stops when val_loss has not improved for {patience} epochs"
    named = [f"{name}={value_text(f'{_OPTIONS}{name}', value)}" for name, value in options.items() if name in _COLUMNS]
    said = {
        "data": [f"{path}: {kind.name}, {_what(kind, found)}"],
        "columns": [", ".join(named)] if named else [],
        "read": found.facts,
        "samples": start.samples,
        "start": [text for key, text in reasons.items() if key not in chosen],
        "skipped": start.skipped,
    }
    notes = [("" if number else label, text) for label, texts in said.items() for number, text in enumerate(texts)]
    return FirstRun(with_changes(config, [*(settings | start.settings).items()]), tuple(notes))


def _name_for(text: str) -> str:
    """Return what a run on some data may be called."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:_LONGEST_NAME] or "mine"


def _what(kind: DatasetKind[Any], found: Survey) -> str:
    """Say what some data are, and how many."""
    classes = [*found.class_names] or [f"{name} {count:,}" for name, count in found.classes.items()]
    of = f" in {len(classes):,} classes ({first_of(classes, 6)})" if classes else ""
    validation = f", {found.validation:,} for validation" if found.validation else ""
    total = f"{found.total:,} examples{of}{validation}" if found.total else found.unknown
    return f"{kind.title}; {total}".rstrip("; ")


def lying_in(folder: Path, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the files and folders in a folder that can be trained on, and what each is, looking so deep at most."""
    places = sorted(place for place in folder.iterdir() if not place.name.startswith("."))
    for place in places[:_MOST_BESIDE]:
        found = None
        with suppress(ConsoleError, TooSlowError, *UNREADABLE):
            found = _surest(place, {})
            if found is not None:
                name, look = found
                counted = Survey() if look.question else survey(config_for(name, look.options))
                yield str(place), _what(KINDS[name], counted)
        if found is None and depth > 1 and place.is_dir():
            yield from lying_in(place, depth - 1)


def guess(
    path: str, changes: Sequence[tuple[str, Any]] = (), on_fetch: OnFetch = lambda _: None
) -> tuple[str, dict[str, Any]]:
    """Return the name of the dataset for a file, a folder or a name, and its options; as in `first_run`."""
    given = {key.removeprefix(_OPTIONS): value for key, value in changes if key.startswith(_OPTIONS)}
    given = {EARLIER_OPTIONS.get(name, name): value for name, value in given.items()}
    if (dataset := dict(changes).get("dataset")) in KINDS:
        return str(dataset), {"path": locate(path), **given}
    if (named := named_kind(path)) is not None:
        kind, name = named
        answer = kind.look_up(name, given)
        if answer.question is not None and answer.question.option not in given:
            raise UndecidedError(path, answer.question)
        return kind.name, answer.options | given
    if path.startswith(f"{KAGGLE}:"):
        folder = kaggle_folder(path, on_fetch)
        name, options = _recognized(folder, given)
        if folder == locate(path):  # by its name it is found on other machines, too
            options = {key: value.replace(folder, path, 1) if isinstance(value, str) else value
                       for key, value in options.items()}  # fmt: skip
        return name, options
    # A folder of Parquet with images, as on the hub, or one of its files; there may be no other tables.
    place = Path(locate(path)).absolute()
    if place.is_dir() or (place.is_file() and is_parquet(place.name)):
        top, are_images = place if place.is_dir() else place.parent, False
        files = [file for file in islice(top.rglob("*"), _MOST_BESIDE) if file.is_file() and file.name[0] != "."]
        tables = [file for file in files if is_parquet(file.name)]
        if tables and len(tables) >= len([file for file in files if file.suffix not in {".md", ".json"}]):
            with suppress(DataError, OSError), opened(str(tables[0])) as table:
                are_images = has_images(table, tables[0].name)
        if are_images:
            return guess(f"{Hf.name}:{_name_for(top.name)}", [("data.options.data_dir", str(top)), *changes])
    return _recognized(path, given)


def _recognized(path: str, given: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of the dataset that fits a file or folder best, and its options."""
    place = Path(locate(path))
    if is_remote(path):
        raise DataError(f"The format of {path} cannot be detected: it is remote.", remedy=_REMEDY)
    if not place.exists():
        raise ConfigError([Problem("", f"{user_path(place)} does not exist")])
    if place.is_file() and not place.stat().st_size:
        raise DataError(f"{user_path(place)} is empty.")
    what, columns = f"{user_path(place)} is not in a known format.", list[str]()
    try:
        found = _surest(place, given)
        columns = [] if found or place.is_dir() else first_rows(place)[0]
    except TooSlowError:
        found = None
    except UNREADABLE as error:
        raise DataError(f"{user_path(place)} cannot be read: {unreadable(error)}.") from error
    if found is not None:
        name, look = found
        if look.question is not None and look.question.option not in given:
            raise UndecidedError(user_path(place), look.question)
        return name, {**look.options, **given}
    if columns and "\0" not in "".join(columns):
        named = first_of([printable(name) for name in columns], 8)
        raise DataError(
            f"{user_path(place)} has no column that can be predicted from the others: {named}.",
            why="The first line must name the columns, and at least two columns must vary; "
            "lists and bytes in Parquet and JSON Lines are left out.",
            remedy="Add a first line such as age,height,label, or write a label beside each text or row.",
        )
    endings, why = {*place.suffixes}, ""
    if place.is_dir():
        walked = (name for _, _, names in islice(os.walk(place), _MOST_BESIDE) for name in names if name[0] != ".")
        counts = Counter(Path(name).suffix.lower() or "without an ending" for name in walked)
        held = first_of([f"{count:,} {printable(ending)}" for ending, count in counts.most_common()], 3)
        endings, what, why = {*counts}, f"{what} It holds {held or 'no files'}.", _A_CLASS_EACH
    remedy = next((text for known, text in _REMEDIES.items() if {*known.split()} & endings), _REMEDY)
    raise DataError(what, why=why, remedy=remedy)


class UndecidedError(DataError):
    """Guessing how to read a file could be wrong."""

    def __init__(self, place: str, question: Question) -> None:
        self.question = question
        key = f"{_OPTIONS}{question.option}"
        example = f"{key}={value_text(key, next(iter(question.answers.values())))}"
        super().__init__(
            f"{place}: {question.text} It may be {', '.join(question.answers)}.",
            remedy=f"Name it, as in --set {shlex.quote(example)}.",
        )


def _surest(place: Path, given: Mapping[str, Any]) -> tuple[str, Recognized] | None:
    """Return the name of the kind that is surest to read a file or folder, and how it does."""
    looks = ((kind.name, look) for kind in KINDS.values() if (look := kind.recognize(place, given)) is not None)
    best = max(looks, key=lambda found: found[1].sure, default=None)
    if best is not None and (question := best[1].question) is not None and "train" in place.name:
        test = place.with_name(place.name.replace("train", "test"))
        known = first_rows(test)[0] if test.is_file() else []  # of a competition: it lacks the labels
        lacking = [answer for name, answer in question.answers.items() if name not in known]
        label = {question.option: lacking[0]} if known and len(lacking) == 1 else {}
        if label and (answered := KINDS[best[0]].recognize(place, {**given, **label})) is not None:
            best = best[0], answered._replace(options=answered.options | label, question=None)
    if place.is_dir():
        tables = sorted(table for table in place.iterdir() if TABLES & {*table.suffixes})
        for table in sorted(tables[:_MOST_BESIDE], key=lambda table: table.name.partition(".")[0] != "train"):
            sure = _BY_TRAIN_CSV if table.name.partition(".")[0] == "train" else _BY_OTHER_TABLE
            if (best is None or best[1].sure < sure) and table.is_file() and (inside := _surest(table, given)):
                best = inside[0], inside[1]._replace(sure=sure)
    return best
