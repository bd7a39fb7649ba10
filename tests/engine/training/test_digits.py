"""The embedded preset, trained for real: what it learns, what it reports, what it leaves behind."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from tests.engine.conftest import digits_config
from tests.helpers import LIMIT_S, all_of, events_of, private_mode, run_forked, the, timed_events_of
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.process.launch import prepare_run, start_host
from tpu_console.engine.runs.events import (
    AcceleratorReady,
    CheckpointSaved,
    DataReady,
    EpochEnded,
    FitStarted,
    MemorySampled,
    ModelBuilt,
    PhaseStarted,
    Progress,
    RunFinished,
    RunStarted,
)
from tpu_console.engine.runs.facts import facts_of, summarized_facts
from tpu_console.engine.runs.follower import RunFollower, StateReader
from tpu_console.engine.runs.heartbeat import Liveness
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from pathlib import Path

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
assert "engine" not in sys.modules
images, labels = load_digits(return_X_y=True)
_, x, _, y = train_test_split(images, labels, test_size=0.2, random_state=7, stratify=labels)
for path in sys.argv[1:]:
    model = keras.models.load_model(path)
    predicted = model.predict(x.reshape(-1, 8, 8, 1) / 16.0, verbose=0).argmax(axis=1)
    print(float((predicted == y).mean()))
assert "engine" not in sys.modules
"""


def test_it_reaches_the_stated_accuracy(digits: RunDirectory) -> None:
    end = the(digits, RunFinished)
    assert end.outcome == "completed"
    assert end.summary["final"]["val_accuracy"] >= 0.98


def test_a_run_begins_and_ends_with_the_right_events(digits: RunDirectory) -> None:
    events = events_of(digits)
    assert isinstance(events[0], RunStarted)
    assert (events[0].label, events[0].source) == ("digits-cnn", "host")
    assert isinstance(events[-1], RunFinished)
    assert RunFollower(digits).catch_up().liveness is Liveness.DEAD


def test_every_phase_is_reported_in_order_and_timed_separately(digits: RunDirectory) -> None:
    told = [event.phase for event in all_of(digits, PhaseStarted)]
    first_seen = list(dict.fromkeys(told))
    assert first_seen == [
        "importing",
        "connecting",
        "loading data",
        "building",
        "compiling",
        "training",
        "validating",
        "checkpointing",
        "saving",
    ]
    assert all(a != b for a, b in itertools.pairwise(told))
    phase_s = RunFollower(digits).catch_up().state.phase_s
    assert phase_s.keys() == set(first_seen)
    assert all(seconds > 0 for seconds in phase_s.values())
    times = timed_events_of(digits)
    assert sum(phase_s.values()) == pytest.approx(times[-1][0] - times[0][0], abs=0.5)


def test_the_built_model_is_reported_once(digits: RunDirectory) -> None:
    assert the(digits, AcceleratorReady).replicas[0].index == 0
    data = the(digits, DataReady)
    assert data == DataReady(1437, 360, (8, 8, 1), 10, 1437 % 16, cache=data.cache, shuffle_buffer=1437)
    assert data.cache.startswith("in memory: 1,797 examples")
    model = the(digits, ModelBuilt)
    assert 0 < model.trainable_parameters <= model.parameters
    assert model.weight_bytes == 4 * model.parameters
    fit = the(digits, FitStarted)
    assert (fit.epochs, fit.steps_per_epoch, fit.global_batch, fit.monitor) == (20, 89, 16, "val_accuracy")
    assert 89 % fit.steps_per_execution == 0
    memory = all_of(digits, MemorySampled)[0].replicas[0]
    assert memory.used_bytes
    assert memory.limit_bytes
    assert memory.limit_bytes > memory.used_bytes > 1 << 20


def test_progress_is_written_at_most_ten_times_a_second(digits: RunDirectory) -> None:
    times = [at for at, event in timed_events_of(digits) if isinstance(event, Progress)]
    assert len(times) > 10
    # Over all of it: one that is written late on a busy machine comes close to the next.
    assert len(times) <= 10 * (times[-1] - times[0]) + 2


def test_steps_and_times_only_grow(digits: RunDirectory) -> None:
    progress = all_of(digits, Progress)
    assert all(a.step < b.step and a.elapsed_s < b.elapsed_s for a, b in itertools.pairwise(progress))
    epochs = all_of(digits, EpochEnded)
    assert [(e.epoch, e.step, e.epoch_steps) for e in epochs] == [(n, 89 * n, 89) for n in range(1, 21)]


