"""Downloads data: how much and from where, whether it fits on the disk, and how much has arrived."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from ..errors import ConsoleError, DataError, one_line
from ..storage.disk_space import check_space, size_text
from ..storage.files import folder_size
from .places import is_remote, shown

if TYPE_CHECKING:
    from ..messages import Reporter

    OnFetch = Callable[[object], None]
    """Called with a sentence, or with what has `Arrived`; both are shown as text."""

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
