"""The beat of a training process: it is seen to live, and it hears requests."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from tests.helpers import wait_until
from tpu_console.engine.runs.control import Control, ask
from tpu_console.engine.runs.events import EpochEnded, Steering
from tpu_console.engine.runs.heartbeat import BEAT_S, Heartbeat, HeartbeatThread
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


def test_a_tick_touches_the_heartbeat(run: RunDirectory, heartbeat: Heartbeat) -> None:
    os.utime(run.heartbeat, (1.0, 1.0))
    began = time.monotonic()
    heartbeat.tick()
    assert run.heartbeat.stat().st_mtime > 1.0
    os.utime(run.heartbeat, (1.0, 1.0))
    heartbeat.tick()
    # Once a second is enough; a machine that stands still for a second comes to the next one.
    assert run.heartbeat.stat().st_mtime == 1.0 or time.monotonic() - began > BEAT_S


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "\x00"])
def test_a_request_that_cannot_be_read_is_a_request_all_the_same(
    run: RunDirectory, heartbeat: Heartbeat, heard: Heard, content: str
) -> None:
    (run.control / "stop.json").write_text(content, encoding="utf-8")
    heartbeat.tick()
    assert heard.stops == ["asked by a control file"]


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
