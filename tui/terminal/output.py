"""Standard output and error: whole lines without escape codes in any encoding, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager
from shutil import get_terminal_size
from typing import TYPE_CHECKING, TextIO

from tpu_console.engine.errors import ConfigError, ConsoleError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


LOOKALIKES = {
    **dict.fromkeys("─", "-"),
    **dict.fromkeys("━═", "="),
    **dict.fromkeys("│┃║‖┊▎▏▌▍▐▕▊▋▉", "|"),
    **dict.fromkeys("╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛╔╗╚╝", "+"),
    **dict.fromkeys("▔▀", "-"),
    # A spinner's frames, and the bars of a sparkline.
    **dict(zip("▖▘▝▗", "|/-\\", strict=True)),
    **dict(zip("▁▂▃▄▅▆▇█", "_.:-=+*#", strict=True)),
    **dict.fromkeys("■", "#"),
    **dict.fromkeys("●•★◆", "*"),
    **dict.fromkeys("○◯□", "o"),
    **dict.fromkeys("✓", "+"),
    **dict.fromkeys("✗✕×", "x"),
    **dict.fromkeys("▶▸►→❯≥", ">"),
    **dict.fromkeys("◀◂◄←❮⏎≤", "<"),
    **dict.fromkeys("▲△", "!"),
    **dict.fromkeys("↑", "^"),
    **dict.fromkeys("▼▽↓", "v"),
    **dict.fromkeys("–—·", "-"),
    "░": ".",
    "µ": "u",
    "…": "~",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "\xa0": " ",
}
"""ASCII replacements for the other characters that this program draws, each as wide as the original."""

_ASCII = str.maketrans({**LOOKALIKES, "…": "...", "→": "->"})


def speaks_utf8(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the locale uses UTF-8.

    No locale at all, as in most containers, counts as UTF-8: Python itself then coerces it, and the terminal
    at the other end almost always is.
    """
    names = (environment.get(variable, "") for variable in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((name for name in names if name), "C.UTF-8").lower()
    return "utf-8" in locale or "utf8" in locale


def say(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Write lines and flush them, so that a pipe's reader sees them immediately; `BrokenPipeError` if it is gone."""
    stream = stream or sys.stdout
    text = "".join(f"{line}\n" for line in lines)
    if not text:
        return
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
    try:
        say(lines, sys.stderr)
    except OSError:
        return


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
    if not sys.stdout.isatty():
        return None

    return get_terminal_size().columns


def abandon_output() -> None:
    """Discard further output, also at the interpreter's exit, because its reader is gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextmanager
def interrupts_call(hear: Callable[[int], object]) -> Iterator[None]:
    """Pass the number of each signal to a function while the block runs; only in the main thread."""
    before = {
        number: signal.signal(number, lambda number, _: hear(number)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
