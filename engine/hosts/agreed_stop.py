"""Stops several hosts after the same step.

Each step of the model waits for every host's gradients: a host that stopped alone would leave the others waiting for
ever. So the hosts are held between two steps, tell how many they have begun, and all go on to one past the furthest:
that step none of them has begun, and each will. Where none has begun any step, they need not begin one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class AgreedStop:
    """Counts the steps of one host, and ends training after the step that was agreed on.

    Safe to use from any thread.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._begun = 0  # steps that training began; it will end each of them
        self._is_held = False
        self._last: int | None = None
        self._then: Callable[[], object] = lambda: None

    def attach(self, model: Any) -> None:
        """Count the steps of a compiled model, before `fit` is called.

        Keras makes the function that runs an execution once, and uses the one that is there.
        """
        model.make_train_function()
        inner = model.train_function
        steps = int(model.steps_per_execution or 1)

        def counted(state: Any, iterator: Any) -> Any:
            is_last = self._begin(steps)
            done = inner(state, iterator)
            if is_last:
                self._then()
                model.stop_training = True
            return done

        model.train_function = counted

    def _begin(self, steps: int) -> bool:
        """Begin an execution, once nothing holds it; tell whether it is the last one."""
        with self._condition:
            self._condition.wait_for(lambda: not self._is_held or self._last is not None)
            self._begun += steps
            return self._last is not None and self._begun >= self._last

    def hold(self) -> int:
        """Let no further step begin; return the steps that were begun."""
        with self._condition:
            self._is_held = True
            return self._begun

    def stop_after(self, step: int, then: Callable[[], object]) -> None:
        """Go on, and end training after a step; a run that is over before ends by itself.

        Args:
            step: Steps of the whole run after which to end.
            then: Called when that step is done, in the training thread: whatever asks whether to stop may hear it only
                then, or it would stop elsewhere.
        """
        with self._condition:
            self._then = then
            self._last = step
            self._condition.notify_all()
