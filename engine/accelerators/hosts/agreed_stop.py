"""Counts the steps of one host, so that several hosts can stop after the same one.

Each step waits for every host's gradients: a host that stopped alone would leave the others waiting forever. So
training is held between two steps until all hosts have said how many they have begun (`accelerators.hosts.team`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class AgreedStop:
    """Holds training before its next step, and ends it after an agreed one; safe to use from any thread."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._begun = 0  # steps that training began; it will end each of them
        self._is_held = False
        self._last: int | None = None
        self._then: Callable[[], object] = lambda: None

    def attach(self, model: Any) -> None:
        """Count the steps of a compiled model, before `fit` is called; `fit` uses the train function that it finds."""
        model.make_train_function()
        inner, steps = model.train_function, int(model.steps_per_execution or 1)

        def counted(state: Any, iterator: Any) -> Any:
            with self._condition:
                self._condition.wait_for(lambda: not self._is_held or self._last is not None)
                self._begun += steps
                is_last = self._last is not None and self._begun >= self._last
            done = inner(state, iterator)
            if is_last:
                self._then()
                model.stop_training = True
            return done

        model.train_function = counted

    def hold(self) -> int:
        """Begin no further step; return the number of steps that were begun."""
        with self._condition:
            self._is_held = True
            return self._begun

    def stop_after(self, step: int, then: Callable[[], object]) -> None:
        """Go on, and end training after a step; a run that is over before ends by itself.

        Args:
            step: The last step, counted over the whole run.
            then: Called in the training thread once that step is done.
        """
        with self._condition:
            self._then, self._last = then, step
            self._condition.notify_all()
