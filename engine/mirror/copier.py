"""Copies a run to its mirror while it trains, and back, in a safe order, and checks that the mirror is this run's.

The journal is copied before the checkpoint that was there when copying began, so that a checkpoint at the mirror never
lies beyond its journal. The best model comes before it too, because a checkpoint says how good the best one is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..config.reading import load_config
from ..config.user_code import check_started
from ..errors import ConsoleError, RunNotFoundError, one_line
from ..runs.checkpoint import newest_checkpoint, newest_first
from ..runs.events import MirrorReported, Phase, RunFailed, RunFinished
from ..runs.follower import StateReader
from ..runs.journal import JournalWriter
from ..runs.run_directory import RunDirectory, is_named, is_removed, is_run, lock_run
from ..storage.files import DRAFT, disk_full, inside, is_disk_full, make_private_folder, open_private, open_regular
from ..storage.paths import runs_folder, user_path
from .places import MARKER, Folder, Place, open_place

if TYPE_CHECKING:
    from ..messages import Reporter
    from ..runs.recorder import Recorder

JOURNAL, CHECKPOINTS = "events.jsonl", "checkpoints"
# The files of a run that are copied, besides its journal, its newest checkpoints and the SavedModel in ``hub``.
FILES = (
    "config.toml",
    "inputs.json",
    "checkpoints/best.keras",
    "checkpoints/last.keras",
    "model.keras",
    "history.csv",
    "summary.json",
    "report.json",
    "mistakes.json",
)
_HUB = re.compile(r"(saved_model|fingerprint|keras_metadata)\.pb|variables/variables\.[\w.-]+|assets/[\w.-]+", re.ASCII)
_PART = 1 << 22


class MirrorTakenError(Exception):
    """The mirror holds something that this run must not overwrite; the text says what."""


def hub_files(names: Callable[[str], list[str]]) -> list[str]:
    """Return the files of the SavedModel of a run; `names` returns the names in one of its folders."""
    found = [*names("hub"), *(f"{part}/{name}" for part in ("variables", "assets") for name in names(f"hub/{part}"))]
    return sorted(f"hub/{name}" for name in found if _HUB.fullmatch(name))


def common_bytes(one: IO[bytes], other: IO[bytes]) -> int:
    """Return how many bytes two files have in common from their beginning."""
    same = 0
    while part := one.read(_PART):
        there = other.read(len(part))
        if part != there:
            return same + next((i for i, (a, b) in enumerate(zip(part, there, strict=False)) if a != b), len(there))
        same += len(part)
    return same


class Copier:
    """Copies what has changed in a run's folder to the mirror."""

    def __init__(self, run: RunDirectory, place: Place) -> None:
        self.epoch = 0  # epochs done at the newest checkpoint that was copied
        self.moved_at = time.monotonic()  # when the last part of a file was copied
        self._run, self._place = run, place
        self._copied: dict[str, tuple[int, int, int]] = {}
        self._checkpoint = ""
        self._journal_at: int | None = None  # bytes at the mirror; None until it is known whose mirror it is

    def left(self) -> list[str]:
        """Return the files, except the journal, that have changed since they were copied."""
        changed = [name for name in [*FILES, *hub_files(self._names)] if self._stamp(name) != self._copied.get(name)]
        newest = newest_first(self._names(CHECKPOINTS))
        if newest and newest[0][1] != self._checkpoint:
            changed.append(f"{CHECKPOINTS}/{newest[0][1]}")
        return changed

    def copy(self) -> bool:
        """Copy what has changed; return whether a checkpoint was copied. Raises `MirrorTakenError` or `OSError`."""
        changed = self.left()
        newest = newest_checkpoint(self._run) if changed and changed[-1].endswith(".ckpt") else None
        self._copy_journal()
        for name in changed:
            if not name.startswith(f"{CHECKPOINTS}/state-"):
                self._copy(name)
        if newest is None or newest[0].name == self._checkpoint or not self._copy(f"{CHECKPOINTS}/{newest[0].name}"):
            return False  # or a newer one has replaced it
        self._checkpoint, self.epoch = newest[0].name, newest[1].epoch
        there = [name for _, name in newest_first(self._place.names(CHECKPOINTS))]
        # Those before it are of a course that the run has left.
        kept = there[there.index(self._checkpoint) :][:2] if self._checkpoint in there else there
        for name in set(there) - set(kept):
            self._place.remove(f"{CHECKPOINTS}/{name}")
        return True

    def _parts(self, file: IO[bytes]) -> Iterator[bytes]:
        while part := file.read(_PART):
            yield part
            self.moved_at = time.monotonic()

    def _copy(self, name: str) -> bool:
        """Copy a file; return False if it no longer exists."""
        try:
            file = open_regular(inside(self._run.path, name))
        except FileNotFoundError:
            return False
        with file:
            stamp = _stamp_of(os.fstat(file.fileno()))
            self._place.put(name, self._parts(file))
        self._copied[name] = stamp
        return True

    def _copy_journal(self) -> None:
        at = self._journal_at
        if at is None or (self._place.size(JOURNAL) or 0) != at:
            at = self._claim()
        self._journal_at = None  # until all of it is there
        with open_regular(self._run.journal) as file:
            with suppress(OSError):
                os.fsync(file.fileno())  # after a power failure, the mirror must not have more than the run
            if file.seek(0, os.SEEK_END) > at:
                place = self._place
                write, begin = (place.append, at) if at and isinstance(place, Folder) else (place.put, 0)
                file.seek(begin)
                write(JOURNAL, self._parts(file))
                at = file.tell()
        self._journal_at = at

    def _claim(self) -> int:
        """Check whose mirror it is, and mark it; return how much of the journal it has."""
        self._place.prepare()
        size = self._place.size(JOURNAL) or 0
        if size:
            with self._place.open(JOURNAL) as theirs, open_regular(self._run.journal) as ours:
                same = common_bytes(theirs, ours)
                ours.seek(0)
                is_another = same < min(size, len(ours.readline(_PART)))
            if same < size:
                what = "a copy of another run" if is_another else "progress that the run made elsewhere"
                raise MirrorTakenError(f"{self._place.name} has {what}")
        else:
            self._copied, self._checkpoint = {}, ""  # the mirror is new, or somebody emptied it
        if self._place.size(MARKER) is None:
            self._place.put(MARKER, [json.dumps({"v": 1, "run": self._run.run_id}).encode()])
        for folder in ("", CHECKPOINTS):
            for name in self._place.names(folder):
                if name.startswith(DRAFT):
                    self._place.remove(f"{folder}/{name}".lstrip("/"))
        return size

    def _stamp(self, name: str) -> tuple[int, int, int] | None:
        with suppress(FileNotFoundError):
            return _stamp_of(inside(self._run.path, name).lstat())
        return None

    def _names(self, folder: str) -> list[str]:
        with suppress(OSError):
            return [entry.name for entry in inside(self._run.path, f"{folder}/").iterdir()]
        return []


