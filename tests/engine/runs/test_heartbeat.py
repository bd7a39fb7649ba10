"""The beat of a training process: it is seen to live, and it hears requests."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from tests.helpers import private_mode, wait_until
from tpu_console.engine.runs.control import Control, ask
from tpu_console.engine.runs.events import EpochEnded, Steering, StopRequested
from tpu_console.engine.runs.heartbeat import BEAT_S, Heartbeat, HeartbeatThread, Liveness, liveness_of
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, create_run

if TYPE_CHECKING:
    from pathlib import Path

EPOCH = EpochEnded(1, 4, 4, 1.0, 1.0, 0.5, 0.0, None, None, None, {"loss": 1.0})


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return create_run("a", tmp_path)


class Heard(Control):
    """Keeps every reason to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.stops: list[str] = []

    def stop(self, reason: str) -> None:
        self.stops.append(reason)
        super().stop(reason)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def heartbeat(run: RunDirectory, heard: Heard) -> Heartbeat:
    return Heartbeat(run, JournalWriter(run.journal), heard)


def test_a_run_with_a_heart_is_alive(run: RunDirectory, heartbeat: Heartbeat) -> None:
    assert liveness_of(run) is Liveness.ALIVE


def test_a_tick_touches_the_heartbeat(run: RunDirectory, heartbeat: Heartbeat) -> None:
    os.utime(run.heartbeat, (1.0, 1.0))
    began = time.monotonic()
    heartbeat.tick()
    assert run.heartbeat.stat().st_mtime > 1.0
    os.utime(run.heartbeat, (1.0, 1.0))
    heartbeat.tick()
    # Once a second is enough; a machine that stands still for a second comes to the next one.
    assert run.heartbeat.stat().st_mtime == 1.0 or time.monotonic() - began > BEAT_S


def test_a_request_to_stop_is_heard_once(run: RunDirectory, heartbeat: Heartbeat, heard: Heard) -> None:
    heartbeat.tick()
    assert heard.stops == []
    ask(run, Steering.STOP, "asked from the console")
    assert {private_mode(path) for path in run.control.iterdir()} == {0o600}
    heartbeat.tick()
    heartbeat.tick()
    assert heard.stops == ["asked from the console"]
    assert list(run.control.iterdir()) == []


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "\x00"])
def test_a_request_that_cannot_be_read_is_a_request_all_the_same(
    run: RunDirectory, heartbeat: Heartbeat, heard: Heard, content: str
) -> None:
    (run.control / "stop.json").write_text(content, encoding="utf-8")
    heartbeat.tick()
    assert heard.stops == ["asked by a control file"]


def test_a_request_finds_a_run_whose_control_folder_is_gone(
    run: RunDirectory, heartbeat: Heartbeat, heard: Heard
) -> None:
    run.control.rmdir()
    heartbeat.tick()
    ask(run, Steering.STOP, "asked")
    heartbeat.tick()
    assert heard.stops == ["asked"]


def test_a_tick_makes_epoch_ends_durable(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", synced.append)
    journal = JournalWriter(run.journal)
    heartbeat = Heartbeat(run, journal, Control())
    synced.clear()
    journal.write(EPOCH)
    heartbeat.tick()
    assert len(synced) == 1


def test_a_heart_thread_outlives_a_vanished_folder_and_stops_when_told(run: RunDirectory, heard: Heard) -> None:
    thread = HeartbeatThread(Heartbeat(run, JournalWriter(run.journal), heard))
    thread.start()
    try:
        shutil.rmtree(run.path)
        run.path.mkdir()
        ask(run, Steering.STOP, "after the folder came back")
        wait_until(lambda: heard.reason, "the request")
    finally:
        thread.stop()
    assert not thread.is_alive()


def test_the_first_reason_to_stop_counts() -> None:
    control = Control()
    control.stop("first")
    control.stop("second")
    assert control.reason == "first"
    assert control.news() == [StopRequested("first")]
