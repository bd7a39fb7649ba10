"""Keeps the state of the configuration's callbacks from one `fit` of a run to the next, and in checkpoints.

Keras has no call for a callback's state. It saves the attributes that hold plain values: numbers, texts, lists and
dictionaries of them. That is all that Keras's own callbacks have, such as the best value and the wait of
`ReduceLROnPlateau`.
"""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..runs.recorder import Recorder

    State = Mapping[str, Any]

_NOT_STATE = ("_model", "params", "_params")


class OwnCallbacks(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Keeps the state of other callbacks. It comes after them, because they reset their state in `on_train_begin`.

    `saved` are their states in the checkpoint that is resumed.
    """

    async_safe = True

    def __init__(self, recorder: Recorder, callbacks: Sequence[Any], saved: Sequence[State] | None) -> None:
        super().__init__()
        self._callbacks = callbacks
        self._states = saved if saved is not None and len(saved) == len(callbacks) else None
        if saved is None or not callbacks:
            return
        lost = [f"{type(own).__name__} ({', '.join(names)})" for own in callbacks if (names := _lost(own))]
        if self._states is None:
            recorder.notice("The callbacks start over: the checkpoint was saved with other callbacks.")
        elif lost:
            recorder.notice(f"Not in the checkpoint, so it starts over: {'; '.join(lost)}.")

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each callback."""
        return [
            {name: plain for name, value in _attributes(own) if (plain := _plain(value)) is not None}
            for own in self._callbacks
        ]

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002  Keras's signature
        """Restore the states."""
        for own, state in zip(self._callbacks, self._states or (), strict=False):
            for name in state.keys() - _not_state(own):  # a checkpoint may come from anywhere
                if (now := getattr(own, name, None)) is None or _plain(now) is not None:
                    setattr(own, name, state[name])

    def on_train_end(self, logs: Any = None) -> None:  # noqa: ARG002  Keras's signature
        """Keep the states for the next `fit` of the run."""
        self._states = self.states()


def _attributes(callback: Any) -> list[tuple[str, Any]]:
    """Return what a callback remembers."""
    known = _not_state(callback)
    return [(name, value) for name, value in vars(callback).items() if name not in known]


def _not_state(callback: Any) -> set[str]:
    """Return attributes that Keras sets, and arguments such as the path of a file, which are in the configuration."""
    return {*_NOT_STATE, *inspect.signature(type(callback)).parameters}


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it; None if it is no plain value, or is None."""
    if isinstance(value, np.generic):
        value = value.item()
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return None


def _lost(callback: Any) -> list[str]:
    """Return the names of attributes that hold more than plain values, such as arrays."""
    return [
        name
        for name, value in _attributes(callback)
        if _plain(value) is None and value is not None and not callable(value)
    ]
