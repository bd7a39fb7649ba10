"""When checkpoints are saved, and what a full disk does to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.helpers import all_of, replace, small_config
from tests.small_disk import small_disk
from tpu_console.engine.runs.checkpoint import Header, SavedArray, newest_checkpoint, read_checkpoint, write_checkpoint
from tpu_console.engine.runs.events import CheckpointSaved, EpochEnded, Noticed
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.engine.runs.state import best_epoch
from tpu_console.engine.training.checkpoints import Checkpoints, OwnCallbacks, ValidatedEpochs, placed
from tpu_console.engine.training.outputs import BestCheckpoint


class Clock:
    """Seconds that a test sets; each look takes some."""

    def __init__(self) -> None:
        self.now, self.tick = 0.0, 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


class Data:
    """What checkpoints need of a pipeline."""

    def __init__(self, steps_per_epoch: int = 4, global_batch: int = 8, validation: Any = None) -> None:
        self.steps_per_epoch, self.global_batch = steps_per_epoch, global_batch
        self.validation = validation


class Bridge:
    """What checkpoints need of the bridge."""

    def seconds(self) -> tuple[float, float]:
        return 1.0, 0.5


def checkpoints_of(
    folder: Path, clock: Clock, saved: Any = None, rate: float = 0.01, validation: Any = None, **options: float
) -> tuple[Checkpoints, Any, Recorder]:
    """Checkpoints of a tiny compiled model in a new run, the model, and what reports to the run."""
    run = create_run("mine", folder)
    recorder = Recorder(run, JournalWriter(run.journal))
    config = small_config(checkpoint={"monitor": "none", **options})
    data: Any = Data(validation=validation)
    bridge: Any = Bridge()
    checkpoints = Checkpoints(recorder, config, data, bridge, None, saved, clock)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    model.optimizer.build(model.trainable_variables)
    model.train_function = lambda _: {}
    checkpoints.attach(model, 0)
    return checkpoints, model, recorder


def saved_steps(checkpoints: Checkpoints, recorder: Recorder) -> int:
    """The step of the newest checkpoint, once it is written."""
    checkpoints.close()
    return saved_in(recorder)


def train_epoch(
    checkpoints: Checkpoints, model: Any, recorder: Recorder, epoch: int, seconds: float, clock: Clock
) -> None:
    """Four steps, as `fit` takes them; a checkpoint takes no time to write."""
    checkpoints.on_epoch_begin(epoch)
    saved_steps(checkpoints, recorder)
    for _ in range(4):
        clock.now += seconds / 4
        model.train_function(None)
        saved_steps(checkpoints, recorder)
    checkpoints.on_epoch_end(epoch, {})


def test_an_epoch_is_saved_when_the_next_one_begins(tmp_path: Path) -> None:
    clock = Clock()
    checkpoints, model, recorder = checkpoints_of(tmp_path, clock)
    for epoch in range(3):
        train_epoch(checkpoints, model, recorder, epoch, 100.0, clock)
        assert saved_steps(checkpoints, recorder) == 4 * epoch
    checkpoints.on_train_end()
    assert saved_steps(checkpoints, recorder) == 12


def test_a_long_epoch_is_saved_every_few_minutes(tmp_path: Path) -> None:
    clock = Clock()
    checkpoints, model, recorder = checkpoints_of(tmp_path, clock, every_minutes=10.0)
    train_epoch(checkpoints, model, recorder, 0, 4 * 601.0, clock)
    assert saved_steps(checkpoints, recorder) == 3
    newest = newest_checkpoint(recorder.run)
    assert newest is not None
    assert (newest[1].epoch, newest[1].epoch_step) == (0, 3)


def test_checkpoints_take_no_more_than_their_share_of_the_time(tmp_path: Path) -> None:
    clock = Clock()
    checkpoints, model, recorder = checkpoints_of(tmp_path, clock)
    saves = []
    for epoch in range(200):
        clock.tick = 0.1  # copying takes 0.1 s, as each look at the clock does
        before = saved_steps(checkpoints, recorder)
        train_epoch(checkpoints, model, recorder, epoch, 1.0, clock)
        saves.append(saved_steps(checkpoints, recorder) != before)
    assert 1 < sum(saves) <= 0.02 * clock.now / 0.1 + 2


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path) -> None:
    with small_disk(tmp_path, "4m") as disk:
        clock = Clock()
        checkpoints, model, recorder = checkpoints_of(disk.path, clock)
        for epoch in range(2):
            train_epoch(checkpoints, model, recorder, epoch, 1e4, clock)
        assert saved_steps(checkpoints, recorder) == 7
        disk.fill()
        for epoch in (2, 3):
            train_epoch(checkpoints, model, recorder, epoch, 1e4, clock)
        assert saved_steps(checkpoints, recorder) == 7
        disk.empty()
        train_epoch(checkpoints, model, recorder, 4, 1e4, clock)
        assert saved_steps(checkpoints, recorder) == 19
        recorder.journal.close()
        (notice,) = all_of(recorder.run, Noticed)[:1]
        assert "No space" in notice.message
        assert "previous checkpoint" in notice.message


def test_checkpoints_can_be_switched_off(tmp_path: Path) -> None:
    checkpoints, model, recorder = checkpoints_of(tmp_path, Clock(), every_minutes=0.0)
    train_epoch(checkpoints, model, recorder, 0, 1e4, Clock())
    checkpoints.on_train_end()
    assert saved_steps(checkpoints, recorder) == 0


def test_weights_that_became_nan_are_not_saved(tmp_path: Path) -> None:
    clock = Clock()
    checkpoints, model, recorder = checkpoints_of(tmp_path, clock)
    train_epoch(checkpoints, model, recorder, 0, 100.0, clock)
    checkpoints.on_epoch_begin(1)
    assert saved_steps(checkpoints, recorder) == 4
    model.trainable_variables[0].assign([[1.0], [np.nan]])
    for epoch in (1, 2):
        train_epoch(checkpoints, model, recorder, epoch, 100.0, clock)
    checkpoints.on_train_end()
    assert saved_steps(checkpoints, recorder) == 4
    assert checkpoints.save_now()
    recorder.journal.close()
    (notice,) = all_of(recorder.run, Noticed)
    assert "NaN" in notice.message


def test_of_equal_epochs_the_saved_model_is_that_with_the_lowest_loss(tmp_path: Path) -> None:
    run = create_run("mine", tmp_path)
    best = BestCheckpoint(Recorder(run, JournalWriter(run.journal)), "val_accuracy")
    best.set_model(checkpoints_of(tmp_path, Clock())[1])
    losses = [0.5, 0.4, 0.45, 0.4]
    epochs = [EpochEnded(n, n, 1, 0.0, 0.0, 0.0, 0.0, None, None, None, {}) for n in range(1, 5)]
    epochs = [replace(e, logs={"val_loss": loss, "val_accuracy": 0.9}) for e, loss in zip(epochs, losses, strict=True)]
    for epoch in epochs:
        best.on_epoch_end(epoch.epoch - 1, epoch.logs)
    best.on_epoch_end(4, {"loss": np.nan, "val_loss": 0.1, "val_accuracy": 1.0})  # of the steps before
    found = best_epoch(epochs, "val_accuracy", lowest=False)
    assert found is not None
    assert [saved.epoch for saved in all_of(run, CheckpointSaved)] == [1, found.epoch]


def test_the_journal_and_the_configuration_are_durable_before_the_checkpoint_that_goes_on_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, synced = Clock(), list[str]()
    checkpoints, model, recorder = checkpoints_of(tmp_path, clock)
    recorder.run.config.touch()
    monkeypatch.setattr("os.fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name))
    for epoch in range(2):
        train_epoch(checkpoints, model, recorder, epoch, 100.0, clock)
        recorder.emit(EpochEnded(epoch + 1, 4, 4, 1.0, 1.0, 0.5, 0.0, None, None, None, {}))
    draft = next(name for name in synced if name.startswith(".draft-"))
    assert {"events.jsonl", "config.toml", recorder.run.run_id} <= {*synced[: synced.index(draft)]}


def saved_in(recorder: Recorder) -> int:
    """The step of the newest checkpoint as it is."""
    newest = newest_checkpoint(recorder.run)
    return newest[1].step if newest is not None else 0


@pytest.mark.parametrize(("rate", "resumed"), [(0.01, 0.5), (0.02, 0.02)])
def test_a_resumed_run_keeps_the_learning_rate_unless_its_configuration_changed(
    tmp_path: Path, rate: float, resumed: float
) -> None:
    checkpoints, model, recorder = checkpoints_of(tmp_path, Clock())
    model.optimizer.learning_rate = 0.5  # as `tpu-console set` does
    assert checkpoints.rate_change() == pytest.approx(50)
    train_epoch(checkpoints, model, recorder, 0, 1.0, Clock())
    checkpoints.on_train_end()
    newest = newest_checkpoint(recorder.run)
    assert newest is not None
    saved = read_checkpoint(newest[0])
    _, model, _ = checkpoints_of(tmp_path, Clock(), saved, rate)
    assert float(model.optimizer.learning_rate) == pytest.approx(resumed)
    assert not saved[1], "the arrays would stay in memory"


def test_a_stop_ends_a_validation(tmp_path: Path) -> None:
    checkpoints, model, recorder = checkpoints_of(tmp_path, Clock())
    logs = {"loss": 1.0, "val_loss": 1.0}
    model.stop_evaluating = False
    checkpoints.on_test_batch_end(1)
    assert not model.stop_evaluating
    recorder.control.stop("asked by a test")
    checkpoints.on_test_batch_end(3)
    checkpoints.on_epoch_end(0, logs)
    assert (model.stop_evaluating, logs) == (True, {"loss": 1.0})


def header(**changes: Any) -> Header:
    values: dict[str, Any] = {
        "epoch": 3, "epoch_step": 2, "step": 14, "batches": 14, "elapsed_s": 1.0, "epoch_s": 0.5, "phase": 0,
        "steps_per_epoch": 4, "global_batch": 8, "steps_per_execution": 2, "best": None, "patience": {}, "arrays": (),
    }  # fmt: skip
    return Header(**(values | changes))


@pytest.mark.parametrize(
    ("data", "epoch_step", "batches"),
    [(Data(4, 8), 2, 14), (Data(2, 16), 1, 7), (Data(8, 4), 4, 28), (Data(1, 32), 0, 3), (Data(4, 800), 0, 12)],
)
def test_another_batch_size_goes_on_at_the_same_share_of_the_epoch(data: Any, epoch_step: int, batches: int) -> None:
    at = placed(header(), data)
    assert (at.epoch, at.epoch_step, at.batches, at.step) == (3, epoch_step, batches, 14)


def test_the_newest_two_checkpoints_are_kept(tmp_path: Path) -> None:
    run = create_run("mine", tmp_path)
    numbers = np.arange(6.0, dtype="float32").reshape(2, 3)
    for step in range(5):
        arrays = (SavedArray("trainable", "kernel", numbers.dtype.str, numbers.shape),)
        write_checkpoint(run, header(step=step, arrays=arrays), [numbers])
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["state-000004.ckpt", "state-000005.ckpt"]


def test_a_checkpoint_with_a_type_that_does_not_exist_is_never_chosen(tmp_path: Path) -> None:
    run = create_run("mine", tmp_path)
    numbers = np.zeros(2, dtype="int8")
    write_checkpoint(run, header(arrays=(SavedArray("trainable", "kernel", "<f1", numbers.shape),)), [numbers])
    assert newest_checkpoint(run) is None


def test_a_checkpoint_brings_back_what_a_callback_remembers_but_not_the_file_it_writes(tmp_path: Path) -> None:
    run = create_run("mine", tmp_path)
    recorder = Recorder(run, JournalWriter(run.journal))
    logger = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
    own = OwnCallbacks(recorder, [logger], [{"filename": str(tmp_path / "elsewhere"), "keys": ["loss"]}])
    own.on_train_begin()
    assert (logger.filename, logger.keys) == (str(tmp_path / "log.csv"), ["loss"])


def test_several_hosts_do_not_begin_a_validation_when_they_stop(tmp_path: Path) -> None:
    checkpoints, model, recorder = checkpoints_of(tmp_path, Clock())
    validated = ValidatedEpochs(checkpoints, 1)
    checkpoints.on_epoch_begin(0)
    for _ in range(4):
        model.train_function(None)
    recorder.control.agreed("asked for")  # after the epoch's last step
    assert 1 in validated  # a single host may leave it in the middle
    team: Any = object()
    recorder.team = team
    assert 1 not in validated
