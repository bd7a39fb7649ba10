"""Where a measurement runs: a home, Keras's cache with the data, the programs to start, a terminal."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from tests.keras_files import write_fashion_mnist
from tpu_console.engine.config.catalog import DATASETS
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs

Figure = TypeVar("Figure")

COLUMNS, ROWS = 120, 40
_LEAVE_S = 10.0


class Terminal:
    """Runs a program in a pseudo-terminal; a context manager that ends it. Times are those of `time.perf_counter`."""

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
                # Its controlling terminal, so that it gets the signals for a new size and a hangup.
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

    def send(self, keys: bytes) -> tuple[int, float]:
        """Press keys; return the bytes drawn before, and when."""
        with self._news:
            before = len(self._output)
        pressed_at = time.perf_counter()
        os.write(self._master, keys)
        return before, pressed_at

    def wait_for(self, text: bytes, since: int = 0, limit_s: float = 60.0) -> float:
        """Wait until a text is drawn in one piece after the first `since` bytes; return when it arrived."""
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

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(_LEAVE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(_LEAVE_S)
        os.close(self._master)


HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_SHARED_DATA = ROOT.parent / "shared" / "data" / "fashion-mnist"


@dataclass(frozen=True, slots=True)
class Bench:
    """What measurements share: a folder, whether they are quick, and the environment of the programs."""

    folder: Path  # temporary
    is_quick: bool  # whether to measure only roughly
    variables: Mapping[str, str] = field(default_factory=dict)  # extra ones for the measured programs

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every program that is measured."""
        # Without byte code, as a container may ask for, every start compiles all our modules and none of the others.
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {
            **inherited,
            "TPU_CONSOLE_HOME": str(self.folder / "home"),
            "KERAS_HOME": str(self.folder / "keras"),
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "LANG": "C.UTF-8",
            **self.variables,
        }

    @property
    def runs(self) -> list[RunDirectory]:
        """The runs there are, the newest first."""
        return list_runs(self.folder / "home" / "runs")

    def rounds(self, full: int, quick: int = 1) -> range:
        return range(quick if self.is_quick else full)

    def in_turn(self, rounds: range, ways: Mapping[str, Callable[[], Figure]]) -> dict[str, list[Figure]]:
        """Measure every way once per round; return the figures of each way."""
        measured: dict[str, list[Figure]] = {name: [] for name in ways}
        for _ in rounds:
            for name, measure in ways.items():
                measured[name].append(measure())
        return measured

    def python(self, *arguments: object) -> list[str]:
        """Return the command that runs this very Python."""
        return [sys.executable, *map(str, arguments)]

    def console(self, *arguments: object) -> list[str]:
        """Return the command that runs the console."""
        return [str(Path(sys.executable).parent / "tpu-console"), *map(str, arguments)]

    def output(self, command: Sequence[str]) -> str:
        """Run a program to its end and return what it prints; raise `RuntimeError` with what it said if it failed."""
        done = subprocess.run(command, env=self.environment, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return done.stdout

    def records(self, command: Sequence[str]) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.output(command).splitlines()]

    def seconds(self, command: Sequence[str], **variables: str) -> float:
        """Run a program to its end and return the seconds that it took."""
        began = time.perf_counter()
        subprocess.run(command, env=self.environment | variables, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - began

    def open(self, command: Sequence[str]) -> Terminal:
        return Terminal(command, self.environment)

    def start_detached(self, *arguments: object) -> tuple[RunDirectory, psutil.Process]:
        """Run a command that trains in the background; return the run, and the process that trains."""
        started = json.loads(self.output(self.console(*arguments, "--detach", "--json")))
        return RunDirectory(Path(started["path"])), psutil.Process(started["pid"])


def journal_of(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the complete records of a run's journal; none before the file exists."""
    complete = run.journal.read_bytes().rpartition(b"\n")[0] if run.journal.exists() else b""
    return [json.loads(line) for line in complete.splitlines()]


def end_process(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()
        process.wait(10)


def provide_fashion_mnist(folder: Path) -> str:
    """Put Fashion-MNIST, or made images of the same shapes, into the folder that ``KERAS_HOME`` names; return which."""
    names = [Path(file.path).name for file in DATASETS["fashion-mnist"].files]
    if not all((_SHARED_DATA / name).is_file() for name in names):
        write_fashion_mnist(folder)
        return "generated images of Fashion-MNIST's shapes"
    target = folder / "datasets" / "fashion-mnist"
    target.mkdir(parents=True)
    for name in names:
        shutil.copy(_SHARED_DATA / name, target)
    return "Fashion-MNIST"
