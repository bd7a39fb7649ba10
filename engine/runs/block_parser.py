"""Parses blocks of a long journal, in a process that `engine.runs.journal_blocks` starts."""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import TYPE_CHECKING, Any

from ..storage.files import open_regular
from .journal import JournalReader
from .progress_columns import ProgressColumns, joined, parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BLOCK = 1 << 20
_PIECE = 64 << 10  # what is parsed in one go: its records, ten times as large, stay in the processor's cache
_OVERLAP = 64 << 10  # what is read beyond a block, to find the end of its last line
_MOST_WAITING = 256  # blocks parsed before the reader takes them: of a long journal, all while a screen is loaded


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of a journal that begin within some bytes of it."""

    begin: int  # where the first of these lines begins
    end: int  # where the first line after them begins
    parts: list[ProgressColumns | Mapping[str, Any]]  # the records, with progress as columns
    skipped: int  # lines that could not be read
    newer: int  # the highest version if it is newer than ours, else 0


def read_block(path: Path, begin: int, first: int, end: int) -> Block | None:
    """Return the lines that begin in the block at `begin`; None if a line is too long or the journal was replaced.

    The part of the journal that is read goes from the line at `first` to `end`; a line that is not complete there is
    not read.
    """
    with open_regular(path) as file:
        start = max(begin - 1, first)  # the byte before shows whether a line begins here
        file.seek(start)
        data = file.read(min(begin + BLOCK + _OVERLAP, end) - start)
    skip = data.find(b"\n") + 1 if begin > first else 0
    last = begin + BLOCK >= end
    stop = (data.rfind(b"\n") if last else data.find(b"\n", begin + BLOCK - 1 - start)) + 1
    if (begin > first and not skip) or not stop or len(data) < min(begin + BLOCK, end) - start:
        return None
    reader = JournalReader(path)
    parts = [part for lines in _pieces(data, skip, stop) for part in parts_of(reader.parse(lines))]
    return Block(start + skip, start + stop, joined(parts), reader.skipped, reader.newer)


def _pieces(data: bytes, begin: int, end: int) -> Iterator[bytes]:
    """Split the lines from one place to another into pieces, without the last line feed of each."""
    while begin < end:
        feed = data.find(b"\n", min(begin + _PIECE, end - 1))
        yield data[begin:feed]
        begin = feed + 1


def main() -> None:
    """Write every nth block to the standard output, pickled; parse on while it is not taken yet."""
    import gc

    gc.disable()
    path, first, end, number, count = Path(sys.argv[1]), *map(int, sys.argv[2:])
    blocks: Queue[bytes] = Queue(_MOST_WAITING)
    Thread(target=_write, args=(blocks,), name="writer", daemon=True).start()
    for begin in range(first + number * BLOCK, end, count * BLOCK):
        blocks.put(pickle.dumps(read_block(path, begin, first, end), pickle.HIGHEST_PROTOCOL))
    blocks.join()


def _write(blocks: Queue[bytes]) -> None:
    with suppress(OSError):  # nobody reads any more
        while True:
            sys.stdout.buffer.write(blocks.get())
            sys.stdout.buffer.flush()
            blocks.task_done()
    os._exit(0)
