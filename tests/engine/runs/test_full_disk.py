"""A disk that is really full: no epoch is lost, and the disk is named."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers import LIMIT_S, all_of, events_of, fork_host, small_config, wait_until
from tests.small_disk import SmallDisk, fill_up
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.process.main import EngineThread
from tpu_console.engine.runs.control import Control, ask
from tpu_console.engine.runs.events import EpochEnded, Noticed, Progress, RunFailed, RunSource, Steering
from tpu_console.engine.runs.heartbeat import Heartbeat, HeartbeatWatch
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.presets.catalog import save_preset

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def run(disk: SmallDisk) -> RunDirectory:
    return create_run("a", disk.path)


def epoch(number: int) -> EpochEnded:
    return EpochEnded(number, 4 * number, 4, 1.0, 1.0, 0.5, 0.0, None, None, None, {"loss": 1.0})


def progress(number: int) -> Progress:
    return Progress(1, number, number, 0.1 * number, {"loss": 1.0, "accuracy": 0.5})


def epochs_in(run: RunDirectory) -> list[int]:
    return [event.epoch for event in all_of(run, EpochEnded)]


def notices_of(run: RunDirectory) -> str:
    return " ".join(event.message for event in all_of(run, Noticed))


def program(disk: SmallDisk, *arguments: str) -> subprocess.Popen[str]:
    """Start the real program with its home on a disk."""
    command = [str(Path(sys.executable).with_name("tpu-console")), *arguments]
    home = os.environ | {"TPU_CONSOLE_HOME": str(disk.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=home)


def test_the_heartbeat_says_how_many_events_wait(disk: SmallDisk, run: RunDirectory) -> None:
    journal = JournalWriter(run.journal)
    heartbeat = Heartbeat(run, journal, Control())
    heartbeat.tick()
    assert HeartbeatWatch(run).look().waiting is None
    fill_up(disk, journal)
    size = run.heartbeat.stat().st_size
    for number in range(2):
        journal.write(progress(number))
        heartbeat._next_beat = 0.0
        heartbeat.tick()
        assert HeartbeatWatch(run).look().waiting == journal.waiting > number
    disk.empty()
    journal.flush()
    heartbeat._next_beat = 0.0
    heartbeat.tick()
    assert HeartbeatWatch(run).look().waiting is None
    assert run.heartbeat.stat().st_size == size
    journal.close()


def test_a_run_can_be_asked_to_stop_on_a_full_disk(disk: SmallDisk, run: RunDirectory) -> None:
    control = Control()
    heartbeat = Heartbeat(run, JournalWriter(run.journal), control)
    disk.fill()
    ask(run, Steering.STOP, "asked")
    heartbeat.tick()
    assert control.reason


def test_no_run_begins_on_a_full_disk_and_no_folder_is_left(
    disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = disk.path / "runs"
    runs.mkdir()
    disk.fill()
    with pytest.raises(ConsoleError) as raised:
        prepare_run(small_config(), runs)
    assert raised.value.what.startswith("The disk is full: ")
    assert str(runs) in raised.value.what
    assert "262 kB" in raised.value.why
    assert list(runs.iterdir()) == []
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(disk.path))
    with pytest.raises(ConsoleError, match="The disk is full: the preset could not be written"):
        save_preset(small_config(), "mine", "Mine")
    assert list((disk.path / "presets").iterdir()) == []
    process = program(disk, "run", "digits-cnn")
    complaint = process.communicate(timeout=LIMIT_S)[1]
    assert process.returncode == 1
    assert str(runs) in complaint
    assert list(runs.iterdir()) == []


def test_a_full_disk_is_no_reason_to_lose_an_epoch_of_a_real_run(disk: SmallDisk) -> None:
    config = small_config(epochs=1500, checkpoint={"monitor": "auto"}, sinks=["tensorboard"])
    run = prepare_run(config, disk.path / "runs")
    host = fork_host(run)

    def wait_while_full(condition: Callable[[], object], what: str) -> None:
        """Wait, and fill the disk again if a file that could not be written to its end was removed."""

        def holds() -> object:
            disk.fill()
            return condition()

        wait_until(holds, what)

    try:
        wait_until(lambda: len(all_of(run, EpochEnded)) >= 2, "two epochs")
        disk.fill()
        wait_while_full(lambda: HeartbeatWatch(run).look().waiting is not None, "the heartbeat to say that it is full")
        # Training goes on; TensorFlow notices when the block is full that its file has already.
        wait_while_full(lambda: (HeartbeatWatch(run).look().waiting or 0) >= 100, "more events after the disk was full")
        attached = program(disk, "attach", run.run_id)
        shown = program(disk, "show", run.run_id).communicate(timeout=LIMIT_S)[0]
        assert re.search(r"disk +disk full: \d+ events? waiting", shown)
        ask(run, Steering.STOP, "asked")
        wait_while_full(lambda: host.poll() is not None, "the host to end")
        assert host.poll() == 1
        lines, errors = attached.communicate(timeout=LIMIT_S)
        assert re.search(r"note +disk full: \d+ events? waiting", lines)
        assert "disk is full: model.keras" in errors
    finally:
        host.kill()
        host.wait()
    assert epochs_in(run) == list(range(1, len(epochs_in(run)) + 1))
    end = events_of(run)[-1]
    assert isinstance(end, RunFailed)
    assert end.what.startswith("The disk is full: ")
    assert str(run.path) in end.what
    assert "are free there" in end.why
    assert "are needed" in end.why
    assert "checkpoints/best.keras" in end.remedy
    assert end.remedy.endswith(f" resume {run.run_id}")
    notices = notices_of(run)
    assert "disk is full: best.keras" in notices
    assert "TensorBoard files are" in notices


def test_a_disk_that_is_full_when_training_ends_is_named(disk: SmallDisk) -> None:
    class FillsAtTheEnd(JournalWriter):
        def write(self, event: object) -> None:
            super().write(event)  # type: ignore[arg-type]  # any event
            if isinstance(event, EpochEnded) and event.epoch == 2:
                disk.fill()

    config = small_config(epochs=2)
    run = prepare_run(config, disk.path / "runs")
    journal = FillsAtTheEnd(run.journal)
    thread = EngineThread(run, config, journal, source=RunSource.IN_PROCESS)
    thread.start()
    thread.join(LIMIT_S)
    journal.close()
    assert not thread.succeeded
    assert epochs_in(run) == [1, 2]
    end = events_of(run)[-1]
    assert isinstance(end, RunFailed)
    assert end.what.startswith("The disk is full: model.keras")
    assert "All 2 epochs" in end.remedy
