"""A run on another machine, over a real SSH server: copied, followed, asked, cut off and found again."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import pytest

from tests.engine.remote.sshd import Server, missing
from tests.helpers import BeatingProcess, wait_until
from tpu_console.engine.errors import ConsoleError, RunNotFoundError
from tpu_console.engine.remote.sftp import ConnectionFailedError
from tpu_console.engine.remote.watch import watched_run
from tpu_console.engine.runs.events import Noticed, RunFinished, RunStarted
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.heartbeat import request_stop
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.liveness import Liveness
from tpu_console.engine.runs.run_directory import RunDirectory, create_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("sshd"))
    if why := server.refusal():
        server.stop()
        pytest.skip(why)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def ssh(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(server.bin), prepend=os.pathsep)
    monkeypatch.setattr("tpu_console.engine.remote.watch._LOOK_S", 0.2)


def ended(server: Server, label: str = "done", notice: str = "") -> RunDirectory:
    run = create_run(label, server.runs)
    journal = JournalWriter(run.journal)
    journal.write(RunStarted(label, "host", 1, "there"))
    if notice:
        journal.write(Noticed(notice))
    journal.write(RunFinished("completed", "All epochs are done.", {}))
    journal.close()
    return run


def follow(run: RunDirectory) -> RunFollower:
    follower = RunFollower(run)
    follower.catch_up()
    return follower


def test_a_finished_run_is_copied_whole(server: Server) -> None:
    there = ended(server, notice="é" * 3_000_000)  # several answers of the server, and characters cut between them
    there.report.write_text("{}")
    there.log.write_bytes(b"x" * 2_000_000 + b"\nthe end\n")
    (there.path / "events.jsonl.bak").write_text("")
    there.model.write_bytes(b"weights")
    with watched_run(f"ssh://far/{there.run_id}", asks=False) as run:
        assert run.run_id == there.run_id
        assert run.journal.read_bytes() == there.journal.read_bytes()
        assert sorted(path.name for path in run.path.iterdir()) == [
            "console.log",
            "control",
            "events.jsonl",
            "report.json",
        ]
        snapshot = follow(run).snapshot
        assert snapshot.is_over
        assert snapshot.log[-1] == "the end"
        assert run.log.stat().st_size == there.log.stat().st_size  # with a hole instead of the beginning
        assert run.address == f"ssh://far/{there.run_id}"
        assert run.place(run.log) == f"far:~/.local/share/tpu-console/runs/{there.run_id}/console.log"
        assert run.path.parent.stat().st_mode & 0o077 == 0
    assert not run.path.parent.exists()


def test_runs_are_found_by_name_part_path_or_age(server: Server) -> None:
    first, second = ended(server, "find-one"), ended(server, "find-two")
    odd = second.path.rename(server.home / "it's $(touch x); a run")
    for text, name in {
        f"ssh://far/{first.run_id}": first.run_id,
        "ssh://far/find-one": first.run_id,
        f"ssh://far{first.path}": first.run_id,
        f"ssh://far/~/.local/share/tpu-console/runs/{first.run_id}": first.run_id,
        f"ssh://far/~/{odd.name}/": "it-s---touch-x---a-run",
    }.items():
        with watched_run(text, asks=False) as run:
            assert run.run_id == name
    assert not list(server.home.glob("**/x"))
    third = create_run("find-three", server.home / "elsewhere")
    (third.path / "config.toml").write_text("epochs = 1")
    with watched_run("ssh://far/~/elsewhere", asks=False) as run:
        assert run.run_id == third.run_id
    newest = create_run("newest", server.runs)
    newest = RunDirectory(newest.path.rename(server.runs / "29990101-000000-newest"))
    newest.journal.write_text("")
    with watched_run("ssh://far", asks=False) as run:
        assert run.run_id == newest.run_id
    newest.path.rename(server.home / "no-longer-newest")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ssh://far/twin", "'twin' matches 2 runs on far."),
        ("ssh://far/absent", "There is no run named 'absent' on far"),
        ("ssh://far/..", "There is no run named '..' on far"),
        ("ssh://far/no/such/folder", "/no/such/folder on far cannot be read: No such file or directory."),
        ("ssh://far/~/bare", "There is no run in ~/bare on far."),
    ],
)
def test_a_run_that_is_not_there_is_named(server: Server, text: str, message: str) -> None:
    for label in ("twin-a", "twin-b"):
        if not list(server.runs.glob(f"*{label}")):
            ended(server, label)
    (server.home / "bare").mkdir(exist_ok=True)
    with pytest.raises(RunNotFoundError) as error, watched_run(text, asks=False):
        pass
    assert error.value.what.startswith(message)


def test_only_regular_files_of_known_names_are_copied(server: Server) -> None:
    there = ended(server, "odd-files")
    os.mkfifo(there.log)
    (server.home / "secret").write_text("secret")
    there.config.symlink_to(server.home / "secret")
    there.history.mkdir()
    there.report.touch()
    os.truncate(there.report, 1 << 30)  # more than a report ever has
    with watched_run("ssh://far/odd-files", asks=False) as run:
        assert sorted(path.name for path in run.path.iterdir()) == ["control", "events.jsonl"]


def test_a_run_that_does_not_fit_is_refused(server: Server) -> None:
    there = ended(server, "too-large")
    os.truncate(there.journal, 1 << 42)
    with pytest.raises(ConsoleError, match="The disk is full"), watched_run("ssh://far/too-large", asks=False):
        pass


def test_a_live_run_grows_survives_a_cut_and_hears_a_stop(server: Server) -> None:
    there = create_run("live", server.runs)
    beating = BeatingProcess(there)
    try:
        with watched_run("ssh://far/live", asks=False) as run:
            link = run.link
            assert link is not None
            follower = follow(run)
            assert follower.snapshot.liveness is Liveness.ALIVE
            assert link.silent_s() is None
            beat_at = run.heartbeat.stat().st_mtime
            wait_until(lambda: run.heartbeat.stat().st_mtime != beat_at, "the next heartbeat")

            server.stop()
            wait_until(lambda: link.silent_s() is not None, "the loss of the connection")
            looked_at = link.looked_at()
            with there.journal.open("ab") as journal:
                journal.write(b'{"v":1,"t":1,"type":"Noticed","message":"said meanwhile"}\n')
            wait_until(link.problem, "the reason")
            request_stop(run, "asked from the laptop")
            assert link.looked_at() == looked_at  # so that a run is not taken for dead
            follower.catch_up()
            assert follower.snapshot.liveness is Liveness.ALIVE
            assert follower.snapshot.stop_waits

            server.start()
            wait_until(lambda: follower.catch_up().state.end, "the end of the run")
            assert link.problem() == ""
            assert follower.snapshot.state.notices == ("said meanwhile",)
            assert isinstance(follower.snapshot.state.end, RunFinished)
            assert follower.snapshot.state.end.reason == "asked from the laptop"
            assert run.journal.read_bytes() == there.journal.read_bytes()
        assert beating.process.wait(60) == 0
    finally:
        beating.kill()


def test_a_clock_that_differs_is_reckoned_with(server: Server) -> None:
    there = create_run("skewed", server.runs)
    there.journal.touch()
    there.heartbeat.write_text("{}")
    hour_s = 3600
    ahead = time.time() + hour_s
    os.utime(there.heartbeat, (ahead, ahead))
    with watched_run("ssh://far/skewed", asks=False) as run:
        assert run.link is not None
        follower = follow(run)
        assert follower.snapshot.liveness is Liveness.ALIVE  # not settled yet
        os.utime(there.heartbeat, (ahead + 5, ahead + 5))
        wait_until(lambda: run.link is not None and run.link.now() > time.time() + hour_s / 2, "the other clock")
        follower.catch_up()
        assert follower.snapshot.liveness is Liveness.ALIVE


def test_a_request_that_cannot_be_written_is_reported(server: Server) -> None:
    there = create_run("no-control", server.runs)
    there.journal.touch()
    there.control.rmdir()
    there.control.symlink_to(server.home)
    with watched_run("ssh://far/no-control", asks=False) as run:
        request_stop(run, "asked from the laptop")
        assert run.link is not None
        wait_until(run.link.problem, "the refusal")
        assert run.link.problem() == "The request cannot be written on far: the run takes no requests."
        assert not run.stop_request.exists()
        assert not (server.home / "stop.json").exists()
        there.control.unlink()
        there.control.mkdir()
        request_stop(run, "asked from the laptop")
        wait_until(there.stop_request.exists, "the request")
        wait_until(lambda: not run.link or not run.link.problem(), "the end of the refusal")


def test_a_folder_that_disappears_is_reported(server: Server) -> None:
    there = ended(server, "gone")
    with watched_run("ssh://far/gone", asks=False) as run:
        there.path.rename(server.home / "moved")
        assert run.link is not None
        wait_until(run.link.problem, "the loss")
        assert "is no longer on far." in run.link.problem()


@pytest.mark.parametrize(
    ("address", "known", "message"),
    [
        ("ssh://127.0.0.1:{port}", "", "The key of 127.0.0.1 is not known here yet."),
        ("ssh://127.0.0.1:{port}", "other", "The key of 127.0.0.1 has changed"),
        ("ssh://127.0.0.1:{port}", "right", "127.0.0.1 refuses the login."),
        ("ssh://127.0.0.1:1", "", "127.0.0.1 refuses the connection"),
        ("ssh://nowhere.invalid", "", "There is no machine named nowhere.invalid."),
    ],
)
def test_a_connection_that_fails_is_one_sentence(server: Server, address: str, known: str, message: str) -> None:
    other = f"{server.key.rpartition(' ')[0]} AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43}\n"
    server.known.write_text({"": "", "other": other, "right": server.key}[known])
    try:
        with pytest.raises(ConnectionFailedError) as error, watched_run(address.format(port=server.port), asks=False):
            pass
    finally:
        server.known.write_text(server.key)
    assert error.value.what.startswith(message)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo Welcome to this machine, its weather is fine today; cat > /dev/null", "does not answer as an SFTP"),
        (r"printf '\0\0\0\5\2\0\0\0\3\0\0\0\11\146\0\0\0\0\177\0\0\0'; cat > /dev/null", "damaged answer"),
        (r"printf '\0\0\0\5\2\0\0\0\3\0\0\0\11\146\1\1\1\1\0\0\0\0'; cat > /dev/null", "does not answer as an SFTP"),
        ("echo ssh: something new >&2; exit 255", "far cannot be reached: something new."),
    ],
)
def test_answers_that_are_nonsense_end_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    (tmp_path / "ssh").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "ssh").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(ConnectionFailedError, match=message), watched_run("ssh://far/x", asks=False):
        pass
