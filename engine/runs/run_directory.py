"""The run directory: the only channel between training and watching, private to the user; and annotations of runs."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ..errors import ConsoleError, RunNotFoundError, did_you_mean
from ..sanitize import printable
from ..storage import files
from ..storage.files import (
    RESERVE_BYTES,
    RESERVE_NAME,
    LinkError,
    disk_full,
    inside,
    is_disk_full,
    read_json,
    require_real,
    reserve,
    write_whole,
)
from ..storage.paths import runs_folder, user_path

_ANNOTATIONS = "annotations.json"


class _Inside:
    """The path of a file in a run's folder, or of a folder, whose name ends in ``/``: see `inside`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: "RunDirectory", _owner: type["RunDirectory"]) -> Path:
        return inside(run.path, self.name)


class RunDirectory(Struct, frozen=True):
    """Paths in a run's folder."""

    path: Path  # the folder

    @property
    def run_id(self) -> str:
        """The folder's name, which is the run's name; safe to show."""
        return printable(self.path.name)

    config = _Inside("config.toml")  # the run's configuration; absent for a notebook's run
    journal = _Inside("events.jsonl")  # `engine.runs.journal`; locked by the process that trains
    log = _Inside("console.log")  # everything that native code and tracebacks print
    heartbeat = _Inside("heartbeat.json")  # who trains; written once, and touched every second while it does
    reserved_space = _Inside(RESERVE_NAME)  # space for the last events on a full disk; removed when the run ends
    control = _Inside("control/")  # requests from consoles, one file each
    checkpoints = _Inside("checkpoints/")  # ``best.keras``, and ``state-*.ckpt`` to resume from
    tensorboard = _Inside("tensorboard/")  # event files
    profile = _Inside("profile/")  # the newest traces of a few steps, as XProf reads them
    cache = _Inside("cache/")  # decoded examples while training, if they do not fit in memory
    model = _Inside("model.keras")  # the saved model
    hub = _Inside("hub/")  # the SavedModel of a model on TensorFlow Hub features; `model` does not load without it
    inputs = _Inside("inputs.json")  # how to turn new data into the model's inputs
    history = _Inside("history.csv")  # one row per epoch
    summary = _Inside("summary.json")  # the result
    report = _Inside("report.json")  # scores per class
    mistakes = _Inside("mistakes.json")  # pictures of examples that the model got wrong
    annotations = _Inside(_ANNOTATIONS)  # what a person wrote on the run: `Annotations`


def require_writable(run: RunDirectory) -> None:
    """Check that a run's folder and all that it holds are its own; raises `NotAFileError` for a link or a device."""
    require_real(run.path)
    files.require_plain(run.path, (value.name for value in vars(RunDirectory).values() if isinstance(value, _Inside)))


def create_run(label: str, folder: Path | None = None, now: datetime | None = None) -> RunDirectory:
    """Create an empty run directory, by default in the user's folder of runs; raise `ConsoleError` if that fails."""
    folder = folder or runs_folder()
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in label).strip("-.")
    stem = f"{now or datetime.now().astimezone():%Y%m%d-%H%M%S}-{kept[:64] or 'run'}"
    try:
        run = RunDirectory(new_folder(folder, stem))
        with all_or_nothing(run):
            run.control.mkdir(mode=0o700)
            reserve(run.reserved_space)
    except OSError as error:
        raise cannot_begin(folder, error) from error
    return run


def new_folder(folder: Path, stem: str) -> Path:
    """Create a private folder whose name begins with a stem; raise `OSError` if that is impossible."""
    files.make_private_folder(folder)
    for name in chain([stem], (f"{stem}-{number}" for number in count(2))):
        with suppress(FileExistsError):
            (folder / name).mkdir(mode=0o700)
            break
    return folder / name


class RunningError(ConsoleError):
    """Another process trains the run."""

    def __init__(self, run: RunDirectory) -> None:
        super().__init__(
            f"{run.run_id} is still training.",
            remedy=f"Watch it: tpu-console attach {run.run_id}, or stop it: tpu-console stop {run.run_id}",
        )


