"""Two phases in one run: a frozen base first, then its layers as well, with everything else going on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest

from tests import saved_models
from tests.helpers import Host, all_of, run_host, small_config, the, wait_until
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import ConfigError, DataError
from tpu_console.engine.models.build import build_model, training_phases, unfreeze
from tpu_console.engine.runs.events import CheckpointSaved, EpochEnded, FitStarted, Noticed, RunFinished
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.training.outputs import Patience

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpu_console.engine.config.run_config import RunConfig

SIGNATURE = Signature(Task.CLASSES, {"image": Input((32, 32, 3))}, 3)


@pytest.fixture
def colors(tmp_path: Path) -> str:
    """A dataset of one's own, of pictures that are large enough."""
    (tmp_path / "colors.py").write_text(saved_models.COLORS, encoding="utf-8")
    return f"{tmp_path / 'colors.py'}:colors"


def two_phases(dataset: str, **changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "dataset": dataset,
        "model": "application",
        "model_options": {"name": "MobileNet", "weights": "none"},
        "epochs": 4,
        "fine_tuning": {"after_epochs": 2, "from_layer": -12, "learning_rate": 1e-4},
        "checkpoint": {"monitor": "auto"},
        "sinks": ["tensorboard"],
    }
    return small_config(**(values | changes))


@pytest.mark.slow
def test_the_second_phase_continues_where_the_first_ended(colors: str, tmp_path: Path) -> None:
    hub = {"model": "hub", "model_options": {"path": saved_models.reusable(tmp_path / "saved")}}
    tuning = {"after_epochs": 2, "learning_rate": 1e-4}
    rate = {"learning_rate": 0.01}
    config = two_phases(colors, **hub, fine_tuning=tuning, batch_size=24, steps_per_execution=2, optimizer=rate)
    run = run_host(config, tmp_path / "runs")
    assert the(run, RunFinished).outcome == "completed", run.log.read_text()[-2000:]
    epochs = all_of(run, EpochEnded)
    assert [epoch.epoch for epoch in epochs] == [1, 2, 3, 4]
    assert [epoch.step for epoch in epochs] == [4, 8, 12, 16]
    assert [epoch.learning_rate for epoch in epochs] == pytest.approx([0.01, 0.01, 1e-4, 1e-4])
    # Each phase compiles in its first epoch, which is timed apart.
    assert [epoch.compile_s > 0 for epoch in epochs] == [True, False, True, False]
    (switch,) = [notice.message for notice in all_of(run, Noticed) if "Fine-tuning begins" in notice.message]
    assert "0.0001" in switch
    started = all_of(run, FitStarted)
    assert [fit.epochs for fit in started] == [4, 4]
    state = RunFollower(run).catch_up().state
    assert state.steps_total == 16
    assert len(state.epochs) == 4
    # TensorBoard files of both phases, none refused.
    assert not any("TensorBoard" in notice for notice in state.notices)
    assert len(list((run.path / "tensorboard" / "train").iterdir())) == 2
    assert all_of(run, CheckpointSaved)
    assert json.loads(run.summary.read_text())["epochs"] == 4


@pytest.mark.slow
def test_a_hub_model_is_fine_tuned_as_a_whole_on_two_replicas_until_it_is_stopped(
    colors: str, tmp_path: Path, start: Callable[..., Host]
) -> None:
    hub = {"model": "hub", "model_options": {"path": saved_models.reusable(tmp_path / "saved")}}
    tuning = {"after_epochs": 2, "learning_rate": 0.01}
    devices = {"accelerator": "sim:2", "batch_size": 12}
    host = start(two_phases(colors, **hub, **devices, epochs=100_000, fine_tuning=tuning), forked=True)
    wait_until(lambda: any(ended.epoch >= 4 for ended in all_of(host.run, EpochEnded)), "an epoch of the phase")
    host.send(15)
    host.wait()
    assert the(host.run, RunFinished).outcome == "stopped"
    assert any("the 1 weights" in notice.message for notice in all_of(host.run, Noticed))
    model = keras.models.load_model(host.run.model, safe_mode=False, compile=False)
    kernel = next(weight for weight in model.get_layer("features").weights if "kernel" in weight.name)
    assert np.abs(kernel.numpy() - saved_models.weights()).max() > 1e-3


def test_phases_share_the_epochs_and_each_has_its_rate(colors: str) -> None:
    config = two_phases(colors, optimizer={"learning_rate": 0.5, "schedule": "cosine"})
    first, second = training_phases(config)
    assert (first.config.epochs, first.last_epoch, first.config.optimizer.learning_rate) == (2, 2, 0.5)
    assert (second.config.epochs, second.last_epoch, second.config.optimizer.learning_rate) == (2, 4, 1e-4)
    assert second.config.optimizer.schedule == "cosine"
    (only,) = training_phases(two_phases(colors, fine_tuning={}))
    assert (only.last_epoch, only.is_fine_tuning) == (4, False)


def test_a_layer_that_does_not_exist_is_refused(colors: str) -> None:
    config = two_phases(colors, fine_tuning={"after_epochs": 1, "from_layer": -100})
    with pytest.raises(DataError, match=r"fine_tuning.from_layer is -100, but .* has 87 layers"):
        unfreeze(build_model(config, SIGNATURE), config)


def test_the_base_is_found_behind_layers_of_augmentation(colors: str) -> None:
    config = two_phases(colors)
    model = build_model(config, SIGNATURE)
    inputs = keras.Input((32, 32, 3))
    wrapped = keras.Model(inputs, model(keras.layers.RandomFlip()(inputs)), name=model.name)
    assert "8 of the 87 layers" in unfreeze(wrapped, config)
    assert len(wrapped.trainable_weights) == len(model.trainable_weights) > 2


def test_patience_remembers_the_best_epoch_of_an_earlier_fit() -> None:
    x, y = np.ones((4, 1), np.float32), np.zeros((4, 1), np.float32)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
    patience = Patience(monitor="loss", patience=3, restore_best_weights=True)
    model.compile(keras.optimizers.SGD(0.1), "mse")
    model.fit(x, y, epochs=3, callbacks=[patience], verbose=0)
    best = patience.best
    model.compile(keras.optimizers.SGD(-0.5), "mse")  # away from the goal
    model.fit(x, y, epochs=2, callbacks=[patience], verbose=0)
    assert patience.best <= best < 0.5
    assert model.evaluate(x, y, verbose=0) < 0.5


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"model": "cnn", "model_options": {}}, "after_epochs"),
        ({"epochs": 2}, "after_epochs"),
        ({"model_options": {"trainable": "all"}}, "after_epochs"),
        ({"model": "hub", "model_options": {"path": "x"}}, "from_layer"),
    ],
)
def test_impossible_fine_tuning_is_refused_at_the_start(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(two_phases("digits").model_dump(mode="json") | changes)
    assert [problem.key for problem in caught.value.problems] == [f"fine_tuning.{key}"]
