"""What is copied to a mirror, in a folder and through TensorFlow's files, and comes back from it.

A mirror that is away, full, or never comes: the run goes on, and says how far its mirror is.
"""

import io
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.engine.mirror.parts import Training
from tests.helpers import all_of, wait_until
from tests.small_disk import small_disk
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.mirror.copier import Copier, Mirror, MirrorTakenError, common_bytes, fetch_run, newest_named
from tpu_console.engine.mirror.places import MARKER, Bucket, Folder, Place, is_at_mirror, mirror_problem
from tpu_console.engine.runs.checkpoint import newest_checkpoint, read_checkpoint
from tpu_console.engine.runs.events import MirrorReported, Noticed, RunFinished, RunOutcome
from tpu_console.engine.runs.recorder import Deadline
from tpu_console.engine.runs.run_directory import RunDirectory


@pytest.fixture(params=["folder", "bucket"])
def place(request: pytest.FixtureRequest, tmp_path: Path, training: Training) -> Place:
    """The run's folder at a mirror; TensorFlow writes this machine's files like those of a bucket."""
    path = tmp_path / "mirror" / training.run.run_id
    (path / "checkpoints").mkdir(parents=True)
    return Folder(path) if request.param == "folder" else Bucket(str(path))


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path / "runs")


def names_at(place: Place) -> list[str]:
    return sorted([*place.names(), *place.names("checkpoints")])


def checkpoint_epoch(run: RunDirectory) -> int:
    found = newest_checkpoint(run)
    assert found is not None
    assert np.all(read_checkpoint(found[0])[1]["trainable"][0] == found[1].epoch)
    return found[1].epoch


def test_a_run_comes_back_with_its_newest_checkpoint_and_its_journal(
    training: Training, place: Place, tmp_path: Path
) -> None:
    copier = Copier(training.run, place)
    training.epoch()
    assert copier.copy()
    (training.run.hub / "variables").mkdir(parents=True)
    (training.run.hub / "variables" / "variables.index").write_bytes(b"index")
    (training.run.hub / "notes.txt").write_bytes(b"no file of a SavedModel")
    if isinstance(place, Bucket):  # of which this machine's folders are none
        (tmp_path / "mirror" / training.run.run_id / "hub" / "variables").mkdir(parents=True)
    for epochs in (3, 1):
        for _ in range(epochs):
            training.epoch()
        assert copier.copy()
    assert not copier.copy()
    assert copier.epoch == 5
    checkpoints = ["best.keras", "state-000004.ckpt", "state-000005.ckpt"]
    assert names_at(place) == sorted(["checkpoints", "config.toml", "events.jsonl", "hub", MARKER, *checkpoints])
    (tmp_path / "elsewhere" / ".fetch-killed" / "part").mkdir(parents=True)
    (tmp_path / "elsewhere" / ".fetch-now").mkdir()  # by another process
    os.utime(tmp_path / "elsewhere" / ".fetch-killed", (0, 0))
    run = fetch_run(place.name, tmp_path / "elsewhere")
    assert run.journal.read_bytes() == training.run.journal.read_bytes()
    assert run.config.read_bytes() == training.run.config.read_bytes()
    assert (run.checkpoints / "best.keras").read_bytes() == bytes([5]) * 100
    assert [path.name for path in run.hub.rglob("*")] == ["variables", "variables.index"]
    assert checkpoint_epoch(run) == 5
    assert not (run.path / MARKER).exists()
    assert {entry.name for entry in (tmp_path / "elsewhere").iterdir()} == {".fetch-now", run.run_id}


def test_a_torn_checkpoint_is_never_chosen(training: Training, place: Place, tmp_path: Path) -> None:
    copier = Copier(training.run, place)
    for _ in range(2):
        training.epoch()
        copier.copy()
    newest = tmp_path / "mirror" / training.run.run_id / "checkpoints" / "state-000002.ckpt"
    whole = newest.read_bytes()
    for torn in (whole[:-1], whole + b"x", b"", whole[:-1] + b"x"):
        newest.write_bytes(torn)
        assert checkpoint_epoch(fetch_run(place.name, tmp_path / f"to {len(torn)} {torn[-1:].hex()}")) == 1