def _stamp_of(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ino


_LOOK_S, _JOURNAL_EVERY_S, _LONGEST_PAUSE_S, _PATIENCE_S, _LAST_WORDS_S = 2.0, 30.0, 60.0, 600.0, 10.0
_SHARE, _CPU_SHARE = 0.2, 0.02


class Mirror:
    """Mirrors a run while it trains, in its own thread, so that training never waits for a network.

    The thread looks at the run's folder every few seconds and copies what is newest, for at most a fifth of the time,
    computing for at most 2% of it. While the mirror cannot be written, it waits longer and longer. At its end, the run
    gives up on a mirror to which nothing could be copied for `patience_s`.
    """

    def __init__(
        self, recorder: Recorder, folder: str, patience_s: float = _PATIENCE_S, look_s: float = _LOOK_S
    ) -> None:
        self._recorder, self._folder = recorder, folder
        self._patience_s, self._look_s = patience_s, look_s
        self._copier: Copier | None = None
        self._journal_at = time.monotonic()
        self._problem, self._failures = "", 0
        self._is_taken = self._is_ending = self._is_over = False
        self._wake, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="tpu-console-mirror", daemon=True)
        self._thread.start()

    def close(self, end: RunFinished | RunFailed) -> None:
        """Wait until everything but the last event is copied; if the run is stopped or out of time, say what is not."""
        recorder = self._recorder
        recorder.control.ending = end
        asked, began = recorder.control.asked, time.monotonic()
        self._done.clear()
        self._is_ending, self._failures = True, 0
        self._wake.set()
        if not self._is_taken and not self._done.wait(self._look_s / 2):
            recorder.enter(Phase.SAVING, f"copying to {self._folder}")
            self._report(self._left())  # for a process that is ended meanwhile
        while not self._is_taken and not self._done.wait(0.2):
            moved_at = max(began, self._copier.moved_at if self._copier is not None else 0.0)
            is_late = time.monotonic() - moved_at > self._patience_s
            is_late |= recorder.deadline is not None and time.time() >= recorder.deadline.event.ends_at
            if is_late or is_removed(recorder.run) or recorder.control.asked != asked:
                self._is_over = True
                self._problem = self._problem or "there was not enough time"
                break
        self._report(self._left() if self._is_over or self._is_taken else ())

    def finish(self) -> None:
        """Copy the last event, which is in the journal now, and stop."""
        is_given_up, self._is_over = self._is_over or self._is_taken, True
        self._wake.set()
        if not is_given_up:
            self._thread.join(_LAST_WORDS_S)

    def _work(self) -> None:
        pause_s, is_over = 0.0, False
        while not is_over:
            self._wake.wait(pause_s)
            self._wake.clear()
            is_over, is_ending = self._is_over, self._is_ending
            began, began_cpu = time.monotonic(), time.thread_time()
            try:
                self._copy(is_ending=is_ending)
            except MirrorTakenError as error:
                self._is_taken, self._problem = True, str(error)
                self._report()
                self._done.set()
                return
            except Exception as error:  # noqa: BLE001  whatever happens to the mirror, the run goes on
                pause_s = min(_LONGEST_PAUSE_S, self._look_s * 2.0 ** min(self._failures, 10))
                self._failures += 1
                is_new = not self._problem
                self._problem = getattr(error, "strerror", None) or one_line(error) or repr(error)
                if is_new:
                    self._report()
            else:
                self._failures = 0
                took_s, cpu_s = time.monotonic() - began, time.thread_time() - began_cpu
                pause_s = max(self._look_s, took_s / _SHARE, cpu_s / _CPU_SHARE)
                if is_ending:
                    self._done.set()

    def _copy(self, *, is_ending: bool) -> None:
        if self._copier is None:
            self._copier = Copier(self._recorder.run, open_place(self._folder))
        began = time.monotonic()
        if not (is_ending or self._copier.left() or began - self._journal_at > _JOURNAL_EVERY_S):
            return
        had_problem, is_news = bool(self._problem), self._copier.copy()
        self._journal_at = time.monotonic()
        if is_news and self._recorder.deadline is not None:
            self._recorder.deadline.note("mirror", self._journal_at - began)
        self._problem = ""
        if (is_news or had_problem) and not is_ending:
            self._report()

    def _left(self) -> tuple[str, ...]:
        return ("events.jsonl", *(self._copier.left() if self._copier is not None else ()))

    def _report(self, left: tuple[str, ...] = ()) -> None:
        if self._is_over and not left:
            return  # the last report stands
        epoch = self._copier.epoch if self._copier is not None else 0
        is_given_up = self._is_taken or self._is_over
        self._recorder.emit(MirrorReported(self._folder, epoch, self._problem, left, is_given_up))


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,159}", re.ASCII)
_LONGEST_FETCH_S = 86_400.0


