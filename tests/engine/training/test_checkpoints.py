"""When checkpoints are saved, and what a full disk does to them."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers import all_of, epoch_ended, small_config, the
from tests.small_disk import small_disk
from tpu_console.engine.runs.checkpoint import Header, SavedArray, newest_checkpoint, write_checkpoint
from tpu_console.engine.runs.events import CheckpointSaved, Noticed
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.engine.runs.state import best_epoch
from tpu_console.engine.training.checkpoints import Checkpoints, OwnCallbacks, ValidatedEpochs, placed
from tpu_console.engine.training.outputs import BestCheckpoint, Patience


def pipeline(steps_per_epoch: int = 4, global_batch: int = 8) -> Any:
    """What checkpoints need of a pipeline."""
    return SimpleNamespace(steps_per_epoch=steps_per_epoch, global_batch=global_batch)


class Training:
    """Checkpoints of a tiny model in a new run, on a clock that the test sets; each look at it takes a tick."""

    def __init__(
        self, folder: Path, saved: Any = None, rate: float = 0.01, stopping: Any = None, **options: float
    ) -> None:
        self.now, self.tick = 0.0, 0.0
        run = create_run("mine", folder)
        # `os.fsync` is looked up here, because a test replaces it.
        self.recorder = Recorder(run, JournalWriter(run.journal, sync=os.fsync))
        config = small_config(checkpoint={"monitor": "none", **options})
        bridge: Any = SimpleNamespace(seconds=lambda: (1.0, 0.5))
        self.checkpoints = Checkpoints(self.recorder, config, pipeline(), bridge, stopping, saved, self.clock)
        self.model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        self.model.compile(keras.optimizers.SGD(rate), "mse")
        self.model.optimizer.build(self.model.trainable_variables)
        self.model.train_function = lambda _: {}
        self.checkpoints.attach(self.model, 0)

    def clock(self) -> float:
        self.now += self.tick
        return self.now

    def epoch(self, epoch: int, seconds: float = 100.0) -> None:
        self.checkpoints.on_epoch_begin(epoch)
        self.checkpoints.close()
        for _ in range(4):
            self.now += seconds / 4
            self.model.train_function(None)
            self.checkpoints.close()
        self.checkpoints.on_epoch_end(epoch, {})

    @property
    def saved(self) -> Header | None:
        self.checkpoints.close()
        newest = newest_checkpoint(self.recorder.run)
        return None if newest is None else newest[1]

    @property
    def saved_step(self) -> int:
        return 0 if self.saved is None else self.saved.step


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path)


def test_an_epoch_is_saved_when_the_next_one_begins_and_the_last_one_at_the_end(training: Training) -> None:
    for epoch in range(3):
        training.epoch(epoch)
        assert training.saved_step == 4 * epoch
    training.checkpoints.on_train_end()
    assert training.saved_step == 12
    before = {*training.recorder.run.checkpoints.iterdir()}
    training.now += 1e6
    training.checkpoints.on_epoch_begin(3)  # without a step in between
    training.checkpoints.close()
    assert {*training.recorder.run.checkpoints.iterdir()} == before


def test_the_best_weights_of_early_stopping_are_saved_too(tmp_path: Path) -> None:
    patience = Patience(patience=3)
    patience.best, patience.best_weights = 0.5, [np.ones((2, 1)), np.zeros(1)]
    training = Training(tmp_path, stopping=patience)
    training.epoch(0)
    training.checkpoints.on_train_end()
    saved = training.checkpoints.last_good()
    assert saved is not None
    assert [weight.tolist() for weight in saved[1]["best"]] == [[[1.0], [1.0]], [0.0]]
    assert saved[0].patience["best"] == 0.5


@pytest.mark.parametrize(("minutes", "step"), [(10.0, 3), (0.0, 0), (25.0, 2)])
def test_a_long_epoch_is_saved_every_few_minutes_and_not_at_all_if_that_is_switched_off(
    tmp_path: Path, minutes: float, step: int
) -> None:
    training = Training(tmp_path, every_minutes=minutes)
    training.epoch(0, 4 * 601.0)
    assert training.saved_step == step
    if training.saved is not None:
        assert (training.saved.epoch, training.saved.epoch_step) == (0, step)
    training.checkpoints.on_train_end()
    assert training.saved_step == (4 if minutes else 0)


def test_checkpoints_take_no_more_than_their_share_of_the_time(training: Training) -> None:
    saves = []
    training.tick = 0.1  # copying takes as long
    for epoch in range(200):
        before = training.saved_step
        training.epoch(epoch, 1.0)
        saves.append(training.saved_step != before)
    assert 1 < sum(saves) <= 0.02 * training.now / 0.1 + 2


def test_a_full_disk_keeps_the_checkpoint_before(tmp_path: Path) -> None:
    with small_disk(tmp_path, "4m") as disk:
        training = Training(disk.path)
        steps = []
        for epoch, change in enumerate((None, None, disk.fill, None, disk.empty)):
            if change is not None:
                change()
            training.epoch(epoch, 1e4)
            steps.append(training.saved_step)
        assert steps == [3, 7, 7, 7, 19]
        training.recorder.journal.close()
        notice = all_of(training.recorder.run, Noticed)[0].message
        assert "No space" in notice


def test_weights_that_became_nan_are_not_saved(training: Training) -> None:
    training.epoch(0)
    training.checkpoints.on_epoch_begin(1)
    assert training.saved_step == 4
    training.model.trainable_variables[0].assign([[1.0], [np.nan]])
    for epoch in (1, 2):
        training.epoch(epoch)
    training.checkpoints.on_train_end()
    assert training.saved_step == 4
    assert training.checkpoints.save_now()
    training.recorder.journal.close()
    assert "NaN" in the(training.recorder.run, Noticed).message


def test_a_state_can_be_saved_on_request_after_a_step_but_not_before_the_end_of_its_epoch(training: Training) -> None:
    training.checkpoints.on_epoch_begin(0)
    answers = [training.checkpoints.save_now()]
    for _ in range(4):
        training.model.train_function(None)
        answers.append(training.checkpoints.save_now())
    assert training.saved_step == 3
    training.checkpoints.on_epoch_end(0, {})
    answers.append(training.checkpoints.save_now())
    assert answers == ["no step has been done yet", "", "", "", "it can be saved when this epoch has ended", ""]
    assert training.saved_step == 4


def test_of_equal_epochs_the_saved_model_is_that_with_the_lowest_loss(training: Training) -> None:
    run = training.recorder.run
    best = BestCheckpoint(training.recorder, "val_accuracy")
    best.set_model(training.model)
    losses = enumerate([0.5, 0.4, 0.45, 0.4], 1)
    epochs = [epoch_ended(n, {"val_loss": loss, "val_accuracy": 0.9}) for n, loss in losses]
    for epoch in epochs:
        best.on_epoch_end(epoch.epoch - 1, epoch.logs)
    best.on_epoch_end(4, {"loss": np.nan, "val_loss": 0.1, "val_accuracy": 1.0})  # of the steps before
    found = best_epoch(epochs, "val_accuracy", lowest=False)
    assert found is not None
    assert [saved.epoch for saved in all_of(run, CheckpointSaved)] == [1, found.epoch]


def test_the_journal_and_the_configuration_are_durable_before_the_checkpoint_that_goes_on_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[str]()
    monkeypatch.setattr("os.fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name))
    training = Training(tmp_path)
    run = training.recorder.run
    run.config.touch()
    for epoch in range(2):
        training.epoch(epoch)
        training.recorder.emit(epoch_ended(epoch + 1))
    draft = next(name for name in synced if name.startswith(".draft-"))
    assert {"events.jsonl", "config.toml", run.run_id} <= {*synced[: synced.index(draft)]}


@pytest.mark.parametrize(("rate", "resumed"), [(0.01, 0.5), (0.02, 0.02)])
def test_a_resumed_run_keeps_the_learning_rate_unless_its_configuration_changed(
    training: Training, tmp_path: Path, rate: float, resumed: float
) -> None:
    training.model.optimizer.learning_rate = 0.5  # as `tpu-console set` does
    assert training.checkpoints.rate_change() == pytest.approx(50)
    training.epoch(0, 1.0)
    training.checkpoints.on_train_end()
    saved = training.checkpoints.last_good()
    assert saved is not None
    assert float(Training(tmp_path, saved, rate).model.optimizer.learning_rate) == pytest.approx(resumed)
    assert not saved[1], "the arrays would stay in memory"


def test_a_stop_ends_a_validation_which_several_hosts_do_not_even_begin(training: Training) -> None:
    checkpoints, control = training.checkpoints, training.recorder.control
    validated, logs = ValidatedEpochs(checkpoints, 2), {"loss": 1.0, "val_loss": 1.0}
    training.model.stop_evaluating = False
    checkpoints.on_epoch_begin(0)
    assert 2 in validated
    for _ in range(4):
        training.model.train_function(None)
    checkpoints.on_test_batch_end(1)
    assert not training.model.stop_evaluating
    control.agreed("asked by a test")  # after the epoch's last step
    assert [epoch in validated for epoch in (1, 2)] == [False, True]  # a single host may leave it in the middle
    team: Any = object()
    training.recorder.team = team
    assert 2 not in validated
    checkpoints.on_test_batch_end(3)
    checkpoints.on_epoch_end(0, logs)
    assert (training.model.stop_evaluating, logs) == (True, {"loss": 1.0})
    assert "Epoch 1 " in the(training.recorder.run, Noticed).message


def test_an_epoch_that_is_stopped_within_is_saved_there_and_not_validated(training: Training) -> None:
    training.checkpoints.on_epoch_begin(0)
    training.model.train_function(None)
    training.recorder.control.stop("asked by a test")
    assert 1 not in ValidatedEpochs(training.checkpoints, 1)
    training.checkpoints.on_epoch_end(0, {})
    assert training.saved is not None
    assert (training.saved.epoch, training.saved.epoch_step) == (0, 1)


def test_the_rest_of_an_epoch_that_was_begun_before_ends_with_its_last_step(training: Training, tmp_path: Path) -> None:
    training.checkpoints.on_epoch_begin(0)
    for _ in range(2):
        training.model.train_function(None)
    assert not training.checkpoints.save_now()
    again = Training(tmp_path, training.checkpoints.last_good())
    again.checkpoints.on_epoch_begin(0)
    stops = []
    for _ in range(2):
        again.model.train_function(None)
        stops.append(again.model.stop_training)
    again.checkpoints.on_epoch_end(0, {})
    assert (stops, again.model.stop_training) == ([False, True], False)
    assert (again.checkpoints.epoch, again.checkpoints.batches) == (1, 4)
    training.checkpoints.attach(training.model, 1)
    assert training.checkpoints.last_good() is None, "it is of another phase"


def header(**changes: Any) -> Header:
    values: dict[str, Any] = {
        "epoch": 3, "epoch_step": 2, "step": 14, "batches": 14, "elapsed_s": 1.0, "epoch_s": 0.5, "phase": 0,
        "steps_per_epoch": 4, "global_batch": 8, "steps_per_execution": 2, "best": None, "patience": {}, "arrays": (),
    }  # fmt: skip
    return Header(**(values | changes))


@pytest.mark.parametrize(
    ("steps", "batch", "epoch_step", "batches"),
    [(4, 8, 2, 14), (2, 16, 1, 7), (8, 4, 4, 28), (1, 32, 0, 3), (4, 800, 0, 12)],
)
def test_another_batch_size_resumes_at_the_same_fraction_of_the_epoch(
    steps: int, batch: int, epoch_step: int, batches: int
) -> None:
    at = placed(header(), pipeline(steps, batch))
    assert (at.epoch, at.epoch_step, at.batches, at.step) == (3, epoch_step, batches, 14)


def test_the_newest_two_checkpoints_are_kept_and_one_with_an_unknown_type_is_never_chosen(tmp_path: Path) -> None:
    run = create_run("mine", tmp_path)

    def write(step: int, numbers: NDArray[Any], kind: str) -> None:
        arrays = (SavedArray("trainable", "kernel", kind, numbers.shape),)
        write_checkpoint(run, header(step=step, arrays=arrays), [numbers])

    write(1, np.zeros(2, "int8"), "<f1")
    assert newest_checkpoint(run) is None
    for step in range(2, 6):
        write(step, np.zeros((2, 3), "float32"), "<f4")
    assert sorted(path.name for path in run.checkpoints.iterdir()) == ["state-000004.ckpt", "state-000005.ckpt"]


def test_a_checkpoint_brings_back_what_a_callback_remembers_but_not_the_file_it_writes(
    recorder: Recorder, tmp_path: Path
) -> None:
    logger = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
    own = OwnCallbacks(recorder, [logger], [{"filename": str(tmp_path / "elsewhere"), "keys": ["loss"]}])
    own.on_train_begin()
    OwnCallbacks(recorder, [logger], None)  # of a new run
    assert not all_of(recorder.run, Noticed)
    OwnCallbacks(recorder, [logger], [])  # of a run with other callbacks
    assert "start over" in the(recorder.run, Noticed).message
    assert (logger.filename, logger.keys) == (str(tmp_path / "log.csv"), ["loss"])
