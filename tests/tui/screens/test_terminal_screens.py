"""What a real terminal shows of one run that goes on: sizes, resizing, themes, no color, ASCII."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.helpers import LIMIT_S, Host, all_of, has, wait_until
from tests.tui.terminal_driver import PROGRAM, SLOW, Terminal
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.runs.events import EpochEnded
from tpu_console.engine.runs.heartbeat import Liveness, liveness_of
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.presets.catalog import find_preset

Opener = Callable[..., Terminal]


pytestmark = pytest.mark.slow

SGR = re.compile(rb"\x1b\[([0-9;]*)m")
STORM = [(60 + 37 * i % 141, 18 + 13 * i % 33) for i in range(15)]
HEADER_ROWS = 5


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def run(home: Path) -> Iterator[RunDirectory]:
    """A run that goes on until the last test of this file, and leaves the processor to them most of the time."""
    slow = home / "slow.py"
    slow.write_text(SLOW, encoding="utf-8")
    changes = [("epochs", 100_000), ("steps_per_epoch", 20), ("callbacks", [f"{slow}:Slow"])]
    host = Host(with_changes(find_preset("digits-cnn").config, changes), home / "runs", forked=True)
    with host.run.log.open("a") as log:
        log.write("a line of the log\n")
    wait_until(lambda: has(host.run, EpochEnded), "the first epoch ends")
    yield host.run
    host.kill()


def is_complete(terminal: Terminal) -> bool:
    """Whether the live screen stands with everything on it, the footer at the bottom."""
    return "examples/s" in terminal.text and "p Pane" in terminal.lines[-1] and bool(terminal.curves)


def test_after_many_resizes_the_screen_equals_that_of_a_new_console(open_terminal: Opener, run: RunDirectory) -> None:
    tossed = open_terminal("attach")
    tossed.wait_for(lambda: is_complete(tossed))
    for columns, rows in STORM:
        tossed.resize(columns, rows)
    tossed.resize(80, 24)
    tossed.wait_for(lambda: is_complete(tossed))
    host = psutil.Process(json.loads(run.heartbeat.read_text())["pid"])
    host.suspend()  # nothing new is drawn but clocks, which stand in the header
    try:
        fresh = open_terminal("attach")
        fresh.wait_for(lambda: is_complete(fresh))
        fresh.wait_for(lambda: fresh.lines[HEADER_ROWS:] == tossed.lines[HEADER_ROWS:])
        assert run.run_id in tossed.lines[0]
        tossed.press("?")
        tossed.wait_for("escape: close")
        tossed.press("escape")
        tossed.wait_for(lambda: fresh.lines[HEADER_ROWS:] == tossed.lines[HEADER_ROWS:])
    finally:
        host.resume()
    tossed.press("d")
    assert tossed.wait() == 0
    assert tossed.is_restored


def test_a_large_light_terminal_shows_every_part(open_terminal: Opener, run: RunDirectory) -> None:
    terminal = open_terminal("attach", "--theme", "console-light", size=(200, 50))
    terminal.wait_for(lambda: is_complete(terminal))
    parts = ["digits 1,437 + 360", "3 epochs", "4 replicas", "5 log", "val_accuracy", "compile", "memory", "palette"]
    parts += ["a line of the log", run.run_id, "CPU, 1 replica", "ms/step", "loss", "accuracy", "Detach"]
    terminal.wait_for(lambda: all(part in terminal.text for part in parts))
    background = terminal.cell(2, len(terminal.lines[2]) // 2).bg
    assert int(background[:2], 16) > 0x80


def test_no_color_is_monochrome(open_terminal: Opener) -> None:
    terminal = open_terminal("attach", environment={"NO_COLOR": "1"})
    terminal.wait_for(lambda: is_complete(terminal))
    terminal.press("K")
    terminal.wait_for("Stop training?")
    terminal.press("n")
    terminal.wait_until_gone("Stop training?")
    terminal.press("d")
    assert terminal.wait() == 0
    assert colors(terminal.raw) == set()


def colors(raw: bytes) -> set[tuple[int, ...]]:
    """The colors that a terminal was asked for; grays, of which red, green and blue are the same, are none."""
    found = set()
    for match in SGR.finditer(raw):
        codes = [int(code or 0) for code in match.group(1).split(b";")]
        while codes:
            code = codes.pop(0)
            if code in {38, 48}:
                taken = 4 if codes[0] == 2 else 2
                shade, codes = codes[1:taken], codes[taken:]
                if len(set(shade)) > 1 or taken == 2:
                    found.add((code, *shade))
            elif code in {*range(30, 38), *range(40, 48), *range(90, 108)}:
                found.add((code,))
    return found


def test_ascii_is_all_that_reaches_a_terminal_whose_locale_needs_it(open_terminal: Opener) -> None:
    terminal = open_terminal("attach", environment={"LC_ALL": "C"})
    terminal.wait_for(lambda: "examples/s" in terminal.text and "+-" in terminal.text)
    for key, shown in (("K", "Stop training?"), ("?", "escape: close"), ("i", "escape: close")):
        terminal.press(key)
        terminal.wait_for(shown)
        terminal.press("escape")
        terminal.wait_until_gone(shown)
    terminal.press("4")
    terminal.wait_for("device")
    terminal.resize(200, 50)
    terminal.wait_for("palette")
    terminal.press("u")
    terminal.wait_for("Device")
    terminal.press("ctrl+l")
    terminal.wait_for("runs, newest first")
    terminal.press("ctrl+q")
    assert terminal.wait() == 0
    assert terminal.raw.isascii(), sorted({c for c in terminal.raw.decode() if ord(c) > 127})


def test_a_terminal_that_stops_reading_holds_up_neither_the_run_nor_the_consoles_end(
    open_terminal: Opener, run: RunDirectory
) -> None:
    def waits_for(terminal: Terminal) -> None:
        """Let it write until the terminal takes no more, and the run train on."""
        terminal.reads = False
        wait_until(lambda: terminal.unread >= 3000, "the terminal's buffer to be full")
        done = len(all_of(run, EpochEnded))
        wait_until(lambda: len(all_of(run, EpochEnded)) > done + 1, "training to go on")

    terminal = open_terminal("attach")
    terminal.wait_for(lambda: "p Pane" in terminal.lines[-1])
    waits_for(terminal)
    terminal.reads = True
    terminal.press("i")
    terminal.wait_for("escape: close")
    terminal.press("escape")
    waits_for(terminal)
    terminal.hang_up()
    terminal.process.wait(LIMIT_S)
    assert liveness_of(run) is Liveness.ALIVE


def test_a_console_under_nohup_ends_with_its_terminal(open_terminal: Opener, run: RunDirectory) -> None:
    command = f"trap '' HUP; exec {shlex.quote(PROGRAM)} attach"
    terminal = open_terminal("-c", command, program="/bin/sh")
    terminal.wait_for(lambda: "p Pane" in terminal.lines[-1])
    terminal.hang_up()
    terminal.process.wait(LIMIT_S)
    assert liveness_of(run) is Liveness.ALIVE