def lock_run(run: RunDirectory) -> int:
    """Lock a run's journal for one training process, until the returned descriptor is closed everywhere.

    On a file system without locks, only the heartbeat shows that a run trains. Raises `RunningError` if another process
    holds the lock, or `ConsoleError` if the folder cannot be written, or holds something that leads out of it.
    """
    try:
        require_writable(run)
        return files.lock_file(run.journal)
    except BlockingIOError as error:
        raise RunningError(run) from error
    except files.NotAFileError as error:
        what = f"{user_path(Path(error.filename))} cannot be written: {error.strerror}."
        raise ConsoleError(what, remedy="If you trust the run, replace it by what it stands for.") from error
    except OSError as error:
        raise cannot_begin(run.path, error) from error


@contextmanager
def all_or_nothing(run: RunDirectory) -> Iterator[None]:
    """Remove a new run's folder if what the block does to prepare it fails."""
    try:
        yield
    except BaseException:
        shutil.rmtree(run.path, ignore_errors=True)
        raise


def discard_cache(run: RunDirectory) -> None:
    """Delete a run's decoded examples; no other run can use them."""
    with suppress(OSError):
        shutil.rmtree(run.cache)


def discard_leftovers(run: RunDirectory) -> None:
    """Delete what an earlier process of a run left behind; only the process that has its lock may do that."""
    discard_cache(run)
    for folder in ("", "checkpoints/", "control/"):
        with suppress(OSError):
            files.remove_drafts(inside(run.path, folder))


def cannot_begin(folder: Path, error: OSError) -> ConsoleError:
    """Return the error that says why no run can be created in the folder of all runs."""
    if is_disk_full(error):
        remedy = "Free space, or set TPU_CONSOLE_HOME to a folder on another disk."
        return disk_full(folder, "a new run", RESERVE_BYTES, remedy)
    what = f"The run folder {user_path(folder)} cannot be written: {error.strerror}."
    return ConsoleError(what, remedy="Change its permissions, or set TPU_CONSOLE_HOME to another folder.")


def is_named(run_id: str, label: str) -> bool:
    """Return whether a run was created with a label."""
    rest = run_id[16:].removeprefix(label)
    return run_id[16:].startswith(label) and (not rest or (rest[0] == "-" and rest[1:].isdecimal()))


def list_runs(folder: Path | None = None) -> list[RunDirectory]:
    """Return the runs of a folder, newest first."""
    try:
        runs = [RunDirectory(path) for path in (folder or runs_folder()).iterdir() if is_run(path)]
    except OSError:
        return []
    return sorted(runs, key=_age, reverse=True)


def newest_run_named(label: str) -> RunDirectory | None:
    """Return the newest run with a label; None if there is none."""
    return next((run for run in list_runs() if is_named(run.run_id, label)), None)


def _age(run: RunDirectory) -> tuple[str, int, str]:
    """Return what a run is sorted by: the time in its name, then that of its configuration or, without one, journal."""
    for file in (run.config, run.journal):
        with suppress(OSError):
            return run.path.name[:15], file.stat().st_mtime_ns, run.path.name
    return run.path.name[:15], 0, run.path.name


def is_run(path: Path) -> bool:
    """Return whether a folder is a run; a folder that cannot be read counts as one, so that lists show it."""
    try:
        return path.is_dir() and any(os.path.lexists(path / file) for file in ("events.jsonl", "config.toml"))
    except OSError as error:
        return isinstance(error, PermissionError)


def is_removed(run: RunDirectory) -> bool:
    """Return whether a run's folder is gone or nearly empty, while the folder of all runs is still there."""
    return not any(map(os.path.lexists, (run.journal, run.config))) and run.path.parent.is_dir()


