"""Where the time of a step goes, in real traces of runs that are slow for a known reason; see also test_input_rate."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import all_of, run_forked, run_host, small_config, the
from tpu_console.engine.runs.events import Alerted, Compiled, EpochEnded, Profiled, RunFinished, Spent, Steered
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs

pytestmark = pytest.mark.slow

CODE = """
import time
import keras, numpy as np, tensorflow as tf

class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.2 if batch < 5 else 0.0)  # so long that it is the cause on a busy machine, too

def slow_callback():
    return Slow()

class Stops(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        try:
            tf.profiler.experimental.stop(save=False)
        except tf.errors.UnavailableError:
            pass

def stops_the_profiler():
    return Stops()

def words():
    rows = tf.data.Dataset.from_tensor_slices((np.arange(192 * 4).reshape(192, 4), np.arange(192) % 3))
    return rows, rows.take(32)

def large_table(shape, classes):
    layers = [keras.Input(shape, dtype="int32"), keras.layers.Embedding(400_000, 16, name="table")]
    return keras.Sequential([*layers, keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(classes, "softmax")])
"""
CNN = {"filters": [8, 16], "hidden": [32], "padding": "same"}


def train(folder: Path, **changes: Any) -> RunDirectory:
    (folder / "mine.py").write_text(CODE, encoding="utf-8")
    run = run_host(small_config(**{"profile": {"at": 2, "steps": 3}} | changes), folder / "runs")
    assert all_of(run, RunFinished), run.log.read_text(errors="replace")[-3000:]
    return run


def profiled(folder: Path, **changes: Any) -> tuple[RunDirectory, Profiled]:
    run = train(folder, **changes)
    found = the(run, Profiled)
    assert found.problem == ""
    assert 1 <= found.steps <= 3
    assert sum(found.spent.values()) == pytest.approx(found.step_s)
    return run, found


def cause(found: Profiled) -> str:
    return max(found.spent, key=lambda name: found.spent[name])


@pytest.mark.parametrize(("backend", "accelerator"), [("tensorflow", "cpu"), ("jax", "sim:2")])
def test_computing_is_told_by_layer(backend: str, accelerator: str, tmp_path: Path) -> None:
    run, found = profiled(
        tmp_path, model="cnn", model_options=CNN, batch_size=64, backend=backend, accelerator=accelerator
    )
    alone = found.spent[Spent.COMPUTING]
    assert sum(found.layers.values()) == pytest.approx(alone, rel=0.05)
    assert sum(found.operations.values()) == pytest.approx(alone, rel=0.05)
    assert found.layers.get("", 0.0) < 0.1 * alone
    assert {"conv2d", "conv2d_1", "dense", found.optimizer} <= found.layers.keys()
    assert (found.spent[Spent.EXCHANGE] > 0) == (accelerator == "sim:2")
    assert [event.refused for event in all_of(run, Steered)] == [""]
    assert (run.path / found.trace).is_file()


def test_a_slow_callback_is_named_and_its_steps_are_not_timed(tmp_path: Path) -> None:
    run, found = profiled(
        tmp_path, callbacks=[f"{tmp_path}/mine.py:slow_callback"], profile={"at": 1, "steps": 3}, batch_size=128
    )
    assert cause(found) == Spent.CALLBACKS
    assert found.callbacks["Slow"] >= 0.05
    assert the(run, EpochEnded).step_ms


def test_a_profiler_that_fails_does_not_end_the_run(tmp_path: Path) -> None:
    # What the callback does, another tool in the process may do.
    run = train(tmp_path, callbacks=[f"{tmp_path}/mine.py:stops_the_profiler"])
    assert the(run, Profiled).problem
    assert the(run, RunFinished).outcome == "completed"


def test_the_optimizer_of_a_large_table_is_the_cause(tmp_path: Path) -> None:
    mine = f"{tmp_path}/mine.py"
    _, found = profiled(tmp_path, dataset=f"{mine}:words", model=f"{mine}:large_table", model_options={})
    assert (cause(found), next(iter(found.layers))) == (Spent.COMPUTING, found.optimizer)
    assert found.weights["table"] > 0.99


RAGGED = """
import keras, numpy as np
from tpu_console import BridgeCallback

class Batches(keras.utils.PyDataset):
    epoch = 0
    def __len__(self):
        return 3
    def __getitem__(self, index):
        rows = 4 if index == 2 else 8
        return np.ones((rows, WIDTH if self.epoch < 2 else 4), "float32"), np.zeros(rows)
    def on_epoch_end(self):  # Keras also calls it before the first epoch
        self.epoch += 1

keras.utils.set_random_seed(1)
mean = keras.layers.Lambda(lambda rows: keras.ops.mean(rows, -1, keepdims=True))
model = keras.Sequential([keras.Input((None,)), mean, keras.layers.Dense(3, "softmax")])
model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=JIT)
rows, labels = np.ones((8, 4), "float32"), np.zeros(8)
named = {"validation_data": (rows, labels), "epochs": 3, "shuffle": False, "verbose": 0}
model.fit(Batches(), **named, callbacks=[BridgeCallback("ragged")])
model.evaluate(rows[:7], labels[:7], verbose=0)
"""


def ragged(folder: Path, *, width: int, jit: bool, backend: str = "tensorflow") -> RunDirectory:
    code = RAGGED.replace("WIDTH", str(width)).replace("JIT", str(jit))
    run_forked(code, cwd=folder, env={"KERAS_BACKEND": backend})
    (run,) = list_runs(folder / "runs")
    return run


@pytest.mark.parametrize(("backend", "width"), [("jax", 6), ("tensorflow", 4)])
def test_each_compilation_is_reported_with_the_batch_that_caused_it(backend: str, width: int, tmp_path: Path) -> None:
    run = ragged(tmp_path, width=width, jit=True, backend=backend)
    first, *again, validated = sorted(all_of(run, Compiled), key=lambda one: one.is_validation)
    assert (first.part, first.before, first.batch) == ("", "", f"float32[8,{width}]")
    assert (again[0].part, again[0].before, again[0].batch) == ("inputs", first.batch, f"float32[4,{width}]")
    assert {one.batch for one in again[1:]} == ({"float32[8,4]", "float32[4,4]"} if width != 4 else set())
    assert all(one.seconds > 0 for one in (first, *again))
    assert {one.is_cached for one in (first, *again)} == {False if backend == "jax" else None}
    assert (validated.part, validated.batch) == ("", "float32[8,4]")
    assert [(one.kind, one.epoch > 1) for one in all_of(run, Alerted)] == [("compilation", True)] * (width != 4)


def test_tensorflow_traces_a_step_once_for_batches_of_any_length(tmp_path: Path) -> None:
    found = all_of(ragged(tmp_path, width=4, jit=False), Compiled)
    assert [(one.is_validation, one.part, one.is_cached) for one in found] == [(False, "", None), (True, "", None)]
