"""Keeps the folded state of long journals, so that opening a long run reads only what was appended since.

The files are in the user's cache folder and not in the run's, because a run folder may come from anybody: a state in it
would have to be checked like a journal, which takes as long as reading the journal. They are only a cache. One counts
if this code wrote it for this user, its checksums are right, and the journal still begins and continues as it did; in
any other case the journal is read from its beginning.

A file is a fixed prefix, the state as JSON, and the columns of all curves as float64. Dataclasses are stored as lists
of their class's name and their fields' values; see `_Packer`.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from ..storage.caches import make_room
from ..storage.disk_space import free_bytes
from ..storage.files import make_private_folder, open_private, open_regular, remove_drafts, whole_file
from ..storage.keyed_store import key_of
from . import events
from .curves import Curves
from .series import GrowingSequence, Series
from .state import RunState

if TYPE_CHECKING:
    from typing import IO

    from numpy.typing import NDArray

    from .run_directory import RunDirectory

PAYS_FROM = 1 << 20
"""Bytes of journal that are worth keeping: they take about 10 ms to read."""

MOST_BYTES = 1 << 30
"""Size of all kept states together, of which the least recently used are removed, and space left free on the disk."""

_MAGIC = b"tpucstat"
_PREFIX = struct.Struct("<8sQIQQ")  # magic, length and CRC of the JSON, number and sum of the float64 values
_SIDE = 4096  # bytes of the journal's beginning and of its last kept part that are compared
_CLASSES: dict[str, Any] = {name: kind for name, kind in vars(events).items() if is_dataclass(kind)} | {
    kind.__name__: kind for kind in (RunState, Curves)
}


@dataclass(frozen=True, slots=True)
class KeptState:
    """A state and the part of the journal it was folded from."""

    state: RunState
    size: int  # bytes of the journal up to the end of a line
    skipped: int = 0  # lines of them that could not be read
    newer: int = 0  # the highest version of the journal if it is newer than ours, else 0


def pays(size: int, kept: int, *, is_over: bool) -> bool:
    """Return whether keeping a state again is worth it; a running run's file is written a few times, not every second.

    The state was folded from `size` bytes of the journal; one folded from `kept` bytes is kept already.
    """
    return size - kept >= max(PAYS_FROM, kept // (64 if is_over else 4))


def load(run: RunDirectory) -> KeptState | None:
    """Return the kept state of a run; None if there is none that fits its journal."""
    path = run.kept_state
    try:
        with open_regular(path) as file:
            kept = _read(file, run.journal)
        os.utime(path)  # used last
    except (OSError, ValueError, TypeError, LookupError, RecursionError, MemoryError, struct.error):
        return None
    return kept


def save(run: RunDirectory, kept: KeptState) -> None:
    """Keep the state of a run; does nothing if it cannot be written or would fill the disk."""
    packer = _Packer()
    with suppress(OSError, TypeError, ValueError, KeyError, RecursionError):
        values = [kept.size, kept.skipped, kept.newer, packer.packed(kept.state)]
        text = orjson.dumps([_PROGRAM, _identity(run.journal, kept.size), packer.lengths, *values])
        text += b" " * (-len(text) % 8)
        count = sum(packer.lengths)
        size = _PREFIX.size + len(text) + 8 * count
        path = run.kept_state
        make_private_folder(path.parent)
        if size > MOST_BYTES // 2 or (free_bytes(path.parent) or 0) < size + MOST_BYTES:
            return
        remove_drafts(path.parent)
        make_room([entry for entry in path.parent.glob("*.state") if entry != path], MOST_BYTES, size)
        # Not synced: after a power failure the checksums are wrong, and the journal is read.
        with whole_file(path, is_synced=False) as draft, open(draft, "wb", opener=open_private) as file:
            file.write(_PREFIX.pack(_MAGIC, len(text), zlib.crc32(text), count, _sum(packer.columns)))
            file.write(text)
            for column in packer.columns:
                file.write(column.data)


def _read(file: IO[bytes], journal: Path) -> KeptState:
    """Read a kept state; raises one of several errors if it is damaged or does not fit."""
    status = os.fstat(file.fileno())
    if status.st_uid != os.geteuid():
        raise ValueError("written by another user")
    magic, length, crc, count, total = _PREFIX.unpack(file.read(_PREFIX.size))
    if magic != _MAGIC or status.st_size != _PREFIX.size + length + 8 * count:
        raise ValueError("damaged")
    text = file.read(length)
    if zlib.crc32(text) != crc:
        raise ValueError("damaged")
    program, identity, lengths, size, skipped, newer, packed = orjson.loads(text)
    if program != _PROGRAM or sum(lengths) != count:
        raise ValueError("of another program")
    content, edited_at = _identity(journal, size)
    if content != identity[0] or edited_at not in (None, identity[1]):
        raise ValueError("of another journal")
    # Mapped, not read: the file is only ever replaced whole, and a screen needs a few of these pages.
    values = np.memmap(file, "<f8", "r", file.tell(), (count,)).view(np.ndarray) if count else np.empty(0)
    if _sum([values]) != total:
        raise ValueError("damaged")
    columns = np.split(values, np.cumsum(lengths)[:-1])
    return KeptState(_unpacked(packed, columns), size, skipped, newer)


def _identity(journal: Path, size: int) -> tuple[str, int | None]:
    """Return a hash of the beginning and the end of a journal's first bytes, and its time if it has no more.

    A journal that was edited instead of appended to may differ in its time only.

    Raises:
        ValueError: The journal is shorter.
        OSError: It cannot be read.
    """
    side = min(size, _SIDE)
    with open_regular(journal) as file:
        head = file.read(side)
        file.seek(size - side)
        tail = file.read(side)
        status = os.fstat(file.fileno())
    if len(tail) != side:
        raise ValueError("the journal is shorter")
    return hashlib.sha256(head + tail).hexdigest(), status.st_mtime_ns if status.st_size == size else None


def _sum(columns: Sequence[NDArray[np.float64]]) -> int:
    """Return a checksum of columns; adding takes a fifth of the time of a CRC."""
    return sum(int(np.add.reduce(column.view(np.uint64))) for column in columns) & (1 << 64) - 1


def _stamp_of_code() -> str:
    """Return what changes with the code that folds a journal, whatever the program's version is."""
    here = Path(__file__).parent
    sources = sorted([*here.glob("*.py"), *here.parent.glob("sanitize.py")])
    return key_of([(source.name, source.stat().st_size, source.stat().st_mtime_ns) for source in sources])


