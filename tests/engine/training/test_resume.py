"""A run that was interrupted and resumed ends like one that was left alone."""

import json
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests import chaos
from tests.helpers import (
    LIMIT_S,
    Host,
    all_of,
    checkpoint_of,
    has,
    run_host,
    small_config,
    the,
    timed_events_of,
    wait_until,
)
from tpu_console.engine.errors import ConsoleError, DataError
from tpu_console.engine.process.launch import FinishedError, prepare_resumption
from tpu_console.engine.runs.checkpoint import newest_checkpoint, read_checkpoint
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import EpochEnded, FitStarted, MirrorReported, RunFailed, RunFinished, Steering
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.run_directory import RunDirectory, RunningError
from tpu_console.engine.training.checkpoints import check_same
from tpu_console.tui.cli import main

pytestmark = pytest.mark.slow

CONFIG = chaos.chaos_config(epochs=5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return run_host(CONFIG, tmp_path_factory.mktemp("whole"))


def lost_power(run: RunDirectory, folder: Path) -> tuple[RunDirectory, int]:
    """Copy a finished run as if its machine had lost power after the last checkpoint but one, and return its epoch."""
    copy = RunDirectory(shutil.copytree(run.path, folder / run.path.name))
    checkpoint_of(copy)[0].unlink()
    epoch = checkpoint_of(copy)[1].epoch
    lines = copy.journal.read_bytes().splitlines(keepends=True)
    ends = [number for number, line in enumerate(lines) if b'"type":"EpochEnded"' in line]
    # An epoch more is in the journal than in the checkpoint, and a line that was being written.
    copy.journal.write_bytes(b"".join(lines[: ends[epoch] + 1]) + b'{"v":1,"t":')
    for path in (copy.model, copy.history, copy.summary):
        path.unlink()
    return copy, epoch


# Two devices restore what one does and its distribution, too; the tests below use one.
@pytest.mark.usefixtures("resumed_in_forks")
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path, backend: str) -> None:
    changes = {"model": "mlp", "model_options": {"hidden": [8], "dropout": 0.3}, "epochs": 2}
    config = CONFIG.model_copy(update={**changes, "backend": backend, "accelerator": "sim:2"})
    run = run_host(config, tmp_path / "whole")
    copy, epoch = lost_power(run, tmp_path)
    prepared = prepare_resumption(copy)
    killed = RunFollower(copy).catch_up().state
    assert copy.history.read_text().count("\n") == len(killed.epochs) + 1
    assert prepared.start().wait(LIMIT_S) == 0, copy.log.read_text()[-3000:]
    chaos.check_same(copy, run)
    (resumed,) = RunFollower(copy).catch_up().state.resumed
    assert (resumed.epoch, resumed.step > 0) == (epoch, True)
    assert copy.model.is_file()
    assert copy.summary.is_file()
    assert copy.history.read_text().count("\n") == len(chaos.losses(run)) + 1


# `make chaos` starts processes that import Keras, which may be killed at that, too.
@pytest.mark.usefixtures("resumed_in_forks")
def test_kills_at_random_moments_change_nothing(tmp_path: Path, whole: RunDirectory) -> None:
    lines = len(timed_events_of(whole)) // 4
    run, done = chaos.kill_and_resume(CONFIG, tmp_path, 3, lines, random.Random(1), forked=True)
    chaos.check_same(run, whole)
    assert (len(done.moments), done.lost_files) == (3, 0)