def test_a_checkpoint_that_is_replaced_while_the_journal_is_copied_does_not_count(
    training: Training, tmp_path: Path
) -> None:
    class Late(Folder):
        def put(self, name: str, parts: Iterable[bytes]) -> None:
            super().put(name, parts)
            for path in training.run.checkpoints.glob("state-*"):
                path.unlink()

    copier = Copier(training.run, Late(tmp_path / training.run.run_id))
    training.epoch()
    assert (copier.copy(), copier.epoch) == (False, 0)


def test_checkpoints_of_a_course_that_the_run_has_left_are_removed(training: Training, place: Place) -> None:
    copier = Copier(training.run, place)
    for _ in range(3):
        training.epoch()
        copier.copy()
    for path in training.run.checkpoints.glob("state-*"):  # they were damaged, or somebody needed the space
        path.unlink()
    training.epoch()
    assert copier.copy()
    assert names_at(place) == sorted({*names_at(place)} - {"state-000002.ckpt", "state-000003.ckpt"})
    assert "state-000001.ckpt" in names_at(place)


def test_only_what_is_new_in_the_journal_is_copied_to_a_folder(training: Training, tmp_path: Path) -> None:
    copier = Copier(training.run, Folder(tmp_path / training.run.run_id))
    training.epoch()
    copier.copy()
    copied = tmp_path / training.run.run_id / "events.jsonl"
    first = copied.stat().st_ino
    training.epoch()
    copier.copy()
    assert copied.read_bytes() == training.run.journal.read_bytes()
    assert copied.stat().st_ino == first  # a draft would have replaced it


def test_the_mirror_of_another_run_is_left_alone(training: Training, place: Place, tmp_path: Path) -> None:
    Copier(training.run, place).copy()
    before = training.run.journal.read_bytes()
    other = Training(tmp_path / "other")
    with pytest.raises(MirrorTakenError, match="has a copy of another run"):
        Copier(other.run, place).copy()
    with place.open("events.jsonl") as file:
        assert file.read() == before


@pytest.mark.parametrize(
    ("one", "other", "same"), [("abc", "abc", 3), ("abc", "abd", 2), ("abc", "ab", 2), ("ab", "abc", 2), ("", "a", 0)]
)
def test_the_common_bytes_are_those_both_files_begin_with(one: str, other: str, same: int) -> None:
    assert common_bytes(io.BytesIO(one.encode()), io.BytesIO(other.encode())) == same


def test_a_run_that_went_on_elsewhere_is_left_alone(training: Training, place: Place, tmp_path: Path) -> None:
    copier = Copier(training.run, place)
    copier.copy()
    there = fetch_run(place.name, tmp_path / "elsewhere")
    with there.journal.open("ab") as journal:
        journal.write(b'{"v": 1, "t": 1.0, "type": "Noticed", "message": "there"}\n')
    Copier(there, place).copy()
    training.recorder.emit(Noticed("here"))
    with pytest.raises(MirrorTakenError, match="has progress that the run made elsewhere"):
        copier.copy()
    with pytest.raises(ConsoleError, match="is in the way"):
        fetch_run(place.name, training.run.path.parent)


def test_an_emptied_mirror_is_filled_again_and_what_a_killed_process_left_is_removed(
    training: Training, place: Place, tmp_path: Path
) -> None:
    copier = Copier(training.run, place)
    training.epoch()
    copier.copy()
    before = names_at(place)
    for folder in ("checkpoints/", ""):
        for name in place.names(folder):
            if name != "checkpoints":
                place.remove(folder + name)
    place.put("checkpoints/.draft-1-state-000009.ckpt", [b"half"])
    copier.copy()  # finds out
    copier.copy()
    assert names_at(place) == before
    training.recorder.emit(Noticed("and more"))
    assert fetch_run(place.name, training.run.path.parent).path == training.run.path  # it has all of its mirror


