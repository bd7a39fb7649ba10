"""What a bug in the console leaves behind: a restored terminal, a sentence, a traceback in a file, the run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.helpers import has, the, wait_until
from tests.tui.live_fakes import FakeEngine
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.runs.events import PhaseStarted, RunFailed
from tpu_console.engine.runs.run_directory import list_runs

if TYPE_CHECKING:
    from pathlib import Path

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
AT_ONCE = "1 / 0"
IN_A_WORKER = "self.run_worker(fail())"


@pytest.fixture
def program(tmp_path: Path, failing: str) -> str:
    path = tmp_path / "with-a-bug"
    path.write_text(WITH_A_BUG.format(python=sys.executable, failing=failing), encoding="utf-8")
    path.chmod(0o700)
    return str(path)


@pytest.mark.slow
@pytest.mark.parametrize("failing", [IN_A_WORKER])
def test_a_bug_is_told_in_a_sentence_and_the_run_is_named(program: str, private_home: Path, tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path)
    engine.begin(1)
    terminal = Terminal("attach", str(engine.run.path), home=private_home, program=program)
    try:
        terminal.wait_for("CPU, 1 replica")
        terminal.press("f1")
        assert terminal.wait() == 1
        assert terminal.is_restored
        terminal.wait_for_all(
            f"{engine.run.run_id} is still training. To come back: tpu-console attach",
            "Error: an internal error in tpu-console (ZeroDivisionError: ",
            f"Details: {private_home / 'errors.log'}",
        )
        assert "Traceback" not in terminal.raw.decode()
    finally:
        terminal.close()
    log = (private_home / "errors.log").read_text()
    assert "Traceback (most" in log
    assert "ZeroDivisionError" in log
    assert program in log, "the place is there, not only the error"


@pytest.mark.slow
@pytest.mark.parametrize("failing", [AT_ONCE])
def test_a_run_inside_the_console_says_why_it_ended(program: str, private_home: Path) -> None:
    terminal = Terminal("--in-process", home=private_home, program=program)
    try:
        terminal.wait_for("Equivalent command")
        terminal.press("ctrl+r")
        wait_until(lambda: list_runs(private_home / "runs"), "the run's folder")
        (run,) = list_runs(private_home / "runs")
        wait_until(lambda: has(run, PhaseStarted), "the run begins")
        terminal.press("f1")
        assert terminal.wait() == 1
        assert "Error: an internal" in terminal.flat
    finally:
        terminal.close()
    assert "an internal error" in the(run, RunFailed).what