# The test below resumes in a process that starts as users start it.
@pytest.mark.usefixtures("resumed_in_forks")
def test_a_stopped_run_goes_on_within_the_epoch(
    tmp_path: Path, whole: RunDirectory, start: Callable[..., Host]
) -> None:
    host = start(CONFIG, forked=True)
    wait_until(lambda: has(host.run, EpochEnded), "the first epoch")
    with pytest.raises(RunningError, match="still training"):
        prepare_resumption(host.run)
    host.send(signal.SIGTERM)
    assert host.wait() == 0
    assert the(host.run, RunFinished).outcome == "stopped"
    assert checkpoint_of(host.run)[1].step == max(event.step for event in all_of(host.run, EpochEnded))
    process = prepare_resumption(host.run).start()
    with pytest.raises(RunningError, match="still training"):
        prepare_resumption(host.run)
    assert process.wait(LIMIT_S) == 0
    chaos.check_same(host.run, whole)


def test_a_run_whose_machine_is_gone_continues_from_its_mirror(
    tmp_path: Path,
    whole: RunDirectory,
    start: Callable[..., Host],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "drive").mkdir()
    config = CONFIG.model_copy(update={"mirror": str(tmp_path / "drive")})
    lost = start(config, forked=True)
    copy = RunDirectory(tmp_path / "drive" / lost.run.path.name)
    wait_until(lambda: has(lost.run, EpochEnded), "the first epoch")
    ask(lost.run, Steering.PAUSE, "the test")  # or the run may end before it is killed
    wait_until(lambda: newest_checkpoint(copy) is not None, "a checkpoint at the mirror")
    lost.kill()
    shutil.rmtree(lost.run.path)
    (tmp_path / "drive").rename(tmp_path / "elsewhere")  # the new machine mounts it in another place
    copy = RunDirectory(tmp_path / "elsewhere" / copy.path.name)
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path / "new machine"))
    assert main(["resume", str(copy.path), "--detach", "--json"]) == 0
    process = psutil.Process(json.loads(capfd.readouterr().out)["pid"])
    try:
        run = RunDirectory(tmp_path / "new machine" / "runs" / copy.path.name)
        (tmp_path / "elsewhere").rename(tmp_path / "away")
        wait_until(lambda: RunFollower(run).catch_up().state.phase_detail.startswith("copying to "), "its end")
        assert not has(run, RunFinished)
        (tmp_path / "away").rename(tmp_path / "elsewhere")
        wait_until(lambda: has(run, RunFinished), "the mirror")
        wait_until(lambda: copy.journal.read_bytes() == run.journal.read_bytes(), "the last event at the mirror")
        # The summary says how the killed run had ended, until its continuation has.
        wait_until(copy.summary.exists, "a summary at the mirror")  # copied after the journal, in place of the old one
        wait_until(lambda: copy.summary.read_bytes() == run.summary.read_bytes(), "the summary at the mirror")
    finally:
        process.kill()
    chaos.check_same(run, whole)
    state = RunFollower(run).catch_up().state
    assert len(state.resumed) == 1
    reports = all_of(run, MirrorReported)
    assert reports[-1] == MirrorReported(str(copy.path), 5)
    assert any(report.problem for report in reports)
    assert copy.model.read_bytes() == run.model.read_bytes()


def test_a_damaged_checkpoint_is_never_chosen(whole: RunDirectory, tmp_path: Path) -> None:
    copy = RunDirectory(shutil.copytree(whole.path, tmp_path / "copy"))
    newest = path, _ = checkpoint_of(copy)
    data = path.read_bytes()
    for damaged in (data[:-1], data + b"0", data[:200], b"", data[:300] + b"\0" + data[301:], b"\n\n" + data):
        path.write_bytes(damaged)
        assert checkpoint_of(copy)[0] != path
    path.write_bytes(data)
    assert checkpoint_of(copy) == newest
    header, arrays = read_checkpoint(path)
    assert {"trainable", "non_trainable", "optimizer", "metrics", "best"} == arrays.keys()
    assert header.patience["best"] > 0


