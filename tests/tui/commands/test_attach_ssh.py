"""`tpu-console attach ssh://…` over a real SSH server: plain lines, the live screen, and what may go wrong."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import BeatingProcess
from tests.tui.commands.sshd import Server, missing
from tests.tui.made_runs import made_run
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.errors import RunNotFoundError
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.tui.cli import main
from tpu_console.tui.commands.opening import ssh_command

needs_server = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("sshd"))
    if why := server.refusal():
        server.stop()
        pytest.skip(why)
    yield server
    server.stop()


@pytest.fixture
def server(started: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv("PATH", str(started.bin), prepend=os.pathsep)
    return started


def test_an_address_becomes_a_command() -> None:
    for address, there in {
        "ssh://vm": ["vm", "tpu-console attach"],
        "ssh://me@vm:2222/x": ["-p", "2222", "-l", "me", "vm", "tpu-console attach -- x"],
        "ssh://[2001:db8::7]:22/x": ["-p", "22", "2001:db8::7", "tpu-console attach -- x"],
        "ssh://vm/data/runs/x/": ["vm", "tpu-console attach -- /data/runs/x"],
        "ssh://vm/~/runs/x": ["vm", "tpu-console attach -- '~/runs/x'"],
        "ssh://vm/--json": ["vm", "tpu-console attach -- --json"],
        "ssh://vm/a $(b);c": ["vm", "tpu-console attach -- 'a $(b);c'"],
    }.items():
        *command, shell = ssh_command(address, [], has_screen=False)
        assert [*command, shlex.split(shell)[-1]] == ["ssh", "-T", *there[:-2], "--", *there[-2:]]


def test_what_could_be_an_option_or_shell_code_is_refused() -> None:
    hosts = ("", "-oProxyCommand=date/x", "-l@vm/x", "a b/x", "vm;date/x", "$(date)/x", "[::1/x")
    for address in (*hosts, "vm/a\nb", "vm/a\\'b"):
        with pytest.raises(RunNotFoundError, match="not the address of a run"):
            ssh_command(f"ssh://{address}", [], has_screen=True)


@needs_server
def test_the_other_machine_prints_and_its_exit_code_is_passed_on(
    server: Server, capfd: pytest.CaptureFixture[str]
) -> None:
    run = made_run(end=None)  # crashed
    assert main(["attach", "--json", str(run.path)]) == 1
    here = capfd.readouterr().out
    server.runs.mkdir(parents=True, exist_ok=True)
    odd = run.path.rename(server.runs / "it's $(touch x); a run")
    assert main(["attach", "--json", f"ssh://far/{odd.name}"]) == 1
    assert capfd.readouterr().out == here
    assert not list(server.home.glob("**/x"))
    assert main(["attach", "ssh://far/absent"]) == 2
    assert "absent" in capfd.readouterr().err


@needs_server
def test_a_machine_without_the_program_or_without_a_connection_is_named(
    server: Server, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.profile.rename(server.profile.with_suffix(".away"))
    try:
        assert main(["attach", "ssh://far"]) == 127
    finally:
        server.profile.with_suffix(".away").rename(server.profile)
    assert "on far;" in capfd.readouterr().err
    assert main(["attach", "ssh://127.0.0.1:1/x"]) == 255
    assert "refused" in capfd.readouterr().err  # by ssh itself
    monkeypatch.setenv("PATH", "/nonexistent")
    assert main(["attach", "ssh://far"]) == 1
    assert "ssh is not" in capfd.readouterr().err


@needs_server
@pytest.mark.slow
def test_the_screen_of_the_other_machine_stops_the_run_and_a_lost_connection_leaves_a_usable_terminal(
    server: Server, tmp_path: Path
) -> None:
    there = create_run("live", server.runs)
    beating = BeatingProcess(there)
    server.known.write_text("")

    def attach() -> Terminal:
        path = {"PATH": os.environ["PATH"]}
        return Terminal("attach", f"ssh://far/{there.run_id}", home=tmp_path, size=(120, 40), environment=path)

    terminal = attach()
    try:
        terminal.wait_for("continue connecting")  # asked by ssh
        terminal.press("yes\r")
        terminal.wait_for("training")
        server.cut()
        assert terminal.wait() == 255
        assert terminal.is_restored
        assert "connection to far" in terminal.text
        terminal.close()
        terminal = attach()
        terminal.wait_for("training")
        terminal.press("K")
        terminal.wait_for("Stop training?")
        terminal.press("y")
        assert beating.process.wait(90) == 0
        terminal.wait_for("Stopped on request")
        terminal.press("d")
        assert terminal.wait() == 0
    finally:
        terminal.close()
        beating.kill()
