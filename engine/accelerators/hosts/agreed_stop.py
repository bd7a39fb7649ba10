"""Counts the steps of one host, so that several hosts can stop after the same one.

Each step waits for the gradients of all hosts: if one stopped alone, the others would wait forever. So training is held
between two steps until all hosts know how many steps each has begun (`accelerators.hosts.team`).
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
        self._begun = 0  # each of these steps will also end
        self._is_held = False
        self._last: int | None = None
        self._then: Callable[[], object] = lambda: None

    def attach(self, model: Any) -> None:
        """Count the steps of a compiled model; call it before `fit`, which uses the train function that it finds."""
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
        """Begin no more steps; return how many have begun."""
        with self._condition:
            self._is_held = True
            return self._begun

    def stop_after(self, step: int, then: Callable[[], object]) -> None:
        """Go on, and end training after a step, counted over the run; `then` is called in the training thread."""
        with self._condition:
            self._then, self._last = then, step
            self._condition.notify_all()
