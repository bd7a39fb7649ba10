"""The console as a process: where native output goes, and what a bug leaves behind."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import has, private_mode, the, wait_until
from tests.tui.live_fakes import FakeEngine
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.runs.events import PhaseStarted, RunFailed
from tpu_console.engine.runs.run_directory import list_runs

Opener = Callable[..., Terminal]


NOISY = """
import os, sys, threading
from pathlib import Path
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.terminal.output import native_output_diverted, send_native_output_to

run = RunDirectory(Path(sys.argv[1]))
with native_output_diverted():
    os.write(2, b"NATIVE early\\n")
    app = ConsoleApp(run=run, in_process=True)

    def shout():
        send_native_output_to(run.log)
        for _ in range(200):
            os.write(1, b"NATIVE out\\n")
            os.write(2, b"NATIVE err\\n")

    app.call_later(shout)
    app.run()
print("BYE", os.isatty(1), os.isatty(2))
"""


def test_native_output_goes_to_the_log_and_never_to_the_screen(open_terminal: Opener, engine: FakeEngine) -> None:
    engine.begin(1)
    terminal = open_terminal("-c", NOISY, str(engine.run.path), program=sys.executable, size=(100, 30))
    terminal.wait_for("CPU, 1 replica")
    assert len(terminal.lines[0].rstrip()) > 80, "it knows how wide the terminal is"
    terminal.press("d")
    assert terminal.wait() == 0
    log = engine.run.log.read_text()
    assert log.startswith("NATIVE early\n")
    assert log.count("NATIVE out\n") == log.count("NATIVE err\n") == 200
    assert private_mode(engine.run.log) == 0o600
    # The log pane shows the log, so the words may be drawn; a raw line would end in a line feed.
    assert b"NATIVE out\n" not in terminal.raw
    assert b"NATIVE out\r\n" not in terminal.raw
    assert terminal.raw.rstrip().endswith(b"BYE True True")


# The console, with a bug behind its help.
WITH_A_BUG = """#!{python}
import sys
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.cli import main

async def fail():
    raise ZeroDivisionError("by design")

ConsoleApp.action_help = lambda self: {failing}
sys.exit(main())
"""


def with_a_bug(folder: Path, failing: str) -> str:
    path = folder / "with-a-bug"
    path.write_text(WITH_A_BUG.format(python=sys.executable, failing=failing), encoding="utf-8")
    path.chmod(0o700)
    return str(path)


@pytest.mark.slow
def test_a_bug_is_reported_in_a_sentence_and_the_run_is_named(
    open_terminal: Opener, engine: FakeEngine, home: Path, tmp_path: Path
) -> None:
    engine.begin(1)
    program = with_a_bug(tmp_path, "self.run_worker(fail())")
    terminal = open_terminal("attach", str(engine.run.path), program=program)
    terminal.wait_for("CPU, 1 replica")
    terminal.press("f1")
    assert terminal.wait() == 1
    assert terminal.is_restored
    terminal.wait_for_all(
        f"{engine.run.run_id} is still training. To come back: tpu-console attach",
        "Error: an internal error in tpu-console (ZeroDivisionError: ",
        f"Details: {home / 'errors.log'}",
    )
    assert "Traceback" not in terminal.raw.decode()
    log = (home / "errors.log").read_text()
    assert "Traceback (most" in log
    assert "ZeroDivisionError" in log
    assert program in log, "the place is there, not only the error"


@pytest.mark.slow
def test_a_run_inside_the_console_says_why_it_ended(open_terminal: Opener, home: Path, tmp_path: Path) -> None:
    terminal = open_terminal("--in-process", program=with_a_bug(tmp_path, "1 / 0"))
    terminal.wait_for("Equivalent command")
    terminal.press("ctrl+r")
    wait_until(lambda: list_runs(home / "runs"), "the run's folder")
    (run,) = list_runs(home / "runs")
    wait_until(lambda: has(run, PhaseStarted), "the run begins")
    terminal.press("f1")
    assert terminal.wait() == 1
    assert "Error: an internal" in terminal.flat
    assert "an internal error" in the(run, RunFailed).what
