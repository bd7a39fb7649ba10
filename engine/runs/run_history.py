"""How long past runs took on this machine, by everything that decides the time of a step; plans are based on it."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..config.catalog import is_user_reference
from ..config.user_code import source_mark
from ..sanitize import Count, Measure  # noqa: TC001  the file is read by the types of the fields
from ..storage.keyed_store import KeyedStore, key_of, today

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from .state import RunState


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
    """Records how long a run took, on devices as `engine.planning.plan.devices_of` names them.

    Made when the run begins, because the user's files may change meanwhile.
    """

    def __init__(self, config: RunConfig, backend: str, devices: str) -> None:
        self._key = _key(config, backend, devices)
        self._batch = config.batch_size

    def record(self, state: RunState) -> None:
        """Record how long the run took, if the steps of an epoch were timed."""
        from .events import Phase  # not at the top: a plan needs only the times of past runs

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
    parts = {"model", "model_options", "dataset", "augmentation", "precision", "steps_per_execution", "validation_freq"}
    data = config.data.model_dump(mode="json", exclude={"train_limit"})
    phases: list[Any] = [config.fine_tuning.model_dump(mode="json")]
    if config.fine_tuning.after_epochs:  # the second phase takes longer, so its share of the epochs matters
        phases.append(config.epochs)
    own = [source_mark(name) for name in (config.model, config.dataset) if is_user_reference(name)]
    settings = config.model_dump(mode="json", include=parts)
    return key_of([own, settings, config.optimizer.name, data, phases, [backend, devices, os.cpu_count()]])