def fetch_run(where: str, runs: Path, on_file: Callable[[str], object] = lambda _: None) -> RunDirectory:
    """Copy a run from its mirror into the folder of all runs, and return it.

    A run that is there already is returned as it is, unless it is behind the mirror. `on_file` is called with the name
    of each file before it is copied.
    """
    where = where.rstrip("/")
    name = where.rpartition("/")[2]
    if not _NAME.fullmatch(name):
        raise RunNotFoundError(f"{where} is not a copy of a run.", remedy="Name its folder: MIRROR/RUN.")
    run = RunDirectory(runs / name)
    try:
        place = open_place(where)
        if not place.size(JOURNAL):
            raise RunNotFoundError(f"There is no copy of a run in {where}.")
        if is_run(run.path):
            with place.open(JOURNAL) as theirs, open_regular(run.journal) as ours:
                is_behind = common_bytes(theirs, ours) < (place.size(JOURNAL) or 0)
            if is_behind:
                what = f"{where} has progress that the run made elsewhere, and {user_path(run.path)} is in the way."
                raise ConsoleError(what, remedy=f"Move that folder away, or use it: tpu-console resume {run.run_id}")
            return run
        make_private_folder(runs)
        for old in runs.glob(".fetch-*"):  # of a process that was killed
            if time.time() - old.stat().st_mtime > _LONGEST_FETCH_S:
                shutil.rmtree(old, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=runs, ignore_cleanup_errors=True) as folder:
            draft = RunDirectory(Path(folder) / name)
            for new in (draft.path, draft.control, draft.checkpoints):
                new.mkdir(mode=0o700)
            _fetch(place, draft, on_file)
            draft.path.rename(run.path)
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(runs, f"the run {name}", remedy="Free space there, and try again.") from error
        raise ConsoleError(f"The run cannot be copied from {where}: {error.strerror or error}.") from error
    return run


