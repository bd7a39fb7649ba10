"""A real pseudo-terminal of 120×40 with a program in it, read all the time as a terminal would."""

from __future__ import annotations

import fcntl
import os
import subprocess
import termios
import threading
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

COLUMNS, ROWS = 120, 40
_LEAVE_S = 10.0


class Terminal:
    """Runs a program in a pseudo-terminal; a context manager that ends it.

    Args:
        command: The program and its arguments.
        environment: Its environment.

    Attributes:
        started_at: When it was started, in seconds of `time.perf_counter`.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._master, slave = os.openpty()
        termios.tcsetwinsize(slave, (ROWS, COLUMNS))
        self._output = bytearray()
        self._arrivals: list[tuple[int, float]] = []  # (bytes so far, when)
        self._news = threading.Condition()
        self._is_over = False
        variables = {**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.started_at = time.perf_counter()
        try:
            self.process = subprocess.Popen(
                command,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                env=variables,
                start_new_session=True,
                # The terminal is to be its own, so that it hears of size changes and of the terminal's end.
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
            )
        finally:
            os.close(slave)
        self._reader = threading.Thread(target=self._read, name="terminal reader", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._master, 1 << 16)
            except OSError:  # Linux's way to say that nobody holds the other end any more
                chunk = b""
            with self._news:
                self._output += chunk
                self._arrivals.append((len(self._output), time.perf_counter()))
                self._is_over = not chunk
                self._news.notify_all()
            if not chunk:
                return

    @property
    def size(self) -> int:
        """Bytes that were drawn so far."""
        with self._news:
            return len(self._output)

    def send(self, keys: bytes) -> tuple[int, float]:
        """Press keys; return the bytes drawn before, and when in seconds of `time.perf_counter`."""
        before = self.size
        pressed_at = time.perf_counter()
        os.write(self._master, keys)
        return before, pressed_at

    def wait_for(self, text: bytes, since: int = 0, limit_s: float = 60.0) -> float:
        """Wait until a text was drawn, and return when it arrived, in seconds of `time.perf_counter`.

        Args:
            text: Bytes that the program draws in one piece.
            since: Only look behind so many bytes.
            limit_s: Longest wait.

        Raises:
            TimeoutError: It was not drawn.
        """
        with self._news:
            self._news.wait_for(lambda: self._output.find(text, since) >= 0 or self._is_over, limit_s)
            place = self._output.find(text, since)
            if place < 0:
                tail = bytes(self._output[-500:]).decode("utf-8", errors="replace")
                message = f"the terminal never showed {text!r}; the last it drew: {tail!r}"
                raise TimeoutError(message)
            end = place + len(text)
            return next(when for count, when in self._arrivals if count >= end)

    def settle(self, quiet_s: float = 0.15, limit_s: float = 5.0) -> None:
        """Wait until nothing was drawn for a while, or for `limit_s` where something always moves."""
        deadline = time.perf_counter() + limit_s
        with self._news:
            while time.perf_counter() < deadline:
                before = len(self._output)
                self._news.wait(quiet_s)
                if len(self._output) == before:
                    return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        try:
            self.process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(_LEAVE_S)
        os.close(self._master)
