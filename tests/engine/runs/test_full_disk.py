import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from tests.engine.runs.test_state import progress
from tests.helpers import LIMIT_S, all_of, events_of, fork_host, small_config, wait_until
from tests.small_disk import SmallDisk, fill_up
from tests.tui.calling import Call
from tpu_console.engine.errors import DiskFullError
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.process.main import EngineThread
from tpu_console.engine.runs.control import Control, ask
from tpu_console.engine.runs.events import EpochEnded, Noticed, RunFailed, RunSource, Steering
from tpu_console.engine.runs.heartbeat import Heartbeat, HeartbeatWatch
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.presets.catalog import save_preset


@pytest.fixture
def run(disk: SmallDisk) -> RunDirectory:
    return create_run("a", disk.path)


def epochs_in(run: RunDirectory) -> list[int]:
    return [event.epoch for event in all_of(run, EpochEnded)]


def failure(run: RunDirectory) -> RunFailed:
    end = events_of(run)[-1]
    assert isinstance(end, RunFailed)
    return end


def program(disk: SmallDisk, output: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the real program with its home on a disk, and what it prints in a file elsewhere."""
    command = [str(Path(sys.executable).with_name("tpu-console")), *arguments]
    home = os.environ | {"TPU_CONSOLE_HOME": str(disk.path), "PYTHONUNBUFFERED": "1"}
    with output.open("w") as file:
        return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, text=True, env=home)


def test_the_heartbeat_says_how_many_events_wait(disk: SmallDisk, run: RunDirectory) -> None:
    journal = JournalWriter(run.journal)
    heartbeat = Heartbeat(run, journal, Control(), clock=count().__next__)

    def waiting() -> int | None:
        heartbeat.tick()
        return HeartbeatWatch(run).look().waiting

    assert waiting() is None
    fill_up(disk, journal)
    size = run.heartbeat.stat().st_size
    for number in range(2):
        journal.write(progress(number))
        assert waiting() == journal.waiting > number
    disk.empty()
    journal.flush()
    assert waiting() is None
    assert run.heartbeat.stat().st_size == size
    journal.close()


def test_a_full_disk_has_room_for_a_request_to_stop_and_for_no_other(disk: SmallDisk, run: RunDirectory) -> None:
    control = Control()
    heartbeat = Heartbeat(run, JournalWriter(run.journal), control)
    disk.fill()
    with pytest.raises(OSError, match="No space"):
        ask(run, Steering.PAUSE, "asked")
    ask(run, Steering.STOP, "asked")
    heartbeat.tick()
    assert control.reason


def test_no_run_begins_on_a_full_disk_and_no_folder_is_left(
    disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = disk.path / "runs"
    runs.mkdir()
    disk.fill()
    with pytest.raises(DiskFullError, match=str(runs)) as raised:
        prepare_run(small_config(), runs)
    assert "262 kB" in raised.value.why
    assert list(runs.iterdir()) == []
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(disk.path))
    with pytest.raises(DiskFullError, match="the preset"):
        save_preset(small_config(), "mine", "Mine")
    assert list((disk.path / "presets").iterdir()) == []
    assert program(disk, tmp_path / "output", "run", "digits-cnn").wait(LIMIT_S) == 1
    assert str(runs) in (tmp_path / "output").read_text()
    assert list(runs.iterdir()) == []


def test_a_full_disk_loses_no_epoch_of_a_real_run(
    disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(disk.path))
    config = small_config(epochs=100_000, checkpoint={"monitor": "auto"}, sinks=["tensorboard"])
    run = prepare_run(config, disk.path / "runs")
    host = fork_host(run)

    def wait_while_full(condition: Callable[[], object], what: str) -> None:
        """Wait, and fill the disk again if a file that could not be written to its end was removed."""

        def holds() -> object:
            disk.fill()
            return condition()

        wait_until(holds, what)

    def says_full(text: str) -> bool:
        return re.search(r"(note|disk) +disk full: \d+ events? waiting", text) is not None

    def fills_a_block() -> bool:
        sizes = [file.stat().st_size for file in run.tensorboard.rglob("*tfevents*")]
        return any(size and size % 4096 == 0 for size in sizes)

    attached = tmp_path / "attached"
    try:
        wait_until(lambda: len(epochs_in(run)) >= 2, "two epochs")
        wait_while_full(lambda: HeartbeatWatch(run).look().waiting is not None, "the heartbeat to say that it is full")
        # Training goes on; TensorFlow notices when the block is full that its file has already.
        wait_while_full(fills_a_block, "a TensorBoard file to reach the end of its block")
        wait_while_full(lambda: (HeartbeatWatch(run).look().waiting or 0) >= 100, "more events after the disk was full")
        viewer = program(disk, attached, "attach", run.run_id)
        assert says_full(Call(capsys).out("show", run.run_id))
        wait_while_full(lambda: says_full(attached.read_text()), "a note on the full disk")
        ask(run, Steering.STOP, "asked")
        wait_while_full(lambda: host.poll() is not None, "the host to end")
        assert host.poll() == 1
        viewer.wait(LIMIT_S)
        assert "full: model.keras" in attached.read_text()
    finally:
        host.kill()
        host.wait()
    assert epochs_in(run) == list(range(1, len(epochs_in(run)) + 1))
    end = failure(run)
    assert str(run.path) in end.what
    assert ("free" in end.why, "needed" in end.why) == (True, True)
    assert "checkpoints/best.keras" in end.remedy
    assert end.remedy.endswith(run.run_id)
    notices = " ".join(event.message for event in all_of(run, Noticed))
    assert ("best.keras" in notices, "TensorBoard" in notices) == (True, True)


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
    end = failure(run)
    assert "full: model.keras" in end.what
    assert "All 2 epochs" in end.remedy