def newest_named(mirror: str, label: str) -> str | None:
    """Return the folder of the newest run with a label at a mirror; None if there is none."""
    try:
        names = open_place(mirror.rstrip("/")).names()
    except OSError as error:
        raise ConsoleError(f"{mirror} cannot be read: {error.strerror or error}.") from error
    found = [name for name in names if _NAME.fullmatch(name) and is_named(name, label)]
    return f"{mirror.rstrip('/')}/{max(found)}" if found else None


def _fetch(place: Place, draft: RunDirectory, on_file: Callable[[str], object]) -> None:
    """Copy a run into a draft of its folder, with the newest whole checkpoint, if there is one."""

    def fetch(name: str, size: int) -> None:
        on_file(name)
        target = inside(draft.path, name)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with place.open(name) as source, open(target, "wb", opener=open_private) as file:
            while size and (part := source.read(min(size, _PART))):
                file.write(part)
                size -= len(part)
        if size:
            raise ConsoleError(f"{place.name}/{name} was cut off while it was copied.", remedy="Try again.")

    for _, leaf in newest_first(place.names(CHECKPOINTS)):
        name = f"{CHECKPOINTS}/{leaf}"
        fetch(name, place.size(name) or 0)
        if newest_checkpoint(draft) is not None:
            break
        inside(draft.path, name).unlink()
    for name in (*FILES, *hub_files(place.names), JOURNAL):
        if (size := place.size(name)) is not None:
            fetch(name, size)


def fetch_job(reporter: Reporter, place: str, label: str = "") -> dict[str, Any]:
    """Copy a run from its mirror; return its path here, and where it was.

    The place is the run's folder at the mirror. With a label it is the mirror, and the newest run with it is copied;
    the result is empty if there is none.
    """
    place = (newest_named(place, label) or "") if label else place
    if not place:
        return {}
    run = fetch_run(place, runs_folder(), lambda name: reporter.progress(f"copying {name}", 0, None, "seconds"))
    return {"run": str(run.path), "place": place}


def copy_job(reporter: Reporter, run: str, *, trust: bool = False) -> dict[str, Any]:
    """Copy a run that does not train to its mirror; return the place.

    Raises `UntrustedCodeError` if the user did not start it, and it is not trusted, and `ConsoleError` if it has no
    mirror, still trains, or the mirror cannot be written.
    """
    directory = RunDirectory(Path(run))
    config = load_config(directory.config)
    if not (mirror := config.mirror):
        remedy = "Set one when you resume it: tpu-console resume --set mirror=…"
        raise ConsoleError(f"{directory.run_id} has no mirror.", remedy=remedy)
    if not trust:
        check_started(directory.run_id, config)
    lock = lock_run(directory)
    try:
        place = open_place(f"{mirror.rstrip('/')}/{directory.path.name}")
        copier = Copier(directory, place)
        reporter.progress(f"copying to {place.name}", 0, None, "seconds")
        copier.copy()
        ended_at = StateReader(directory).catch_up().last_at
        journal = JournalWriter(directory.journal, lambda: ended_at)  # the run itself took no longer
        journal.write(MirrorReported(place.name, copier.epoch))
        journal.close()
        copier.copy()
    except MirrorTakenError as error:
        raise ConsoleError(f"{error}.") from error
    except OSError as error:
        raise ConsoleError(f"{mirror} cannot be written: {error.strerror or error}.") from error
    finally:
        os.close(lock)
    return {"place": place.name}