def test_a_link_in_place_of_the_runs_folder_is_not_written_through(training: Training, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    place = tmp_path / "mirror" / training.run.run_id
    place.parent.mkdir()
    place.symlink_to(tmp_path / "home")
    with pytest.raises(OSError, match="link"):
        Copier(training.run, Folder(place)).copy()
    assert list((tmp_path / "home").iterdir()) == []


def test_nothing_but_known_regular_files_is_fetched(training: Training, tmp_path: Path) -> None:
    path = tmp_path / "mirror" / training.run.run_id
    path.parent.mkdir()
    training.epoch()
    Copier(training.run, Folder(path)).copy()
    (path / "reserved-space").write_text("no")
    (path / "hub" / "assets").mkdir(parents=True)
    (path / "hub" / "saved_model.pb").write_text("yes")
    (path / "hub" / "assets" / "words.txt").write_text("yes")
    (path / "hub" / "run.py").write_text("no")
    run = fetch_run(str(path), tmp_path / "one")
    assert sorted(file.name for file in run.path.rglob("*") if file.is_file()) == [
        *("best.keras", "config.toml", "events.jsonl", "saved_model.pb", "state-000001.ckpt", "words.txt"),
    ]
    secret = tmp_path / "secret"
    secret.write_text("not yours")
    (path / "report.json").symlink_to(secret)
    with pytest.raises(ConsoleError, match=r"report.json .* link"):
        fetch_run(str(path), tmp_path / "two")
    (path / "report.json").unlink()
    os.mkfifo(path / "report.json")
    with pytest.raises(ConsoleError, match="it is a pipe"):
        fetch_run(str(path), tmp_path / "two")
    assert list((tmp_path / "two").iterdir()) == []


@pytest.mark.parametrize("name", ["..", ".hidden", "a b", ""])
def test_only_a_plain_name_is_a_run_at_a_mirror(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConsoleError, match="is not a copy of a run"):
        fetch_run(f"gs://bucket/{name}" if name else "/", tmp_path)


def test_a_mirror_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConsoleError, match=r"cannot be copied from .*/file/run: Not a directory\."):
        fetch_run(f"{tmp_path}/file/run", tmp_path / "runs")
    with pytest.raises(ConsoleError, match=r"/file cannot be read: Not a directory\."):
        newest_named(f"{tmp_path}/file", "small")


def test_a_mirror_is_known_by_its_marker(training: Training, tmp_path: Path) -> None:
    path = tmp_path / "mirror" / training.run.run_id
    path.parent.mkdir()
    Copier(training.run, Folder(path)).copy()
    assert json.loads((path / MARKER).read_bytes())["run"] == training.run.run_id
    assert is_at_mirror(str(path))
    assert is_at_mirror("gs://bucket/runs/20260101-000000-a")
    assert not is_at_mirror(str(training.run.path))
    assert not is_at_mirror(training.run.run_id)


def test_a_plan_says_which_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    problems = [
        mirror_problem(str(place)) for place in ("", tmp_path, "gs://b/runs", tmp_path / "no", tmp_path / "file")
    ]
    assert [bool(problem) for problem in problems] == [False, False, False, True, True]


END = RunFinished(RunOutcome.COMPLETED, "all epochs are done", {})


@contextmanager
def mirrored(training: Training, mirror: Path, patience_s: float = 60.0) -> Iterator[Mirror]:
    """Mirror a run, and leave no thread behind."""
    before = set(threading.enumerate())
    one = Mirror(training.recorder, f"{mirror}/{training.run.run_id}", patience_s, look_s=0.02)
    try:
        yield one
    finally:
        one.finish()
        for thread in set(threading.enumerate()) - before:
            thread.join(10)


def reports(training: Training) -> list[MirrorReported]:
    return all_of(training.run, MirrorReported)


def epoch_there(training: Training) -> int:
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
    assert [bool(report.problem) for report in reports(training)].count(True) == 1  # not at each attempt
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
        assert checkpoint_epoch(fetch_run(f"{disk.path}/{training.run.run_id}", tmp_path / "meanwhile")) == 1
        disk.empty()
        end(training, mirror)
        assert reports(training)[-1] == MirrorReported(f"{disk.path}/{training.run.run_id}", 2)
        run = fetch_run(f"{disk.path}/{training.run.run_id}", tmp_path / "elsewhere")
    assert run.journal.read_bytes() == training.run.journal.read_bytes()
    assert checkpoint_epoch(run) == 2


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
    assert (last.is_given_up, last.epoch) == (True, 0)
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