def find_run(name: str | None = None, folder: Path | None = None) -> RunDirectory:
    """Find a run by its path, its name, a unique part of its name or of its title; the newest by default."""
    folder = folder or runs_folder()
    if name and (os.sep in name or name in {".", ".."}):
        path = Path(os.path.abspath(Path(name).expanduser()))  # noqa: PTH100  a link is deleted, not its target
        if not is_run(path):
            what = "is not a run: it has no events.jsonl" if path.is_dir() else "does not exist"
            raise RunNotFoundError(f"{name} {what}.", remedy="`tpu-console runs` lists your runs.")
        return RunDirectory(path)
    if not (runs := list_runs(folder)):
        what = f"There is no run in {user_path(folder)} yet."
        raise RunNotFoundError(what, remedy="Start one: tpu-console run digits-cnn")
    if not name:
        return runs[0]
    matching = [run for run in runs if run.run_id == name] or [run for run in runs if name in run.run_id]
    if not matching:
        titles = {run: read_annotations(run.path).title for run in runs}
        titled = [run for run, title in titles.items() if title == name]
        matching = titled or [run for run, title in titles.items() if name in title]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(run.run_id for run in matching[:5])
        raise RunNotFoundError(f"'{name}' matches {len(matching)} runs.", remedy=f"Use one of these names: {names}")
    what = f"There is no run named '{name}'; {did_you_mean(name, [run.run_id for run in runs[:20]])}"
    raise RunNotFoundError(what, remedy="`tpu-console runs` lists your runs.")


_LARGEST_ANNOTATIONS = 64 << 10
_LONGEST_TITLE, _LONGEST_TAG, _LONGEST_NOTE = 80, 40, 2000
_MOST_TAGS = 20


class Annotations(Struct, frozen=True):
    """The title, tags and note of a run; cleaned and limited when read, because they may be somebody else's."""

    title: str = ""  # shown instead of the run's name; empty for none
    tags: tuple[str, ...] = ()  # words without spaces and commas
    note: str = ""  # a text of one line
    archived: bool = False  # whether lists leave the run out


NO_ANNOTATIONS = Annotations()


def cleaned(values: Any) -> Annotations:
    """Return annotations from plain values, safe to show and limited in length; what is not understood is dropped."""
    if not isinstance(values, dict):
        return NO_ANNOTATIONS
    tags = values.get("tags")
    return Annotations(
        _text(values.get("title"), _LONGEST_TITLE),
        cleaned_tags(tags) if isinstance(tags, list | tuple) else (),
        _text(values.get("note"), _LONGEST_NOTE),
        values.get("archived") is True,
    )


def cleaned_tags(tags: Sequence[object]) -> tuple[str, ...]:
    """Return tags as they are kept: without spaces and commas, each once, at most 20."""
    parts = [_text(tag, _LONGEST_NOTE).replace(",", " ").split() for tag in tags[: 10 * _MOST_TAGS]]
    return tuple(dict.fromkeys("-".join(words)[:_LONGEST_TAG] for words in parts if words))[:_MOST_TAGS]


def _text(value: object, longest: int) -> str:
    return printable(value).strip()[:longest].rstrip() if isinstance(value, str) else ""


def read_annotations(folder: Path) -> Annotations:
    """Read the annotations of the run in a folder; none if the file is missing, damaged or too large."""
    path = f"{folder}/{_ANNOTATIONS}"
    with suppress(OSError, ValueError):
        if os.path.lexists(path):  # most runs have none, and a list reads thousands
            return cleaned(read_json(path, _LARGEST_ANNOTATIONS))
    return NO_ANNOTATIONS


def write_annotations(folder: Path, annotations: Annotations) -> None:
    """Write the annotations of the run in a folder; without any, the file is removed."""
    annotations = cleaned(msgspec.to_builtins(annotations))
    content = msgspec.json.encode(annotations)
    file = folder / _ANNOTATIONS
    try:
        require_real(folder)
        if annotations == NO_ANNOTATIONS:
            file.unlink(missing_ok=True)
        else:
            write_whole(file, content)
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(folder, "the annotations", len(content), "Free space and try again.") from error
        place = folder if isinstance(error, LinkError) else file
        raise ConsoleError(f"{user_path(place)} cannot be written: {error.strerror}.") from error
