"""A mirror that is away, full, or never comes: the run goes on, and says how far its mirror is."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.engine.mirror.parts import Training
from tests.helpers import all_of, wait_until
from tests.small_disk import small_disk
from tpu_console.engine.mirror.copier import Mirror, fetch_run
from tpu_console.engine.runs.checkpoint import newest_checkpoint
from tpu_console.engine.runs.events import MirrorReported, RunFinished, RunOutcome
from tpu_console.engine.runs.recorder import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

END = RunFinished(RunOutcome.COMPLETED, "all epochs are done", {})


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path / "runs")


@contextmanager
def mirrored(training: Training, mirror: Path, patience_s: float = 60.0) -> Iterator[Mirror]:
    """Mirror a run, and leave no thread behind."""
    before = set(threading.enumerate())
    one = Mirror(training.recorder, f"{mirror}/{training.run.run_id}", patience_s, look_s=0.02)
    yield one
    one._is_over = True
    one._wake.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)


def reports(training: Training) -> list[MirrorReported]:
    return all_of(training.run, MirrorReported)


def epoch_there(training: Training) -> int:
    """The epoch of the newest report."""
    return reports(training)[-1].epoch if reports(training) else 0


def end(training: Training, mirror: Mirror) -> None:
    """End a run as `train_and_report` does."""
    mirror.close(END)
    training.recorder.emit(END)
    training.journal.flush()
    mirror.finish()


def test_a_finished_run_is_complete_at_its_mirror(training: Training, tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    with mirrored(training, tmp_path / "mirror") as mirror:
        training.epoch()
        wait_until(lambda: epoch_there(training) == 1)
        training.epoch()
        training.run.model.write_bytes(b"model")
        end(training, mirror)
    copy = tmp_path / "mirror" / training.run.run_id
    assert (copy / "model.keras").read_bytes() == b"model"
    assert (copy / "events.jsonl").read_bytes() == training.run.journal.read_bytes()
    assert reports(training)[-1] == MirrorReported(str(copy), 2)
    assert all_of(training.run, RunFinished) == [END]


def test_a_mirror_that_goes_away_is_caught_up_with(training: Training, tmp_path: Path) -> None:
    (tmp_path / "mirror").mkdir()
    with mirrored(training, tmp_path / "mirror") as mirror:
        training.epoch()
        wait_until(lambda: epoch_there(training) == 1)
        (tmp_path / "mirror").rename(tmp_path / "away")
        training.epoch()
        wait_until(lambda: bool(reports(training)[-1].problem))
        assert "No such file" in reports(training)[-1].problem
        assert not (tmp_path / "mirror").exists()
        training.epoch()
        (tmp_path / "away").rename(tmp_path / "mirror")
        wait_until(lambda: epoch_there(training) == 3)
        end(training, mirror)
    assert [bool(report.problem) for report in reports(training)].count(True) == 1, "said once, not at each attempt"
    run = fetch_run(str(tmp_path / "mirror" / training.run.run_id), tmp_path / "elsewhere")
    assert run.journal.read_bytes() == training.run.journal.read_bytes()


def test_a_full_mirror_keeps_its_checkpoint_until_there_is_room(tmp_path: Path) -> None:
    training = Training(tmp_path / "runs", size=50_000)  # checkpoints of 200 kB
    (tmp_path / "mirror").mkdir()
    with small_disk(tmp_path / "mirror", "2m") as disk, mirrored(training, disk.path) as mirror:
        deadline = Deadline("1h", 3600.0, time.time())
        training.recorder.keep_to(deadline)
        training.epoch()
        wait_until(lambda: epoch_there(training) == 1)
        assert deadline.save_s > 0
        disk.fill()
        training.epoch()
        wait_until(lambda: reports(training)[-1].problem)
        found = newest_checkpoint(fetch_run(f"{disk.path}/{training.run.run_id}", tmp_path / "meanwhile"))
        assert found is not None
        assert found[1].epoch == 1
        disk.empty()
        end(training, mirror)
        assert reports(training)[-1] == MirrorReported(f"{disk.path}/{training.run.run_id}", 2)
        run = fetch_run(f"{disk.path}/{training.run.run_id}", tmp_path / "elsewhere")
    assert run.journal.read_bytes() == training.run.journal.read_bytes()
    assert newest_checkpoint(run) is not None


def test_the_end_of_a_budget_ends_the_wait_for_a_mirror(training: Training, tmp_path: Path) -> None:
    training.recorder.keep_to(Deadline("1s", 1.0, time.time() - 2))
    with mirrored(training, tmp_path / "mirror") as mirror:
        end(training, mirror)
    assert reports(training)[-1].is_given_up


def test_a_run_whose_mirror_never_comes_ends_and_says_what_is_not_copied(training: Training, tmp_path: Path) -> None:
    with mirrored(training, tmp_path / "mirror", patience_s=0.1) as mirror:
        training.epoch()
        training.run.model.write_bytes(b"model")
        end(training, mirror)
    last = reports(training)[-1]
    assert "No such file" in last.problem
    assert last.is_given_up
    assert last.left == (
        *("events.jsonl", "config.toml", "checkpoints/best.keras", "model.keras"),
        "checkpoints/state-000001.ckpt",
    )
    assert all_of(training.run, RunFinished) == [END]


def test_a_request_to_stop_ends_the_wait_for_a_mirror(training: Training, tmp_path: Path) -> None:
    with mirrored(training, tmp_path / "mirror") as mirror:
        ending = threading.Thread(target=end, args=(training, mirror))
        ending.start()
        wait_until(lambda: training.recorder.control.ending == END)
        training.recorder.control.stop("asked by SIGINT")
        ending.join(60)
        assert not ending.is_alive()
    assert reports(training)[-1].is_given_up


def test_the_mirror_of_another_run_ends_mirroring_and_not_the_run(training: Training, tmp_path: Path) -> None:
    copy = tmp_path / "mirror" / training.run.run_id
    copy.mkdir(parents=True)
    (copy / "events.jsonl").write_text('{"another": "run"}\n')
    with mirrored(training, tmp_path / "mirror") as mirror:
        wait_until(lambda: bool(reports(training)))
        assert reports(training)[0].is_given_up
        end(training, mirror)
    assert "another run" in reports(training)[-1].problem
    assert (copy / "events.jsonl").read_text() == '{"another": "run"}\n'
