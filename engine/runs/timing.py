"""The speed and the remaining time of a run, and whether it stalls, from its state."""

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from .events import EpochEnded, Phase
from .state import RunState

_RECENT_POINTS, _RECENT_EPOCHS = 50, 10
_NEWEST_EPOCHS = 100  # that `validating_share` looks at; few, because plain lines ask after each epoch

# A stall takes at least this many seconds, executions and times the longest gap so far, which may include compilation.
STALL_S, _STALL_STEPS, _STALL_GAPS = 60.0, 20, 5


class Pace(Struct, frozen=True):
    """Speed and remaining time."""

    step_ms: float | None = None  # milliseconds per training step, without compilation and validation; None if unknown
    examples_per_s: float | None = None  # examples per second over all replicas; None if unknown
    run_left_s: float | None = None  # seconds until the last epoch is done, with validation; None if unknown


def pace(state: RunState) -> Pace:
    """Return the pace, from the last epochs and the last progress.

    The first execution does not count, because it includes compilation: see `engine.runs.events.EpochEnded`. What is
    left of the run follows from whole epochs, with their validation and saving, once one has ended.
    """
    step_ms, fit, progress = _step_ms(state), state.fit, state.progress
    if step_ms is None or fit is None or progress is None or state.end is not None:
        return Pace(step_ms)
    examples_per_s = fit.global_batch / step_ms * 1e3 if fit.global_batch else None
    if (steps := fit.steps_per_epoch) is None:
        return Pace(step_ms, examples_per_s)
    ended = state.epochs[-1].epoch if state.epochs else 0
    in_epoch = 0 if progress.epoch <= ended else min(progress.epoch_step, steps)
    epoch_s = training_s = steps * step_ms / 1e3
    if last := state.epochs[-_RECENT_EPOCHS:]:
        # Several, so that an epoch without validation, or a slow one, does not change much. The first one of the run
        # counts, if it was validated, only while there is no other: its validation is compiled.
        if len(last) > 1 and last[0].epoch == 1 and last[0].validation_s:
            last = last[1:]
        epoch_s = (last[0].seconds - last[0].compile_s + last[-1].elapsed_s - last[0].elapsed_s) / len(last)
        training_s = max(0.0, epoch_s - sum(one.validation_s for one in last) / len(last))
    left_s = (fit.epochs - ended) * epoch_s - in_epoch / steps * training_s
    return Pace(step_ms, examples_per_s, max(0.0, left_s))


class Stall(Struct, frozen=True):
    """Training without a step for far longer than usual."""

    seconds: int  # whole seconds since the last step
    usual_s: float  # seconds that an execution, which may be several steps, usually takes


def stall(state: RunState, at: float) -> Stall | None:
    """Return how long training has made no step, if that is far longer than ever before in this run; else None.

    Only the training phase counts, which begins after the first execution, and not the gap between the first and the
    second epoch, because its usual length is unknown. `at` is Unix time on the clock of the machine that trains, such
    as the newest heartbeat's.
    """
    progress, fit, step_ms = state.progress, state.fit, _step_ms(state)
    if state.phase != Phase.TRAINING or state.end is not None or progress is None or fit is None or step_ms is None:
        return None
    times = state.train.elapsed_s.values
    if not len(times) or (len(state.epochs) == 1 and state.epochs[0].epoch >= progress.epoch):
        return None
    seconds = at - max(state.progress_at, state.phase_since)
    usual_s = step_ms / 1e3 * max(1, fit.steps_per_execution)
    shortest_s = max(STALL_S, _STALL_STEPS * usual_s, _STALL_GAPS * float(np.diff(times, prepend=0.0).max()))
    return Stall(int(seconds), usual_s) if seconds >= shortest_s else None


def validating_share(epochs: Sequence[EpochEnded]) -> float | None:
    """Return the share of the newest epochs' time that validation took; None before the second: the first compiles."""
    newest = epochs[max(1, len(epochs) - _NEWEST_EPOCHS) :]
    seconds = sum(ended.seconds for ended in newest)
    return min(1.0, sum(ended.validation_s for ended in newest) / seconds) if seconds > 0 else None


def _step_ms(state: RunState) -> float | None:
    """Return the time of a step in the current epoch's recent points, or else in the last epoch that was timed."""
    step = state.train.step.values[-_RECENT_POINTS:]
    # The point that ends an epoch comes after its validation: only later points belong to this epoch.
    current = step > (state.epochs[-1].step if state.epochs else 0)
    step, elapsed = step[current], state.train.elapsed_s.values[-_RECENT_POINTS:][current]
    if len(step) >= 3 and step[-1] > step[0] and elapsed[-1] > elapsed[0]:
        return float((elapsed[-1] - elapsed[0]) / (step[-1] - step[0]) * 1e3)
    return next((ended.step_ms for ended in reversed(state.epochs) if ended.step_ms), None)