def test_compiling_is_timed_apart_in_the_first_epoch_only(digits: RunDirectory) -> None:
    first, *rest = all_of(digits, EpochEnded)
    assert 0 < first.compile_s <= first.seconds
    assert {epoch.compile_s for epoch in rest} == {0.0}
    assert all(0 < epoch.validation_s < epoch.seconds for epoch in rest)
    for epoch in rest:
        assert epoch.step_ms is not None
        assert epoch.examples_per_s == pytest.approx(16 / epoch.step_ms * 1e3)


def test_the_learning_rate_follows_its_schedule_to_the_end(digits: RunDirectory) -> None:
    rates = [epoch.learning_rate or 0.0 for epoch in all_of(digits, EpochEnded)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == pytest.approx(0.002, rel=0.01)
    assert rates[-1] == pytest.approx(0.002 * 0.01, rel=0.01)


def test_saved_model_and_checkpoint_work_without_this_package(digits: RunDirectory, tmp_path: Path) -> None:
    epochs = all_of(digits, EpochEnded)
    printed = run_forked(EVALUATE, str(digits.model), str(digits.checkpoints / "best.keras"), cwd=tmp_path)
    last, best = (float(line) for line in printed.split())
    assert last == pytest.approx(epochs[-1].logs["val_accuracy"], abs=1e-4)
    assert best == pytest.approx(max(epoch.logs["val_accuracy"] for epoch in epochs), abs=1e-4)
    assert last >= 0.98


def test_the_last_checkpoint_is_of_the_best_epoch(digits: RunDirectory) -> None:
    kept = all_of(digits, CheckpointSaved)
    values = [event.value for event in kept]
    assert values == sorted(values)
    best = max(all_of(digits, EpochEnded), key=lambda epoch: (epoch.logs["val_accuracy"], -epoch.logs["val_loss"]))
    assert (kept[-1].epoch, kept[-1].value) == (best.epoch, best.logs["val_accuracy"])
    assert (digits.path / kept[-1].path).is_file()


def test_the_history_is_a_table_with_the_values_of_the_events(digits: RunDirectory) -> None:
    import pandas as pd

    table = pd.read_csv(digits.history)
    epochs = all_of(digits, EpochEnded)
    assert table["epoch"].tolist() == list(range(1, 21))
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert table[name].tolist() == pytest.approx([epoch.logs[name] for epoch in epochs])
    for name in ("seconds", "compile_s", "step_ms", "examples_per_s", "learning_rate"):
        expected = [getattr(epoch, name) for epoch in epochs]
        assert table[name].tolist() == pytest.approx(
            [value if value is not None else float("nan") for value in expected], nan_ok=True
        )


def test_the_summary_is_that_of_the_last_event(digits: RunDirectory) -> None:
    summary = json.loads(digits.summary.read_text(encoding="utf-8"))
    assert summary == the(digits, RunFinished).summary | {"facts": summary["facts"]}
    assert summarized_facts(digits) == facts_of(StateReader(digits).catch_up())
    assert (summary["run"], summary["outcome"], summary["epochs"], summary["steps"]) == (
        "digits-cnn",
        "completed",
        20,
        1780,
    )
    assert summary["best"]["val_accuracy"] >= 0.98
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


def test_everything_is_private_to_the_user(digits: RunDirectory) -> None:
    for path in (digits.path, *digits.path.rglob("*")):
        assert private_mode(path) == (0o700 if path.is_dir() else 0o600), path


def test_the_run_keeps_its_configuration(digits: RunDirectory) -> None:
    config = digits_config()
    assert load_config(digits.config) == config
    assert the(digits, RunStarted).config == config.model_dump(mode="json")


def test_nothing_unfinished_is_left_behind(digits: RunDirectory) -> None:
    assert {path.name for path in digits.path.iterdir()} == {
        "config.toml",
        "events.jsonl",
        "console.log",
        "heartbeat.json",
        "control",
        "checkpoints",
        "tensorboard",
        "model.keras",
        "history.csv",
        "summary.json",
        "report.json",
        "mistakes.json",
    }
    assert list(digits.control.iterdir()) == []
    names = sorted(path.name.partition("-")[0] for path in digits.checkpoints.iterdir())
    assert names == ["best.keras", "state", "state"]


def test_output_of_native_code_goes_to_the_log(tmp_path: Path) -> None:
    mine = tmp_path / "noisy.py"
    mine.write_text(
        "import os\n\ndef make(shape, classes):\n    os.write(2, b'from native code\\n')\n    print('from Python')\n"
        "    raise SystemExit('no model today')\n",
        encoding="utf-8",
    )
    config = find_preset("digits-cnn").config.model_copy(update={"model": f"{mine}:make", "model_options": {}})
    run = prepare_run(config, tmp_path / "runs")
    process = start_host(run)
    assert process.wait(LIMIT_S) == 1
    log = run.log.read_text(encoding="utf-8")
    assert "from native code\n" in log
    assert "from Python\n" in log
    assert "no model today" in log
