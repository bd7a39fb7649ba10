"""Goes back to the newest checkpoint when the loss has become NaN, with a lower learning rate."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from ..config.reading import with_changes
from ..config.run_config import journal_values, to_toml
from ..runs.events import RunResumed
from ..storage.files import write_whole

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..runs.checkpoint import Header
    from ..runs.recorder import Recorder
    from .bridge import BridgeCallback
    from .checkpoints import Checkpoints
    from .steering import SteeringCallback

FACTOR = 0.25
"""The learning rate after going back, relative to the one before."""

MOST = 3
"""How often a process goes back before it stops: after that, the learning rate is hardly to blame."""


class Rollback:
    """Takes a run back to its newest checkpoint."""

    def __init__(
        self, recorder: Recorder, bridge: BridgeCallback, checkpoints: Checkpoints, steering: SteeringCallback
    ) -> None:
        self._recorder, self._bridge = recorder, bridge
        self._checkpoints, self._steering = checkpoints, steering
        self._count = 0

    def go_back(self, config: RunConfig, *, is_fine_tuning: bool) -> tuple[RunConfig, Header] | None:
        """Return the configuration with a lower learning rate, and the checkpoint to go on from, between two `fit`s.

        The model has to be compiled and attached to the checkpoints again. If the run cannot go back, it is asked to
        stop.
        """
        why, self._steering.goes_back = self._steering.goes_back, ""
        saved = self._checkpoints.last_good() if self._count < MOST else None
        if saved is None:
            tried = f"even after going back {self._count} times with a lower learning rate"
            tried = tried if self._count else "and there is no checkpoint to go back to"
            self._recorder.control.stop(f"{why}, {tried}")
            return None
        self._count += 1
        key = "fine_tuning.learning_rate" if is_fine_tuning else "optimizer.learning_rate"
        before = config.fine_tuning.learning_rate if is_fine_tuning else config.optimizer.learning_rate
        before *= self._checkpoints.rate_change()
        after = before * FACTOR
        config, at = with_changes(config, [(key, after)]), saved[0]
        with suppress(OSError):  # on a full disk; a run resumed from there begins with the old rate
            write_whole(self._recorder.run.config, to_toml(config))
        why = f"{why}; learning rate {before:.3g} → {after:.3g}"
        where = (at.epoch, at.epoch_step, at.step, at.elapsed_s)
        self._recorder.emit(RunResumed(*where, os.getpid(), socket.gethostname(), journal_values(config), why))
        self._bridge.go_on_from(at)
        self._checkpoints.go_on_from(saved)
        return config, at
