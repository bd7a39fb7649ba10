"""The host process: how it is told to stop, what it survives, and how its end is seen."""

import shutil
import signal
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.helpers import ROOT, Host, all_of, events_of, fork_host, has, run_forked, small_config, the, wait_until
from tpu_console.engine.process.launch import start_host
from tpu_console.engine.runs import events
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import PhaseStarted, Progress, RunFailed, RunFinished, Steering, StopRequested
from tpu_console.engine.runs.follower import LogTail
from tpu_console.engine.runs.heartbeat import Liveness, liveness_of
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.tui.text.outcome import crashed_lines

Start = Callable[..., Host]


pytestmark = pytest.mark.slow

LONG = small_config(batch_size=1, steps_per_epoch=200_000, epochs=1000)
"""An epoch of minutes, so that whatever happens, happens in the middle of it."""


def listeners(host: Host) -> list[object]:
    """Every Internet socket of a host and its children that others could send something to."""
    assert host.process is not None
    process = psutil.Process(host.process.pid)
    return [
        connection
        for one in (process, *process.children(recursive=True))
        for connection in one.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN or (connection.type == socket.SOCK_DGRAM and connection.laddr)
    ]


def test_a_request_in_the_middle_of_an_epoch_stops_and_saves(start: Start) -> None:
    host = start(LONG, forked=True)
    wait_until(lambda: has(host.run, Progress), "training")
    assert liveness_of(host.run) is Liveness.ALIVE
    assert listeners(host) == []
    ask(host.run, Steering.STOP, "asked here")
    assert host.wait() == 0
    assert the(host.run, StopRequested) == StopRequested("asked here")
    end = the(host.run, RunFinished)
    assert (end.outcome, end.reason) == ("stopped", "asked here")
    assert events_of(host.run)[-1] == end
    assert host.run.model.is_file()
    assert host.run.history.is_file()
    assert the(host.run, events.EpochEnded).epoch_steps < 200_000
    assert liveness_of(host.run) is Liveness.DEAD


@pytest.mark.parametrize(("epochs", "is_left"), [(1000, True), (1, False)])
def test_a_run_whose_folder_is_removed_stops_and_makes_no_new_one(
    start: Start, tmp_path: Path, epochs: int, *, is_left: bool
) -> None:
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    written = {"checkpoint": {"monitor": "auto"}, "tensorboard": {"enabled": True}, "mirror": str(mirror)}
    config = small_config(steps_per_epoch=2000, batch_size=1, epochs=epochs, data={"cache": "disk"}, **written)
    host = start(config, forked=True)
    wait_until(lambda: has(host.run, Progress), "training")
    shutil.rmtree(host.run.path)
    if is_left:  # a checkpoint was written while everything else was removed
        host.run.checkpoints.mkdir(parents=True)
    assert host.wait() == 1
    assert host.run.path.exists() == is_left
    assert not host.run.model.exists()
    assert "removed" in crashed_lines(host.run, ())[0]


def test_a_closed_terminal_is_survived_and_sigterm_stops_and_saves(start: Start) -> None:
    host = start(LONG, forked=True)
    wait_until(lambda: has(host.run, Progress), "training")
    host.send(signal.SIGHUP)
    before = all_of(host.run, Progress)[-1].step
    wait_until(lambda: all_of(host.run, Progress)[-1].step > before + 1000, "training to go on")
    host.send(signal.SIGTERM)
    assert host.wait() == 0
    end = the(host.run, RunFinished)
    assert (end.outcome, end.reason) == ("stopped", "asked by SIGTERM")
    assert host.run.model.is_file()


def test_a_second_sigterm_ends_it_at_once(start: Start) -> None:
    host = start(LONG)
    wait_until(lambda: has(host.run, PhaseStarted), "importing")
    assert host.process is not None
    process = host.process

    def ended() -> bool:
        host.send(signal.SIGTERM)  # again and again: two that are pending together are one
        return process.poll() is not None

    wait_until(ended, "the end")
    assert the(host.run, RunFailed).what.startswith("SIGTERM ")
    assert not host.run.model.exists()
    assert not has(host.run, RunFinished)
    assert liveness_of(host.run) is Liveness.DEAD


def test_a_request_before_training_began_ends_the_run_without_training(tmp_path: Path) -> None:
    host = Host(LONG, tmp_path / "runs", start=False)
    ask(host.run, Steering.STOP, "changed my mind")
    host.process = fork_host(host.run)
    assert host.wait() == 0
    assert (the(host.run, RunFinished).outcome, all_of(host.run, Progress)) == ("stopped", [])