_PROGRAM = _stamp_of_code()  # of the code that is running, even if it is updated meanwhile


class _Packer:
    """Turns a state into JSON values and a list of columns.

    Texts, whole numbers, finite numbers, booleans and None are as they are; everything else is a list that begins with
    its kind.
    """

    def __init__(self) -> None:
        self.columns: list[NDArray[np.float64]] = []

    @property
    def lengths(self) -> list[int]:
        """The length of each column."""
        return [len(column) for column in self.columns]

    def packed(self, value: Any) -> Any:
        """Return a value as JSON; raises `KeyError` for a dataclass and `TypeError` for a value of an unknown class."""
        match value:
            case float() if not math.isfinite(value):
                return ["float", str(value)]
            case None | str() | int() | float():
                return value
            case Series():
                self.columns.append(np.ascontiguousarray(value.values, "<f8"))
                return ["Series", len(self.columns) - 1]
            case Mapping():
                return ["dict", [*map(self.packed, value)], [*map(self.packed, value.values())]]
            case frozenset() | tuple() | list() | GrowingSequence():
                return [type(value).__name__, *map(self.packed, value)]
        name = type(value).__name__
        return [name, *(self.packed(getattr(value, field.name)) for field in fields(_CLASSES[name]))]


def _unpacked(value: Any, columns: Sequence[NDArray[np.float64]]) -> Any:
    if not isinstance(value, list):
        return value
    kind, *parts = value
    match kind:
        case "float":
            return float(parts[0])
        case "Series":
            return Series.over(columns[parts[0]])
        case "dict":
            names, values = ([_unpacked(part, columns) for part in half] for half in parts)
            return dict(zip(names, values, strict=True))
    made = [_unpacked(part, columns) for part in parts]
    sequences: dict[str, Any] = {
        "frozenset": frozenset,
        "tuple": tuple,
        "list": list,
        "GrowingSequence": GrowingSequence,
    }
    return sequences[kind](made) if kind in sequences else _CLASSES[kind](*made)
