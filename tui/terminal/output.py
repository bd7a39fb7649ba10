"""Standard output and error: whole lines without escape codes in any encoding, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager, suppress
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TextIO

from tpu_console.engine.errors import ConfigError, ConsoleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_SIMILAR = {
    "-": "─▔▀–—·",
    "=": "━═",
    "|": "│┃║‖┊▎▏▌▍▐▕▊▋▉",
    "+": "╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛╔╗╚╝✓",
    "*": "●•★◆",
    "o": "○◯□",
    "x": "✗✕×",
    ">": "▶▸►→❯≥",
    "<": "◀◂◄←❮⏎≤",
    "!": "▲△",
    "v": "▼▽↓",
    "'": "‘’",
    '"': "“”",
}
# A spinner's frames, the bars of a sparkline, and characters without any of their kind.
_SINGLE = dict(zip("▖▘▝▗▁▂▃▄▅▆▇█■↑░µ…\xa0", "|/-\\_.:-=+*##^.u~ ", strict=True))
LOOKALIKES = {sign: plain for plain, signs in _SIMILAR.items() for sign in signs} | _SINGLE
"""ASCII replacements for the other characters that this program draws, each as wide as the original."""

_ASCII = str.maketrans({**LOOKALIKES, "…": "...", "→": "->"})


def speaks_utf8(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the locale uses UTF-8.

    No locale at all, as in most containers, counts as UTF-8, as for Python itself.
    """
    names = (environment.get(variable, "") for variable in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((name for name in names if name), "C.UTF-8").lower()
    return "utf-8" in locale or "utf8" in locale


def say(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Write lines and flush them, so that a pipe's reader sees them immediately; `BrokenPipeError` if it is gone."""
    stream = stream or sys.stdout
    if text := "".join(f"{line}\n" for line in lines):
        stream.write(encodable(text, stream))
        stream.flush()


def say_json(value: object) -> None:
    """Write a value as JSON that a person can read, too."""
    say([json.dumps(value, indent=2, ensure_ascii=False)])


def encodable(text: str, stream: TextIO) -> str:
    """Replace what a stream or the locale cannot show."""
    encoding = stream.encoding or "ascii"
    if speaks_utf8() and "utf" in encoding.lower():
        return text
    return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)


def complain(lines: Iterable[str]) -> None:
    """Write lines to standard error; ignores a closed standard error."""
    with suppress(OSError):
        say(lines, sys.stderr)


def complain_about(error: ConsoleError) -> None:
    """Write an error to standard error: every problem of a configuration on its own line."""
    if isinstance(error, ConfigError):
        complain(f"Error: {line}" for line in str(error).splitlines())
    else:
        complain([f"Error: {error.what}", *(part for part in (error.why, error.remedy) if part)])


def width_of_output() -> int | None:
    """Return the width of standard output in cells: the variable `COLUMNS`, or the terminal's; None for no limit."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    return get_terminal_size().columns if sys.stdout.isatty() else None


def abandon_output() -> None:
    """Discard further output, also at the interpreter's exit, because its reader is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextmanager
def interrupts_call(hear: Callable[[int], object]) -> Iterator[None]:
    """Pass the number of each signal to a function while the block runs; only in the main thread."""
    numbers = signal.SIGINT, signal.SIGTERM
    before = {number: signal.signal(number, lambda number, _: hear(number)) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