def test_a_configuration_spoiled_on_the_way_is_the_run_s_last_event(tmp_path: Path) -> None:
    host = Host(small_config(), tmp_path / "runs", start=False)
    host.run.config.write_text("epochs = 'many'\n", encoding="utf-8")
    host.process = start_host(host.run)
    assert host.wait() == 1
    assert all(f"{key}: " in the(host.run, RunFailed).what for key in ("epochs", "dataset"))


def test_a_killed_host_is_seen_to_be_dead(start: Start) -> None:
    host = start(LONG)
    wait_until(lambda: has(host.run, events.RunStarted), "the first event")
    assert liveness_of(host.run) is Liveness.ALIVE
    host.send(signal.SIGKILL)
    wait_until(lambda: liveness_of(host.run) is Liveness.DEAD, "its death")
    assert not has(host.run, RunFinished)
    assert not has(host.run, RunFailed)
    assert host.wait() == -signal.SIGKILL


def test_a_crash_of_a_library_is_told_from_a_kill_by_the_log(start: Start, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\n\ndef data():\n    os.abort()\n", encoding="utf-8")
    host = start(small_config(dataset=f"{tmp_path}/mine.py:data"), forked=True)
    assert host.wait() == -signal.SIGABRT
    first, *lines = crashed_lines(host.run, LogTail(host.run).read())
    assert first.endswith("(SIGABRT).")
    assert any("/mine.py" in line and line.endswith("line 4 in data") for line in lines)


def test_a_run_whose_process_is_ended_while_it_waits_for_its_mirror_has_finished(start: Start, tmp_path: Path) -> None:
    host = start(small_config(mirror=str(tmp_path / "drive")), forked=True)
    copying = "copying to "
    wait_until(lambda: any(event.detail.startswith(copying) for event in all_of(host.run, PhaseStarted)), "its end")
    ask(host.run, Steering.END_NOW, "the test")
    assert host.wait() == 0
    assert the(host.run, RunFinished).outcome == "completed"
    assert "model.keras" in all_of(host.run, events.MirrorReported)[-1].left


EVERYTHING = """
import os
from tpu_console.engine.data.cached_facts import save_input_speed
from tpu_console.engine.preflight.choice import save_verdict
from tpu_console.presets.catalog import save_preset
from tests.helpers import small_config, wait_until
from tests.made_verdicts import FITS
from tpu_console.tui.cli import _report
from tpu_console.tui.jobs.run_process import launch
from tpu_console.tui.jobs.job_process import log_file, start_job

os.umask(0)
parts = {"checkpoint": {"monitor": "auto"}, "sinks": ["tensorboard"], "data": {"cache": "disk"}}
config = small_config(**parts)
save_preset(config, "mine", "Mine")
save_verdict(config, FITS)
save_input_speed(config, [{"name": "first", "per_s": 1.0}])
_report(ValueError("by design"))
start_job("none of that name", {}, log_file("job")).wait()

inside = launch(config, in_process=True)
wait_until(lambda: not inside.tend(), "the end of the run")
assert inside.engine.succeeded
assert os.umask(0) == 0, "put back"

import keras, numpy as np
from tpu_console import BridgeCallback
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile(loss="mse")
model.fit(np.zeros((8, 2)), np.zeros(8), verbose=0, callbacks=[BridgeCallback("notebook")])
"""


# Without a umask, files have exactly the modes that the program asks for; `digits` is from a fork without one.
def test_only_the_user_may_read_what_runs_and_commands_create(digits: RunDirectory, tmp_path: Path) -> None:
    base = tmp_path / "deep"
    home = base / "home"
    run_forked(EVERYTHING, cwd=ROOT, env={"TPU_CONSOLE_HOME": str(home)})
    paths = [base, *base.rglob("*"), digits.path, *digits.path.rglob("*")]
    wanted = {path: 0o700 if path.is_dir() else 0o600 for path in paths}
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert {path: oct(mode) for path, mode in found.items() if mode != wanted[path]} == {}
    names = {path.name for path in paths}
    assert {"events.jsonl", "best.keras", "model.keras", "tensorboard", "report.json"} <= names
    assert {"console.log", "mine.toml", "speeds.json", "preflight.json", "errors.log", "job.log"} <= names
    assert len(list((home / "runs").iterdir())) == 2
    assert not [name for name in names if name.startswith(".draft") or name == "reserved-space"]
