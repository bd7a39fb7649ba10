"""How long runs take: the pace of one that trains, whether it stalls, and how long past ones took on this machine."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..config.catalog import is_user_reference
from ..sanitize import Count, Measure  # noqa: TC001  the file is read by the types of the fields
from ..storage.keyed_store import KeyedStore, key_of, today
from .events import Phase

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from .events import EpochEnded
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
    import numpy as np  # a plan does without it

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


class PastRun(Struct, frozen=True):
    """How long a run of one batch size took."""

    step_ms: Measure  # milliseconds per training step, the median over its epochs
    epoch_s: Measure  # seconds per epoch beyond its steps: validation, checkpoints, starting and ending
    rest_s: Measure  # seconds beyond its epochs: importing, loading, compiling, saving
    batch: Count  # examples per replica and step
    day: str  # the date of the run, such as ``2026-03-01``

    def seconds(self, epochs: int, steps_per_epoch: int, batch: int) -> float:
        """Return how long a run takes at this pace; with another batch, at the same number of examples a second."""
        return self.rest_s + epochs * self._of_epoch(steps_per_epoch, batch)

    def epochs(self, seconds: float, steps_per_epoch: int, batch: int) -> int:
        """Return how many epochs fit into a time at this pace; the arguments are those of `seconds`."""
        return max(0, int((seconds - self.rest_s) / max(1e-9, self._of_epoch(steps_per_epoch, batch))))

    def _of_epoch(self, steps_per_epoch: int, batch: int) -> float:
        return steps_per_epoch * self.step_ms / 1e3 * batch / self.batch + self.epoch_s


_PACES = KeyedStore[dict[str, PastRun]]("paces.json", dict[str, PastRun])


class Stopwatch:
    """Records how long a run took, on devices as `engine.planning.devices_of` names them.

    Made when the run begins, because the user's files may change meanwhile.
    """

    def __init__(self, config: RunConfig, backend: str, devices: str) -> None:
        self._key = _key(config, backend, devices)
        self._batch = config.batch_size

    def record(self, state: RunState) -> None:
        """Record how long the run took, if the steps of an epoch were timed."""
        timed = sorted(epoch.step_ms for epoch in state.epochs if epoch.step_ms is not None)
        if not timed:
            return
        step_ms = timed[len(timed) // 2]
        epochs_s = sum(epoch.seconds - epoch.compile_s for epoch in state.epochs)
        took = PastRun(
            step_ms=step_ms,
            epoch_s=max(0.0, (epochs_s - state.epochs[-1].step * step_ms / 1e3) / len(state.epochs)),
            rest_s=max(0.0, state.took_s - epochs_s - state.phase_s.get(Phase.PAUSED, 0.0)),
            batch=self._batch or (state.fit and state.fit.replica_batch) or 0,
            day=today(),
        )
        _PACES.put(self._key, {**(_PACES.get(self._key) or {}), str(took.batch): took})


def past_run_like(config: RunConfig, backend: str, devices: str) -> PastRun | None:
    """Return how long a similar run took, the one with the nearest batch size; None if there is none."""
    known = (_PACES.get(_key(config, backend, devices)) or {}).values()
    possible = [took for took in known if took.batch > 0]
    return min(possible, key=lambda took: abs(math.log(took.batch / config.batch_size)), default=None)


def _key(config: RunConfig, backend: str, devices: str) -> str:
    """Return a key of everything that decides the time of a step, except the batch."""
    from ..config.user_code import source_mark  # it loads Pydantic, for which a notebook need not wait

    parts = {"model", "model_options", "dataset", "augmentation", "precision", "steps_per_execution", "validation_freq"}
    data = config.data.model_dump(mode="json", exclude={"train_limit"})
    phases: list[Any] = [config.fine_tuning.model_dump(mode="json")]
    if config.fine_tuning.after_epochs:  # the second phase takes longer, so its share of the epochs matters
        phases.append(config.epochs)
    own = [source_mark(name) for name in (config.model, config.dataset) if is_user_reference(name)]
    settings = config.model_dump(mode="json", include=parts)
    return key_of([own, settings, config.optimizer.name, data, phases, [backend, devices, os.cpu_count()]])
