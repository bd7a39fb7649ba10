"""Drives the real program under a real pseudo-terminal: its bytes, the screen they draw, keys, sizes, hanging up."""

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyte

from tests.helpers import LIMIT_S

KEYS = {
    "enter": "\r",
    "escape": "\x1b",
    "tab": "\t",
    "backspace": "\x7f",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "f1": "\x1bOP",
    "f5": "\x1b[15~",
    "ctrl+c": "\x03",
    "ctrl+l": "\x0c",
    "ctrl+q": "\x11",
    "ctrl+r": "\x12",
    "ctrl+u": "\x15",
}

SLOW = """
import time
import keras

class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.25)
"""
"""A callback that leaves the processor to the consoles most of the time."""

PROGRAM = str(Path(sys.executable).with_name("tpu-console"))
# The terminal becomes the controlling one of the new session, so that hanging up reaches the program as SIGHUP, even
# where the tests run under nohup.
_TAKE_TERMINAL = (
    "import fcntl, os, signal, sys, termios; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
_ALTERNATE = 1049
# The end of the kitty keyboard protocol, which pyte would draw; and the beginning of one that is still being read.
_UNKNOWN = re.compile(rb"\x1b\[<[0-9;]*u")
_UNFINISHED = re.compile(rb"\x1b(\[(<[0-9;]*)?)?$")
_READ_S = 0.1


class _Screen(pyte.Screen):  # type: ignore[misc]  # untyped
    """A terminal's screen with the alternate one beside the main one, which pyte does not know."""

    is_alternate = False
    _main: Any = None

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        super().set_mode(*modes, **kwargs)
        if _ALTERNATE in modes and kwargs.get("private") and not self.is_alternate:
            self.is_alternate = True
            self._main = deepcopy(self.buffer), self.cursor.y, self.cursor.x
            self.erase_in_display(2)

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        super().reset_mode(*modes, **kwargs)
        if _ALTERNATE in modes and kwargs.get("private") and self.is_alternate:
            self.is_alternate = False
            self.buffer, self.cursor.y, self.cursor.x = self._main
            self.dirty.update(range(self.lines))


class Terminal:
    """A pseudo-terminal with a program in it; None in `environment` removes a variable.

    A thread reads what the program writes, so that it never waits for the test, unless `reads` is false, like a
    terminal that stops its output. The screen is drawn from those bytes when the test looks at it.
    """

    def __init__(
        self,
        *arguments: str,
        home: Path,
        size: tuple[int, int] = (80, 24),
        environment: Mapping[str, str | None] | None = None,
        program: str = PROGRAM,
    ) -> None:
        self._screen = _Screen(*size)
        self._stream = pyte.ByteStream(self._screen)
        self._bytes = bytearray()
        self._drawn = 0
        self._news = threading.Condition()
        self._has_ended = False
        self._is_hanging_up = threading.Event()
        self.reads = True
        self._main, other = os.openpty()
        self._set_size(*size)
        self.modes_before = self.modes()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", _TAKE_TERMINAL, program, *arguments],
                stdin=other,
                stdout=other,
                stderr=other,
                start_new_session=True,
                env=_environment(home, environment or {}),
            )
        finally:
            os.close(other)
        self._reader = threading.Thread(target=self._read, name="terminal reader", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Collect what the program writes until it closes the terminal or the terminal hangs up."""
        while not self._is_hanging_up.is_set():
            if not select.select([self._main] if self.reads else [], [], [], _READ_S)[0]:
                continue
            try:
                data = os.read(self._main, 65536)
            except OSError:  # the last program has closed it
                break
            with self._news:
                self._bytes += data
                self._news.notify_all()
        with self._news:
            self._has_ended = True
            self._news.notify_all()

    @property
    def unread(self) -> int:
        return int.from_bytes(fcntl.ioctl(self._main, termios.FIONREAD, bytes(4)), sys.byteorder)

    @property
    def raw(self) -> bytes:
        with self._news:
            return bytes(self._bytes)

    @property
    def lines(self) -> list[str]:
        """The screen as it is now, a line a row, without trailing spaces."""
        self._draw()
        return [line.rstrip() for line in self._screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def flat(self) -> str:
        """The screen's words, a single space between them, however they are broken into lines."""
        return " ".join(self.text.split())

    @property
    def tight(self) -> str:
        """The screen's characters without any space, for what may be broken anywhere, such as a path."""
        return "".join(self.text.replace("█", "").split())

    @property
    def curves(self) -> frozenset[tuple[int, int, str]]:
        """The braille cells of the charts, which stand below the header."""
        return frozenset(
            (y, x, c) for y, line in enumerate(self.lines) if y >= 5 for x, c in enumerate(line) if "⠀" < c <= "⣿"
        )

    @property
    def is_alternate(self) -> bool:
        self._draw()
        return bool(self._screen.is_alternate)

    @property
    def private_modes(self) -> frozenset[int]:
        """The numbers of the private modes that are on, such as 25 for a cursor that is seen."""
        self._draw()
        return frozenset(mode >> 5 for mode in self._screen.mode if mode >= 32)

    @property
    def is_restored(self) -> bool:
        """Whether a shell finds the terminal as it was: no alternate screen, cursor and line wrap, cooked."""
        return self.private_modes == {7, 25} and self.modes() == self.modes_before and not self.is_alternate

    def cell(self, row: int, column: int) -> Any:
        """A cell of the screen: pyte's `Char`, with its colors."""
        self._draw()
        return self._screen.buffer[row][column]

    def _draw(self) -> None:
        """Draw what has come since; a sequence that is not complete yet waits."""
        with self._news:
            new = bytes(self._bytes[self._drawn :])
        unfinished = _UNFINISHED.search(new)
        complete = new[: unfinished.start()] if unfinished else new
        self._drawn += len(complete)
        self._stream.feed(_UNKNOWN.sub(b"", complete))

    def modes(self) -> list[Any]:
        return termios.tcgetattr(self._main)

    def wait_for(self, wanted: str | Callable[[], object], limit_s: float = LIMIT_S) -> None:
        """Wait until the screen shows a text, or until a condition holds; fail with the screen when it never does."""
        deadline = time.monotonic() + limit_s
        while True:
            with self._news:
                seen, is_last = len(self._bytes), self._has_ended
            if wanted in self.text if isinstance(wanted, str) else wanted():
                return
            gist = f"'{wanted}' never came" if isinstance(wanted, str) else "the condition never held"
            assert not is_last, f"{gist}, the program has ended; the screen:\n{self.text}"
            assert time.monotonic() < deadline, f"{gist} in {limit_s:.0f} s; the screen:\n{self.text}"
            self._wait_for_news(seen)

    def _wait_for_news(self, seen: int) -> None:
        """Wait for more bytes, but not for ever: a condition may look at more than the screen."""
        with self._news:
            self._news.wait_for(lambda: len(self._bytes) > seen or self._has_ended, _READ_S)

    def wait_for_all(self, *texts: str) -> None:
        """Wait until the screen shows all texts together, however they are broken into lines."""
        self.wait_for(lambda: all("".join(text.split()) in self.tight for text in texts))

    def wait_until_gone(self, text: str) -> None:
        self.wait_for(lambda: text not in self.text)

    def wait_for_path(self, path: Path) -> None:
        """Wait until the screen shows a path: whole, however it is broken into lines, or its end after an ellipsis."""
        self.wait_for(lambda: str(path) in self.tight or self._has_end_of(str(path)))

    def _has_end_of(self, path: str) -> bool:
        return any(path.endswith(end) for end in re.findall(r"…([^\s…]{40,})", self.text))

    def press(self, *keys: str) -> None:
        os.write(self._main, "".join(KEYS.get(key, key) for key in keys).encode())

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size; the kernel tells the program with SIGWINCH."""
        self._draw()
        self._screen.resize(rows, columns)
        self._set_size(columns, rows)

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait(self, limit_s: float = LIMIT_S) -> int:
        """Wait for the program's end and for its last words; return its exit code."""
        code = self.process.wait(limit_s)
        self._reader.join(limit_s)
        assert not self._reader.is_alive(), "something else holds the terminal open"
        return code

    def hang_up(self) -> None:
        """Close the terminal, as a closed window or a lost connection does."""
        self._is_hanging_up.set()
        self._reader.join()
        os.close(self._main)
        self._main = -1

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self._main >= 0:
            self.hang_up()


def _environment(home: Path, changes: Mapping[str, str | None]) -> dict[str, str]:
    """A plain terminal's environment, whatever the tests themselves were started in."""
    usual = {"TPU_CONSOLE_HOME": str(home), "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
    unwanted = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM_PROGRAM", "TEXTUAL", "PYTEST_CURRENT_TEST")
    kept = {name: value for name, value in os.environ.items() if name not in unwanted}
    wanted: dict[str, str | None] = {**kept, **usual, **changes}
    return {name: value for name, value in wanted.items() if value is not None}
