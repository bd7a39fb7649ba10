"""`tpu-console attach ssh://…`: plain lines, the live screen, and what is asked on the terminal first."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from tests.engine.remote.sshd import Server, missing
from tests.helpers import BeatingProcess, wait_until
from tests.tui.made_runs import made_run
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.remote.watch import watched_run
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.tui.cli import main
from tpu_console.tui.text.outcome import can_resume

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    (tmp_path / "sshd").mkdir()
    server = Server(tmp_path / "sshd")
    if why := server.refusal():
        server.stop()
        pytest.skip(why)
    monkeypatch.setenv("PATH", str(server.bin), prepend=os.pathsep)
    yield server
    server.stop()


def test_plain_lines_are_those_of_the_run_there(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    run = made_run()
    assert main(["attach", str(run.path)]) == 0
    here = capfd.readouterr().out
    run.path.rename(server.runs / run.run_id)
    assert main(["attach", "ssh://far"]) == 0
    there = capfd.readouterr().out
    is_epoch = re.compile(r"epoch .*|finished .*|best .*")
    assert [line for line in there.splitlines() if is_epoch.match(line)] == [
        line for line in here.splitlines() if is_epoch.match(line)
    ]
    assert f"{run.run_id} in far:~/.local/share/tpu-console/runs/{run.run_id}\n" in there
    assert f"tpu-console attach ssh://far/{run.run_id}  (curves)\n" in there
    assert f"tpu-console show {run.run_id} (on far)  (all details)\n" in there
    assert main(["attach", "--json", "ssh://far"]) == 0
    assert capfd.readouterr().out.splitlines() == (server.runs / run.run_id / "events.jsonl").read_text().splitlines()


def test_a_stopped_run_is_continued_where_it_is(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    run = made_run(end=RunFinished("stopped", "asked", {}))
    run.path.rename(server.runs / run.run_id)
    assert main(["attach", "ssh://far"]) == 0
    assert f"tpu-console resume {run.run_id} (on far)  (continue)\n" in capfd.readouterr().out
    with watched_run("ssh://far", asks=False) as copy:
        follower = RunFollower(copy)
        assert not can_resume(copy, follower.catch_up())


def test_what_goes_wrong_is_said_without_a_traceback(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["attach", "ssh://far/absent"]) == 2
    assert "Error: There is no run named 'absent' on far" in capfd.readouterr().err
    assert main(["attach", "ssh://-oProxyCommand=date/x"]) == 2
    assert "is not the address of a run" in capfd.readouterr().err
    assert main(["attach", "ssh://127.0.0.1:1/x"]) == 1
    assert "Error: 127.0.0.1 refuses the connection: no SSH server listens there." in capfd.readouterr().err


@pytest.mark.slow
def test_the_screen_shows_a_cut_connects_again_and_stops_the_run(server: Server, tmp_path: Path) -> None:
    there = create_run("live", server.runs)
    beating = BeatingProcess(there)
    server.known.write_text("")
    terminal = Terminal(
        "attach",
        f"ssh://far/{there.run_id}",
        home=tmp_path / "near",
        size=(120, 40),
        environment={"PATH": os.environ["PATH"]},
    )
    try:
        terminal.wait_for("continue connecting")  # asked by ssh, before there is a screen
        terminal.press("yes\r")
        terminal.wait_for("on far")
        terminal.wait_for("training")
        server.stop()
        terminal.wait_for("Connection to far lost")
        server.start()
        terminal.wait_until_gone("Connection to far lost")
        terminal.press("k")
        terminal.wait_for("Stop training?")
        terminal.press("y")
        assert beating.process.wait(90) == 0
        terminal.wait_for("Stopped on request")
        terminal.press("d")
        assert terminal.wait() == 0
        wait_until(lambda: f"ssh://far/{there.run_id}" in terminal.tight, "the way back")
    finally:
        terminal.close()
        beating.kill()
