"""Reads a long journal with several processes: parsing takes most of the time, and blocks can be parsed independently.

With n processes, each takes every nth block and writes the result to its standard output. The reader folds the blocks
in order. If anything goes wrong, it parses the rest itself. This module loads no NumPy, so that a command can start the
processes before it loads its screen.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from .block_parser import Block
    from .run_directory import RunDirectory

PAYS_FROM = 128 << 20
"""Bytes of journal that are worth starting processes for: one process takes half a second for them."""

_PIPE = 1 << 20  # the most that a pipe may hold without privileges
_MOST_PROCESSES = 4  # the process that folds the blocks keeps up with no more


class _Parsers(NamedTuple):
    """The processes that parse a journal from the line at `first` to `end`."""

    first: int
    end: int
    processes: list[subprocess.Popen[bytes]]

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


_early: dict[Path, _Parsers] = {}


def start_early(run: RunDirectory) -> None:
    """Start parsing a run's journal for whoever reads it next in this process, if it is long."""
    if (parsers := _start(run.journal, 0)) is not None:
        _early[run.journal] = parsers


def read_blocks(path: Path, first: int) -> Generator[Block]:
    """Yield the blocks of a journal from the line at `first` on; none if little is left, no more after a failure.

    Close the generator to end its processes.
    """
    parsers = _early.pop(path, None)
    if parsers is not None and parsers.first != first:
        parsers.stop()
        parsers = None
    parsers = parsers or _start(path, first)
    if parsers is None:
        return
    from .block_parser import BLOCK

    place = first
    with suppress(OSError, EOFError, pickle.UnpicklingError):
        try:
            for number in range(-((first - parsers.end) // BLOCK)):
                block = pickle.load(_output(parsers.processes[number % len(parsers.processes)]))  # noqa: S301  our own process
                if block is None or block.begin != place:
                    return
                place = block.end
                yield block
        finally:
            parsers.stop()


def _output(process: subprocess.Popen[bytes]) -> Any:
    return process.stdout


def _start(path: Path, first: int) -> _Parsers | None:
    """Start the processes; None if little is left or they cannot be started."""
    try:
        end = path.stat().st_size
    except OSError:
        return None
    if end - first < PAYS_FROM:
        return None
    from ..machine.resources import usable_cores

    count = min(usable_cores(), _MOST_PROCESSES)
    parsers = _Parsers(first, end, [])
    try:
        for number in range(count if count > 1 else 0):
            parsers.processes.append(_start_one(path, first, end, number, count))
    except OSError:
        parsers.stop()
        return None
    return parsers if parsers.processes else None


def _start_one(path: Path, *numbers: int) -> subprocess.Popen[bytes]:
    program = f"from {__package__}.block_parser import main; main()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program, str(path), *map(str, numbers)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=_PIPE,
        pipesize=_PIPE,
    )