@pytest.mark.usefixtures("resumed_in_forks")
def test_a_finished_run_trains_on_with_more_epochs(whole: RunDirectory, tmp_path: Path) -> None:
    copy = RunDirectory(shutil.copytree(whole.path, tmp_path / "copy"))
    with pytest.raises(FinishedError, match=r"has finished.*--epochs 10"):
        prepare_resumption(copy)
    prepared = prepare_resumption(copy, [("epochs", 6), ("batch_size", 64)])
    assert prepared.changes == ("batch_size: 32 → 64", "epochs: 5 → 6")
    assert prepared.start().wait(LIMIT_S) == 0, copy.log.read_text()[-3000:]
    state = RunFollower(copy).catch_up().state
    assert isinstance(state.end, RunFinished)
    assert len(state.epochs) == 6
    assert all_of(copy, FitStarted)[-1].global_batch == 64
    assert state.epochs[-1].step == state.epochs[-2].step + 22


def test_another_model_is_refused(whole: RunDirectory, tmp_path: Path) -> None:
    copy, _ = lost_power(whole, tmp_path)
    with pytest.raises(ConsoleError, match=r"model_options.filters cannot change from \[4\] to \[8\]"):
        prepare_resumption(copy, [("model_options.filters", [8])])
    header = checkpoint_of(copy)[1]
    saved = [array for array in header.arrays if array.group == "trainable"]
    kernel, *others = (SimpleNamespace(path=array.name, shape=array.shape) for array in saved)
    wider = [SimpleNamespace(path=kernel.path, shape=(3, 3, 1, 5)), *others]
    with pytest.raises(DataError, match=r"another model: .*kernel has shape \(3, 3, 1, 5\), and \(3, 3, 1, 4\) in the"):
        check_same(header, "trainable", wider)
    with pytest.raises(DataError, match=r"there are 5 trainable variables, and 6 in the checkpoint"):
        check_same(header, "trainable", [kernel, *others][:-1])


def test_a_run_without_a_checkpoint_begins_again_unless_another_machine_may_be_training_it(tmp_path: Path) -> None:
    run = Host(small_config(), tmp_path, start=False).run
    prepared = prepare_resumption(run)
    assert (prepared.checkpoint, prepared.at) == ("", None)
    with pytest.raises(RunningError, match="still training"):
        prepare_resumption(run)
    prepared.give_up()
    prepare_resumption(run).give_up()
    run.heartbeat.write_text(json.dumps({"pid": 1, "host": "elsewhere"}))  # a shared folder, without its locks
    with pytest.raises(RunningError):
        prepare_resumption(run)


BROKEN = """
import numpy as np
import tensorflow as tf

def data():
    x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
    rows = tf.data.Dataset.from_tensor_slices((x, np.arange(64) % 3))
    return rows.map(lambda x, y: (tf.ensure_shape(tf.py_function(checked, [x], tf.float32), (4,)), y))

seen = 0

def checked(x):
    global seen
    seen += 1
    {within}
    return x
"""


@pytest.mark.usefixtures("resumed_in_forks")
def test_a_run_goes_on_after_its_users_code_is_corrected_in_another_folder_and_on_other_devices(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(BROKEN.format(within="assert seen < 400, 'a bad example'"))
    config = small_config(
        dataset=f"{mine}:data", model_options={"hidden": [4]}, batch_size=8, epochs=9, data={"cache": "off"}
    )
    run = run_host(config, tmp_path / "runs")
    assert "AssertionError: a bad example" in the(run, RunFailed).what
    done = checkpoint_of(run)[1]
    mine.write_text(BROKEN.format(within="pass"))
    moved = RunDirectory(run.path.rename(tmp_path / run.path.name))
    prepared = prepare_resumption(moved, [("accelerator", "sim:2")])
    assert (prepared.changes, prepared.at) == (("accelerator: cpu → sim:2",), done)
    assert prepared.start().wait(LIMIT_S) == 0, moved.log.read_text()[-3000:]
    state = RunFollower(moved).catch_up().state
    assert [epoch.epoch for epoch in state.epochs] == [*range(1, 10)]
    assert state.accelerator is not None
    assert len(state.accelerator.replicas) == 2
