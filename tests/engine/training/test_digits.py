"""The embedded preset, trained for real: what it learns, what it reports, what it leaves behind."""

import csv
import itertools
import json
from pathlib import Path

import pytest

from tests.engine.conftest import digits_config
from tests.helpers import all_of, private_mode, report_of, run_forked, the, timed_events_of
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.runs import events
from tpu_console.engine.runs.events import EpochEnded
from tpu_console.engine.runs.facts import facts_of, summarized_facts
from tpu_console.engine.runs.follower import RunFollower, StateReader
from tpu_console.engine.runs.run_directory import RunDirectory

pytestmark = pytest.mark.slow

# A plain process, without this package: what anyone does with a saved model.
EVALUATE = """
import sys
sys.path = [p for p in sys.path if p]
import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
assert "tpu_console" not in sys.modules
images, labels = load_digits(return_X_y=True)
_, x, _, y = train_test_split(images, labels, test_size=0.2, random_state=7, stratify=labels)
for path in sys.argv[1:]:
    model = keras.models.load_model(path)
    predicted = model.predict(x.reshape(-1, 8, 8, 1) / 16.0, verbose=0).argmax(axis=1)
    print(float((predicted == y).mean()))
assert "tpu_console" not in sys.modules
"""


def test_every_phase_is_reported_in_order_and_timed_separately(digits: RunDirectory) -> None:
    told = [event.phase for event in all_of(digits, events.PhaseStarted)]
    *first, loading, building, compiling, training, validating, checkpointing, saving = dict.fromkeys(told)
    assert (first, loading, building) == (["importing", "connecting"], "loading data", "building")
    assert (compiling, training, validating) == ("compiling", "training", "validating")
    assert (checkpointing, saving) == ("checkpointing", "saving")
    assert all(a != b for a, b in itertools.pairwise(told))
    phase_s = RunFollower(digits).catch_up().state.phase_s
    assert phase_s.keys() == {*told}
    assert all(seconds > 0 for seconds in phase_s.values())
    times = timed_events_of(digits)
    assert sum(phase_s.values()) == pytest.approx(times[-1][0] - times[0][0], abs=0.5)


def test_devices_data_model_and_plan_are_reported_once(digits: RunDirectory) -> None:
    assert the(digits, events.AcceleratorReady).replicas[0].index == 0
    data = the(digits, events.DataReady)
    assert data == events.DataReady(1437, 360, (8, 8, 1), 10, 1437 % 16, cache=data.cache, shuffle_buffer=1437)
    assert data.cache.startswith("in memory: 1,797 examples")
    model = the(digits, events.ModelBuilt)
    assert 0 < model.trainable_parameters <= model.parameters == model.weight_bytes / 4
    fit = the(digits, events.FitStarted)
    assert (fit.epochs, fit.steps_per_epoch, fit.global_batch, fit.monitor) == (20, 89, 16, "val_accuracy")
    assert 89 % fit.steps_per_execution == 0
    memory = all_of(digits, events.MemorySampled)[0].replicas[0]
    assert (memory.limit_bytes or 0) > (memory.used_bytes or 0) > 1 << 20


def test_saved_model_and_checkpoint_work_without_this_package(digits: RunDirectory, tmp_path: Path) -> None:
    epochs = all_of(digits, EpochEnded)
    printed = run_forked(EVALUATE, str(digits.model), str(digits.checkpoints / "best.keras"), cwd=tmp_path)
    last, best = (float(line) for line in printed.split())
    assert last == pytest.approx(epochs[-1].logs["val_accuracy"], abs=1e-4)
    assert best == pytest.approx(max(epoch.logs["val_accuracy"] for epoch in epochs), abs=1e-4)
    assert last >= 0.98


def test_the_last_checkpoint_is_of_the_best_epoch(digits: RunDirectory) -> None:
    kept = all_of(digits, events.CheckpointSaved)
    assert [event.value for event in kept] == sorted(event.value for event in kept)
    best = max(all_of(digits, EpochEnded), key=lambda epoch: (epoch.logs["val_accuracy"], -epoch.logs["val_loss"]))
    assert (kept[-1].epoch, kept[-1].value) == (best.epoch, best.logs["val_accuracy"])
    assert (digits.path / kept[-1].path).is_file()


