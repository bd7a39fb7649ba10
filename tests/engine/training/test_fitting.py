"""How many steps are in an execution, and that finding out changes nothing about the run."""

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tpu_console.engine.accelerators.backend import FRAMEWORKS
from tpu_console.engine.models.compile import build_ahead
from tpu_console.engine.training.fitting import choose_execution, steps_for


@pytest.mark.parametrize("step_s", [1e-7, 1e-4, 0.002, 0.01, 0.1, 0.5, 2.0])
@pytest.mark.parametrize("steps", [1, 7, 44, 60, 89, 97, 300, 480, 1000])
def test_only_whole_executions_of_at_most_three_seconds_are_chosen(step_s: float, steps: int) -> None:
    chosen, reason = steps_for(step_s, steps)
    assert steps % chosen == 0
    assert chosen * step_s <= 3.0 or chosen == 1
    assert chosen == 1 or f"{chosen} steps take" in reason


@pytest.mark.parametrize(
    ("step_s", "steps", "chosen"),
    [
        (0.001, 300, 300),
        (0.001, 10_000, 250),
        (0.01, 60, 30),
        (0.1, 60, 3),
        (0.29, 60, 1),
        (5.0, 60, 1),
        (0.01, 97, 97),
        (1.0, 3, 1),
        (0.031, 97, 1),  # 97 steps would take 3.007 s
        (0.03, 97, 97),
    ],
)
def test_the_divisor_nearest_to_the_target_of_0_3_seconds_is_chosen(step_s: float, steps: int, chosen: int) -> None:
    assert steps_for(step_s, steps)[0] == chosen


@pytest.fixture(autouse=True)
def _plain_policy() -> Iterator[None]:
    yield
    keras.config.set_dtype_policy("float32")


def model_of(policy: str = "float32", optimizer: str = "adam") -> Any:
    """A small compiled model with state of every kind: weights, moving averages, seeds, metrics."""
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(policy)
    layers = keras.layers
    hidden = [layers.Dense(8), layers.BatchNormalization(), layers.Dropout(0.5)]
    model = keras.Sequential([keras.Input((4,)), *hidden, layers.Dense(3, "softmax", dtype="float32")])
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def chosen_for(model: Any, asked: int | str, steps: int) -> Any:
    x = np.random.default_rng(1).normal(size=(16, 4)).astype("float32")
    batches = tf.data.Dataset.from_tensors((x, np.arange(16) % 3)).repeat()
    built = build_ahead(model, batches, 16, in_trace=True, is_new=True)
    before = [variable.numpy() for variable in built]
    chosen = choose_execution(model, asked, steps, batches, built)
    assert all(np.array_equal(old, new.numpy()) for old, new in zip(before, built, strict=True))
    return chosen


def values_of(model: Any) -> list[Any]:
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    return [v.numpy() for v in (*model.variables, *model.optimizer.variables, *inner.variables)]


@pytest.mark.parametrize(("policy", "optimizer"), [("float32", "adam"), ("mixed_float16", "sgd")])
def test_timing_leaves_every_variable_as_it_was_bit_for_bit(policy: str, optimizer: str) -> None:
    model = model_of(policy, optimizer)
    model.optimizer.build(model.trainable_variables)
    before = values_of(model)
    assert chosen_for(model, "auto", 20)[1].startswith("auto: a step takes")
    after = values_of(model)
    assert len(before) == len(after) > 10
    assert all(np.array_equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("asked", "steps_per_epoch", "steps", "reason"),
    [
        (4, 20, 4, "asked for"),
        (1, 20, 1, "asked for"),
        (50, 20, 20, "50, more than the 20"),
        (6, 20, 6, "runs 24"),
        ("auto", 1, 1, "a single step"),
    ],
)
def test_the_requested_steps_are_used_or_the_difference_is_reported(
    asked: int | str, steps_per_epoch: int, steps: int, reason: str
) -> None:
    chosen, why = chosen_for(model_of(), asked, steps_per_epoch)
    assert chosen == steps
    assert reason in why
    assert ("runs" in why) == (asked == 6)


@pytest.mark.parametrize(("framework", "replicas", "why"), [("tensorflow", 2, "keras#19246"), ("jax", 1, "JAX")])
@pytest.mark.parametrize("asked", [1, 8, "auto"])
def test_several_replicas_and_jax_take_one_step_at_a_time_and_say_why(
    asked: int | str, framework: str, replicas: int, why: str
) -> None:
    steps, reason = choose_execution(None, asked, 20, None, [], FRAMEWORKS[framework].one_step_reason(replicas))
    assert steps == 1
    assert why in reason
    assert ("so 8 is ignored" in reason) == (asked == 8)
