"""Where the files of datasets are: finds and opens them, which may be remote, and downloads what is not here."""

from __future__ import annotations

import errno
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, BinaryIO, TypeVar, cast

from msgspec import Struct

from ..errors import ConsoleError, DataError, one_line
from ..storage.files import check_space, folder_size, open_regular, size_text
from ..storage.paths import keras_home, user_path

if TYPE_CHECKING:
    from ..messages import Reporter

    OnFetch = Callable[[object], None]
    """Called with a sentence, or with what has `Arrived`; both are shown as text."""

KAGGLE_INPUT = Path("/kaggle/input")  # where Kaggle mounts the datasets and competitions of a notebook
IMAGE_ENDINGS = frozenset((".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".png", ".webp"))
ON_THIS_MACHINE = "on this machine"
KAGGLE = "kaggle"  # before the colon of a name such as ``kaggle:OWNER/NAME``
_KAGGLE_NAME = re.compile(r"kaggle:(\w[\w.-]*/\w[\w.-]*)(?:/(.*))?", re.ASCII)
_REMOTE = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_remote(path: str) -> bool:
    """Return whether only TensorFlow can read a path, such as ``gs://bucket/folder``."""
    return _REMOTE.match(path) is not None


def kaggle_parts(path: str) -> tuple[str, str] | None:
    """Return ``OWNER/NAME``, and the path inside, of a dataset such as ``kaggle:OWNER/NAME``; None for other paths."""
    match = _KAGGLE_NAME.fullmatch(path)
    return (match[1], match[2] or "") if match is not None else None


def kaggle_cache() -> Path:
    """Return where kagglehub keeps what it downloads."""
    return Path(os.environ.get("KAGGLEHUB_CACHE") or "~/.cache/kagglehub").expanduser()


def is_image_name(name: str) -> bool:
    """Return whether a file's name ends like an image's."""
    return name[name.rfind(".") :].lower() in IMAGE_ENDINGS


def join(folder: str, name: str) -> str:
    """Return the path of a file in a folder, which may be remote."""
    return f"{folder.rstrip('/')}/{name}" if is_remote(folder) else str(Path(folder) / name)


def locate(path: str) -> str:
    """Return where a file or folder of a dataset is, without `..`; remote paths are returned as they are.

    A relative one is searched for in the working directory, the default, in Keras's ``datasets`` folder and in Kaggle's
    input folders. ``kaggle:OWNER/NAME`` is a folder that Kaggle mounted, or else the newest one downloaded.
    """
    if is_remote(path):
        return path
    place = next((place for place in candidates(path) if place.exists()), Path.cwd() / Path(path).expanduser())
    return str(place.resolve() if ".." in place.parts else place)


def candidates(path: str) -> Iterator[Path]:
    """Yield the places where a local path is looked for, in order."""
    if (parts := kaggle_parts(path)) is not None:
        handle, inner = parts
        yield KAGGLE_INPUT / handle.partition("/")[2] / inner
        yield KAGGLE_INPUT / "datasets" / handle / inner
        place = kaggle_cache() / "datasets" / handle
        whole = (mark.stem for mark in place.glob("*.complete") if mark.stem.isdecimal())  # other downloads are cut off
        yield from (place / "versions" / version / inner for version in sorted(whole, key=int, reverse=True))
        return
    expanded = Path(path).expanduser()
    if expanded.is_absolute():
        yield expanded
        return
    yield Path.cwd() / expanded
    yield keras_home() / "datasets" / expanded
    if KAGGLE_INPUT.is_dir():
        yield KAGGLE_INPUT / expanded
        yield from (folder / expanded for folder in sorted(KAGGLE_INPUT.iterdir()))


def not_there(path: str, what: str, option: str) -> DataError:
    """Return an error for a missing file or folder of an option that says where it was looked for."""
    looked = [] if is_remote(path) else [user_path(place) for place in candidates(path)]
    more = f" and at {len(looked) - 3} more places" if len(looked) > 3 else ""
    where = f"It was looked for at {', '.join(looked[:3])}{more}." if len(looked) > 1 else ""
    return DataError(
        f"There is no {what} {shown(path)}.", why=where, remedy=f"Put it there or correct data.options.{option}."
    )


def shown(path: str) -> str:
    """Return the path of a dataset's file for messages."""
    place = locate(path)
    return place if is_remote(place) else user_path(Path(place))


def open_file(path: str) -> BinaryIO:
    """Open a local or remote file for reading."""
    if not is_remote(path):
        return cast("BinaryIO", open_regular(path, follows_links=True))
    import tensorflow as tf

    return cast("BinaryIO", tf.io.gfile.GFile(path, "rb"))


def read_whole(path: str) -> bytes:
    """Read a local or remote file; raise `OSError` if it cannot be read."""
    with open_file(path) as file:
        if not is_remote(path):
            return file.read()
        import tensorflow as tf

        try:
            return bytes(file.read())
        except tf.errors.OpError as error:
            is_missing = isinstance(error, tf.errors.NotFoundError)
            kind, number = (FileNotFoundError, errno.ENOENT) if is_missing else (OSError, errno.EIO)
            raise kind(number, one_line(error)) from error


T = TypeVar("T")
_SAID_EVERY_S = 1.0
_BAR_CELLS = 20
_ABANDONED_S = 300.0
_CUT_OFF = 416  # the requested range begins after the end: the whole file is here


class Arrived(Struct, frozen=True):
    """How much of a download is here."""

    what: str  # the activity, such as ``downloading mnist``
    done: int  # bytes
    total: int  # bytes; 0 if unknown
    seconds: float  # since it began

    def __str__(self) -> str:
        if not self.total:
            return f"{self.what}: {size_text(self.done)}"
        if self.done >= self.total:
            return f"{self.what}: unpacking"
        cells = _BAR_CELLS * self.done // self.total
        left = f", {(self.total - self.done) * self.seconds / self.done:,.0f} s left" if self.done else ""
        drawn = "━" * cells + "─" * (_BAR_CELLS - cells)
        return f"{self.what}: {drawn} {size_text(self.done)} of {size_text(self.total)}{left}"


class Download(Struct, frozen=True):
    """What has to be downloaded before data can be read."""

    name: str  # what is downloaded, in sentences
    folder: str  # where it is put
    by_hand: str  # how else to get it, as a part of a sentence
    otherwise: str = "choose another one"  # what to do if the disk is too small, as a part of a sentence
    hosts: tuple[str, ...] = ()
    size: int = 0  # bytes; 0 if unknown
    needed: int = 0  # bytes on the disk, unpacked and all; 0 if unknown
    is_stream: bool = False  # whether the examples are read from the hosts in each epoch instead

    def __str__(self) -> str:
        size = f", {size_text(self.size)}" if self.size else ""
        return f"{self.name}{size}{self._source}, to {shown(self.folder)}"

    @property
    def sentence(self) -> str:
        """What is downloaded, or read, and when."""
        in_each = f"The examples are read{self._source} in each epoch."
        return in_each if self.is_stream else f"This is downloaded first: {self}."

    @property
    def _source(self) -> str:
        return f" from {', '.join(self.hosts)}" if self.hosts else ""

    def check(self, can_reach: Callable[[str], bool]) -> None:
        """Raise `DataError` if a host cannot be reached, and `DiskFullError` if there is too little space."""
        if host := next((host for host in self.hosts if not can_reach(host)), ""):
            remedy = f"Check the connection (on Kaggle: turn on the notebook's internet), or {self.by_hand}."
            raise DataError(f"{self.name} is not on this machine, and {host} cannot be reached.", remedy=remedy)
        if not is_remote(self.folder):
            remedy = f"Free space on that disk, or {self.otherwise}."
            check_space(Path(self.folder), max(self.size, self.needed), self.name, remedy)

    def fetch(self, work: Callable[[], T], arriving: Path, on_fetch: OnFetch, can_reach: Callable[[str], bool]) -> T:
        """Download in a thread, say every second how much has arrived in a folder, and return what `work` returns.

        Nobody waits for the thread if `on_fetch` raises. Raises as `check` does, and `DataError` if the download fails.
        """
        self.check(can_reach)
        result, before, began = Future[T](), folder_size(arriving), time.monotonic()
        on_fetch(f"downloading {self}")

        def run() -> None:
            try:
                result.set_result(work())
            except BaseException as error:  # noqa: BLE001  raised below
                result.set_exception(error)

        Thread(target=run, name="download", daemon=True).start()
        while not wait([result], _SAID_EVERY_S).done:
            done = folder_size(arriving) - before
            on_fetch(Arrived(f"downloading {self.name}", done, self.size, time.monotonic() - began))
        try:
            return result.result()
        except ConsoleError:
            raise
        except Exception as error:  # the packages raise what the servers, the archives and their own code raise
            what, remedy = f"{self.name} could not be downloaded{self._source}.", f"Try again, or {self.by_hand}."
            raise DataError(what, why=f"{type(error).__name__}: {one_line(error, 300)}", remedy=remedy) from error


def remove_leftovers(parts: Iterable[Path]) -> None:
    """Remove files and folders that a killed process left of a download: those not written to for five minutes."""
    for part in parts:
        with suppress(OSError):
            if all(time.time() - place.stat().st_mtime > _ABANDONED_S for place in (part, *part.rglob("*"))):
                shutil.rmtree(part) if part.is_dir() else part.unlink()


def reporting(reporter: Reporter, say: Callable[[str], None]) -> OnFetch:
    """Return what reports the bytes that have arrived as a job's progress, and says everything else."""

    def on_fetch(news: object) -> None:
        if isinstance(news, Arrived):
            reporter.progress(news.what, news.done, news.total or None, "bytes")
        else:
            say(str(news))

    return on_fetch


def reaches(host: str) -> bool:
    """Return whether the address of a host is known; a proxy may know it."""
    from urllib.request import getproxies  # every command would wait for it

    with suppress(OSError):
        return bool(getproxies() or socket.getaddrinfo(host, 443))
    return False


def part_of(place: Path) -> Path:
    """Return where what has arrived of a file is, until all of it has."""
    return place.with_name(f"{place.name}.part")


def fetch_file(url: str, place: Path, check: Callable[[Path], None]) -> None:
    """Download a file, going on where the last download of it stopped.

    Until it is whole and passes the `check`, it has another name. Raises `OSError` if it is damaged or unavailable.
    """
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    part = part_of(place)
    part.parent.mkdir(parents=True, exist_ok=True)
    here = part.stat().st_size if part.exists() else 0
    try:
        with urlopen(Request(url, headers={"Range": f"bytes={here}-"})) as reply:  # noqa: S310  of the catalog
            here = here if reply.status == 206 else 0
            total = here + int(reply.headers.get("Content-Length", 0))
            with part.open("r+b" if here else "wb") as file:
                file.seek(here)
                shutil.copyfileobj(reply, file)
    except HTTPError as error:
        if error.code != _CUT_OFF:
            raise
        total = here
    if not part.exists() and place.exists():
        return  # another run fetched it meanwhile
    if part.stat().st_size < total:
        raise OSError(f"the connection ended after {size_text(part.stat().st_size)} of {size_text(total)}")
    try:
        check(part)
    except DataError as error:
        part.unlink()
        raise OSError(f"what {url} sent is damaged: {error.why}") from error
    part.replace(place)
