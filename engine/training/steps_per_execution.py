"""Chooses `steps_per_execution`: enough to hide Python's time, few enough for curves to move and stops to be quick."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

TARGET_S = 0.3
_LONGEST_S = 3.0  # only reached when an epoch's length has no divisor nearer to the target
_FEWEST_STEPS, _TIMED_STEPS = 2, 20
_TIMED_S = 0.1
_LARGEST_STATE = 1 << 28  # values, a gigabyte of float32


def steps_for(step_s: float, steps_per_epoch: int) -> tuple[int, str]:
    """Choose a divisor of the epoch's length by the time of one step: Keras always runs whole executions."""
    wanted = TARGET_S / max(step_s, 1e-6)
    divisors = [n for n in range(1, steps_per_epoch + 1) if steps_per_epoch % n == 0]
    allowed = [n for n in divisors if n * step_s <= _LONGEST_S] or [1]
    steps = min(allowed, key=lambda n: abs(math.log(n / wanted)))
    together = f", {steps} steps take {steps * step_s:.2f} s" if steps > 1 else ""
    return steps, f"auto: a step takes {step_s * 1e3:.1f} ms{together}"


def choose_execution(
    model: Any,
    asked: int | str,
    steps_per_epoch: int,
    batches: Any,
    variables: Sequence[Any],
    one_step_reason: str = "",
) -> tuple[int, str]:
    """Choose the steps per execution, and say why; for "auto", the compiled model is timed on a few steps and restored.

    `batches` is an endless dataset of training batches; `variables` are those that `build_ahead` returned.
    `one_step_reason` says why the framework runs a single step whatever is asked for.
    """
    if one_step_reason:
        ignored = asked not in {"auto", 1}
        return 1, f"{one_step_reason}, so {asked} is ignored" if ignored else f"auto: {one_step_reason}"
    if isinstance(asked, int):
        ran = -(-steps_per_epoch // asked) * asked
        if asked > steps_per_epoch:
            return steps_per_epoch, f"asked for {asked}, more than the {steps_per_epoch} steps of an epoch"
        uneven = f"; {steps_per_epoch} steps do not divide by {asked}, so Keras runs {ran} per epoch"
        return asked, f"asked for{uneven if ran != steps_per_epoch else ''}"
    if steps_per_epoch == 1:
        return 1, "auto: an epoch has a single step"
    if model.run_eagerly:
        return 1, "auto: the model runs eagerly"
    if sum(math.prod(variable.shape) for variable in variables) > _LARGEST_STATE:
        return 1, "auto: a step of a model this large takes long enough"
    steps, reason = steps_for(_time_step(model, batches, variables), steps_per_epoch)
    if steps > 1:
        model.train_function = None  # it was traced for one step at a time
    return steps, reason


def _time_step(model: Any, batches: Any, variables: Sequence[Any]) -> float:
    """Time real training steps, then restore every variable, so that the run starts unchanged."""
    import keras

    def wait_for(logs: Any) -> None:  # until the device has computed them
        for value in keras.tree.flatten(logs):
            keras.ops.convert_to_numpy(value)

    before = [variable.numpy() for variable in variables]
    model.make_train_function()
    step = model.train_function
    iterator = iter(batches)
    wait_for(step(iterator))
    began, done = time.perf_counter(), 0
    while done < _FEWEST_STEPS or (done < _TIMED_STEPS and time.perf_counter() - began < _TIMED_S):
        logs = step(iterator)
        done += 1
    wait_for(logs)
    seconds = (time.perf_counter() - began) / done
    for variable, value in zip(variables, before, strict=True):
        variable.assign(value)
    model.reset_metrics()
    return seconds
