"""Standard output and error: whole lines without escape codes in any encoding, Ctrl-C, and what native code prints."""

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import get_terminal_size
from typing import TextIO

from tpu_console.engine.errors import ConfigError, ConsoleError
from tpu_console.engine.storage.files import open_private

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
# ASCII for the other characters that this program draws, each as wide as the original.
LOOKALIKES = {sign: plain for plain, signs in _SIMILAR.items() for sign in signs} | _SINGLE
_ASCII = str.maketrans({**LOOKALIKES, "…": "...", "→": "->"})


def speaks_utf8(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether the locale uses UTF-8; no locale at all, as in most containers, does, as for Python itself."""
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


_OUTPUTS = (1, 2)
_diverted: list[int] = []  # the descriptor that 1 and 2 are redirected to, if they are


@contextmanager
def native_output_diverted() -> Iterator[None]:
    """Redirect descriptors 1 and 2, to which native code writes, to a file, while Textual draws on another descriptor.

    The app calls `send_native_output_to` with the log of the run, which gets earlier output too.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(descriptor) for descriptor in _OUTPUTS]
    with (
        tempfile.TemporaryFile(prefix="tpu-console-", buffering=0) as file,
        os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace", newline="") as drawing,
    ):
        originals = sys.__stdout__, sys.__stderr__
        # Textual draws on sys.__stderr__ and asks sys.__stdout__ how large the terminal is.
        sys.__stdout__ = sys.__stderr__ = drawing  # type: ignore[misc]  # typed as constants
        for descriptor in _OUTPUTS:
            os.dup2(file.fileno(), descriptor)
        _diverted.append(file.fileno())
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            _diverted.clear()
            for descriptor, original in zip(_OUTPUTS, kept, strict=True):
                os.dup2(original, descriptor)
                os.close(original)
            sys.__stdout__, sys.__stderr__ = originals  # type: ignore[misc]  # as above


def send_native_output_to(log: Path) -> None:
    """Redirect descriptors 1 and 2 to a run's private log, unless that is done already; it is appended to.

    Raises:
        OSError: It cannot be opened.
    """
    if not _diverted:
        return
    target = open_private(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        source = _diverted[0]
        with suppress(OSError):  # a full disk: losing earlier output must not prevent training
            if size := os.fstat(source).st_size:
                os.write(target, os.pread(source, min(size, 1 << 20), 0))
                os.ftruncate(source, 0)
                os.lseek(source, 0, os.SEEK_SET)
        for descriptor in _OUTPUTS:
            os.dup2(target, descriptor)
    finally:
        os.close(target)
