"""Keras's list of callbacks, without the work at every step that nobody asked for.

Keras calls every callback before and after a step, also those that do nothing then, and turns the metrics of every
step into numbers, for which a GPU must have finished the step. With steps of a millisecond, that takes 1.5% of the
time. The engine's own callbacks need the numbers ten times per second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Logs = Mapping[str, Any] | None


class LeanCallbackList(keras.callbacks.CallbackList):  # type: ignore[misc]  # Keras is untyped
    """Calls, before and after a training step, only the callbacks that do something then.

    Those with the attribute `takes_tensors` get the metrics as the train function returns them. If any other one is
    called after steps, all get numbers, as with Keras's own list.

    For TensorFlow on one device: on JAX, Keras calls callbacks in other threads, and under a strategy nothing but
    the numbers makes it wait for the replicas.
    """

    def __init__(self, callbacks: Sequence[Any], model: Any, *, epochs: int, steps: int) -> None:
        super().__init__(callbacks, add_history=True, model=model, verbose=0, epochs=epochs, steps=steps)
        self._before_step = [one for one in self.callbacks if _hears(one, "on_train_batch_begin", "on_batch_begin")]
        self._after_step = [one for one in self.callbacks if _hears(one, "on_train_batch_end", "on_batch_end")]
        self._needs_numbers = not all(getattr(one, "takes_tensors", False) for one in self._after_step)

    def on_train_batch_begin(self, batch: int, logs: Logs = None) -> None:  # noqa: ARG002  Keras passes none
        """Call the callbacks before a step."""
        for callback in self._before_step:
            callback.on_train_batch_begin(batch, logs={})

    def on_train_batch_end(self, batch: int, logs: Logs = None) -> None:
        """Call the callbacks after a step."""
        if self._needs_numbers:
            super().on_train_batch_end(batch, logs)
            return
        for callback in self._after_step:
            callback.on_train_batch_end(batch, logs=logs)


def _hears(callback: Any, *names: str) -> bool:
    """Return whether a callback, or what it inherits from, has its own version of one of Keras's methods."""
    base = keras.callbacks.Callback
    return any(getattr(getattr(callback, name), "__func__", None) is not getattr(base, name) for name in names)
