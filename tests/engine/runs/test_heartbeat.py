"""The beat of a training process: it is seen to live, and it hears requests."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

import pytest

from tests.helpers import all_of, wait_until
from tpu_console.engine.runs.control import Control, ask
from tpu_console.engine.runs.events import Steering, StopRequested
from tpu_console.engine.runs.heartbeat import BEAT_S, Heartbeat, HeartbeatThread
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, create_run

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return create_run("a", tmp_path)


def test_a_tick_touches_the_heartbeat(run: RunDirectory) -> None:
    heartbeat = Heartbeat(run, JournalWriter(run.journal), Control())
    os.utime(run.heartbeat, (1.0, 1.0))
    began = time.monotonic()
    heartbeat.tick()
    assert run.heartbeat.stat().st_mtime > 1.0
    os.utime(run.heartbeat, (1.0, 1.0))
    heartbeat.tick()
    # Once a second is enough; a machine that stands still for a second comes to the next one.
    assert run.heartbeat.stat().st_mtime == 1.0 or time.monotonic() - began > BEAT_S


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "\x00"])
def test_a_request_that_cannot_be_read_is_a_request_all_the_same(run: RunDirectory, content: str) -> None:
    control = Control()
    (run.control / "stop.json").write_text(content, encoding="utf-8")
    Heartbeat(run, JournalWriter(run.journal), control).tick()
    assert control.reason == "asked by a control file"


def test_the_first_reason_to_stop_counts_whatever_is_in_its_place(run: RunDirectory) -> None:
    journal, control = JournalWriter(run.journal), Control()
    heartbeat = Heartbeat(run, journal, control)
    run.control.rmdir()
    heartbeat.tick()
    ask(run, Steering.PAUSE, "asked")
    (run.control / "stop.json" / "inside").mkdir(parents=True)
    heartbeat.tick()
    control.stop("again")
    heartbeat.tick()
    assert control.reason == "asked by a control file"
    assert [one.action for one in control.take()] == ["pause"]
    assert [event.reason for event in all_of(run, StopRequested)] == [control.reason]


def test_a_heart_thread_outlives_a_vanished_folder_and_stops_when_told(run: RunDirectory) -> None:
    control = Control()
    thread = HeartbeatThread(Heartbeat(run, JournalWriter(run.journal), control))
    thread.start()
    try:
        shutil.rmtree(run.path)
        run.path.mkdir()
        ask(run, Steering.STOP, "after the folder came back")
        wait_until(lambda: control.reason, "the request")
    finally:
        thread.stop()
    assert not thread.is_alive()