def test_the_summary_is_that_of_the_last_event(digits: RunDirectory) -> None:
    summary = json.loads(digits.summary.read_text(encoding="utf-8"))
    assert summary == the(digits, events.RunFinished).summary | {"facts": summary["facts"]}
    assert summarized_facts(digits) == facts_of(StateReader(digits).catch_up())
    assert [summary[key] for key in ("run", "outcome", "epochs", "steps")] == ["digits-cnn", "completed", 20, 1780]
    assert summary["best"]["val_accuracy"] >= 0.98
    report = report_of(digits)
    assert summary["classes"] == json.loads(json.dumps(report.as_dict()))
    assert report.accuracy == pytest.approx(summary["final"]["val_accuracy"], abs=1e-6)
    assert sum(map(sum, report.matrix)) == report.examples == 360
    assert summary["versions"].keys() >= {"tensorflow", "keras"}


def test_tensorboard_reads_the_event_files(digits: RunDirectory) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    epochs = all_of(digits, EpochEnded)
    for folder, prefix in (("train", ""), ("validation", "val_")):
        accumulator = EventAccumulator(str(digits.tensorboard / folder), size_guidance={"tensors": 0})
        accumulator.Reload()
        for metric in ("loss", "accuracy"):
            points = accumulator.Tensors(f"epoch_{metric}")
            assert [point.step for point in points] == list(range(20))
            values = [float(make_ndarray(point.tensor_proto)) for point in points]
            assert values == pytest.approx([epoch.logs[prefix + metric] for epoch in epochs], rel=1e-5)


def test_progress_and_epochs_are_reported_in_step_and_in_time(digits: RunDirectory) -> None:
    timed = [(at, event) for at, event in timed_events_of(digits) if isinstance(event, events.Progress)]
    # Over all of it: one that is written late on a busy machine comes close to the next.
    assert 10 < len(timed) <= 10 * (timed[-1][0] - timed[0][0]) + 2
    assert all(a.step < b.step and a.elapsed_s < b.elapsed_s for (_, a), (_, b) in itertools.pairwise(timed))
    first, *rest = epochs = all_of(digits, EpochEnded)
    assert [(epoch.epoch, epoch.step, epoch.epoch_steps) for epoch in epochs] == [(n, 89 * n, 89) for n in range(1, 21)]
    assert 0 < first.compile_s <= first.seconds
    for epoch in rest:
        assert epoch.compile_s == 0
        assert 0 < epoch.validation_s < epoch.seconds
        assert epoch.step_ms
        assert epoch.examples_per_s == pytest.approx(16 / epoch.step_ms * 1e3)
    rates = [epoch.learning_rate or 0.0 for epoch in epochs]
    assert rates == sorted(rates, reverse=True)
    assert [rates[0], rates[-1]] == pytest.approx([0.002, 0.00002], rel=0.01)


def test_its_files_are_whole_and_private_and_hold_what_its_events_say(digits: RunDirectory) -> None:
    files = "config.toml events.jsonl console.log heartbeat.json model.keras history.csv summary.json report.json"
    folders = "control checkpoints tensorboard"
    assert {path.name for path in digits.path.iterdir()} == {*files.split(), "mistakes.json", *folders.split()}
    assert list(digits.control.iterdir()) == []
    names = sorted(path.name.partition("-")[0] for path in digits.checkpoints.iterdir())
    assert names == ["best.keras", "state", "state"]
    for path in (digits.path, *digits.path.rglob("*")):
        assert private_mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert load_config(digits.config) == digits_config()
    assert the(digits, events.RunStarted).config == digits_config().model_dump(mode="json")
    table = list(csv.DictReader(digits.history.open(encoding="utf-8")))
    epochs = all_of(digits, EpochEnded)
    for name in ("loss", "val_accuracy", "epoch", "seconds", "compile_s", "learning_rate"):
        told = [epoch.logs[name] if name in epoch.logs else getattr(epoch, name) for epoch in epochs]
        assert [float(row[name]) for row in table] == pytest.approx(told)
