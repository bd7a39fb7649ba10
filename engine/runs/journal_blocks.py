"""Parses a long journal in several processes: parsing takes most of the time, and blocks can be parsed independently.

With n processes, each takes every nth block and writes the result to its standard output. The reader folds the blocks
in order. If anything goes wrong, it parses the rest itself.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..storage.files import open_regular
from .journal import JournalReader
from .progress_columns import ProgressColumns, parts_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

PAYS_FROM = 128 << 20
"""Bytes of journal that are worth starting processes for: one process takes half a second for them."""

BLOCK = 1 << 20
_PIPE = 1 << 20  # the most that a pipe may hold without privileges
_MOST_PROCESSES = 4  # the process that folds the blocks keeps up with no more
_OVERLAP = 64 << 10  # what is read beyond a block, to find the end of its last line


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of a journal that begin within some bytes of it.

    Args:
        begin: Where the first of these lines begins.
        end: Where the first line after them begins.
        parts: The records, with progress as columns.
        skipped: Number of lines that could not be read.
        newer: The highest version if it is newer than ours, else 0.
    """

    begin: int
    end: int
    parts: list[ProgressColumns | Mapping[str, Any]]
    skipped: int
    newer: int


def read_block(path: Path, begin: int, first: int, end: int) -> Block | None:
    """Return the lines that begin in the block at `begin`; None if a line is too long or the journal was replaced.

    Args:
        path: The journal.
        begin: Where the block begins.
        first: Where the first line of the part that is read begins.
        end: Where that part ends. A line that is not complete there is not read.
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
    parts = parts_of(reader.parse(data[skip : stop - 1])) if stop > skip else []
    return Block(start + skip, start + stop, parts, reader.skipped, reader.newer)


def read_blocks(path: Path, first: int) -> Generator[Block]:
    """Yield the blocks of a journal from the line at `first` on; none if little is left, no more after a failure.

    Close the generator to end its processes.
    """
    from ..machine.resources import usable_cores

    try:
        end = path.stat().st_size
    except OSError:
        return
    count = min(usable_cores(), _MOST_PROCESSES)
    if end - first < PAYS_FROM or count < 2:
        return
    processes = []
    with suppress(OSError, EOFError, pickle.UnpicklingError):
        try:
            for number in range(count):
                processes.append(_start(path, first, end, number, count))  # noqa: PERF401  those before are ended if one fails
            place = first
            for number in range(-((first - end) // BLOCK)):
                block = pickle.load(_output(processes[number % count]))  # noqa: S301  from our own process
                if block is None or block.begin != place:
                    return
                place = block.end
                yield block
        finally:
            for process in processes:
                process.kill()
                process.communicate()


def _output(process: subprocess.Popen[bytes]) -> Any:
    return process.stdout


def _start(path: Path, first: int, end: int, number: int, count: int) -> subprocess.Popen[bytes]:
    numbers = (first, end, number, count)
    return subprocess.Popen(
        [sys.executable, "-P", "-c", f"from {__name__} import main; main()", os.fspath(path), *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=BLOCK,
        pipesize=_PIPE,
    )


def main() -> None:
    """Write every nth block to the standard output, pickled."""
    import gc

    gc.disable()
    path, first, end, number, count = Path(sys.argv[1]), *map(int, sys.argv[2:])
    with suppress(BrokenPipeError):  # nobody waits for the rest
        for begin in range(first + number * BLOCK, end, count * BLOCK):
            pickle.dump(read_block(path, begin, first, end), sys.stdout.buffer, pickle.HIGHEST_PROTOCOL)
            sys.stdout.buffer.flush()
