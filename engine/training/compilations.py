"""Notices when Keras compiles the training or the validation step of a model, and for which batch."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

from ..accelerators.table import loaded_framework
from ..runs.events import Compiled

if TYPE_CHECKING:
    from collections.abc import Callable


def watch(model: Any, report: Callable[[Compiled], None]) -> None:
    """Report every further compilation of a model's steps; `report` is called in the training thread.

    It replaces the one of an earlier call. What it gets does not say where the run is.
    """
    watched = getattr(model, "tpu_console_compilations", None)
    if watched is None and loaded_framework().traces_steps(model):
        watched = model.tpu_console_compilations = _Watched(model)
    if watched is not None:
        watched.report, watched.traced = report, None


class _Watched:
    """Wraps the methods of a model that trace a step, and those that make the functions that `fit` calls."""

    report: Callable[[Compiled], None]

    def __init__(self, model: Any) -> None:
        self._model = model
        self.traced: dict[str, str] | None = (
            None  # the batch of the execution that is going on, if it was traced for it
        )
        self._began, self._hits = 0.0, loaded_framework().cached_programs()
        self._before: dict[str, dict[str, str]] = {}  # the batch of the newest compilation, by the name of the step
        for name in ("train", "test"):
            setattr(model, f"{name}_step", self._tracing(getattr(model, f"{name}_step")))
            setattr(model, f"make_{name}_function", self._making(name, getattr(model, f"make_{name}_function")))

    def _tracing(self, step: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(step)
        def traced(*arguments: Any) -> Any:  # Keras calls it to trace it, never for a batch
            if self.traced is None:
                self._began, self._hits = time.perf_counter(), loaded_framework().cached_programs()
            self.traced = described(arguments[-1])
            return step(*arguments)

        return traced

    def _making(self, name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        attribute, last = f"{name}_function", None

        @functools.wraps(make)
        def made(*arguments: Any, **named: Any) -> Any:
            nonlocal last
            make(*arguments, **named)
            if (function := getattr(self._model, attribute)) is not last:
                last = functools.partial(self._executed, name, function)
                setattr(self._model, attribute, last)
                self._before.pop(name, None)
            return last

        return made

    def _executed(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        result = function(*arguments)
        if self.traced is not None:
            batch, self.traced = self.traced, None
            seconds, hits = time.perf_counter() - self._began, loaded_framework().cached_programs()
            is_cached = None if hits is None else hits != self._hits
            steps = int(getattr(self._model, "steps_per_execution", 1) or 1)
            before, self._before[name] = self._before.get(name, {}), batch
            part = next((key for key, one in batch.items() if before and before.get(key) != one), "")
            self.report(
                Compiled(
                    epoch=0,
                    step=0,
                    elapsed_s=0.0,
                    seconds=seconds,
                    is_validation=name == "test",
                    is_cached=is_cached,
                    part=part,
                    batch=batch.get(part) or next(iter(batch.values()), ""),
                    before=before.get(part, ""),
                    steps=steps,
                )
            )
        return result


def described(data: Any) -> dict[str, str]:
    """Return the type and the shape of each part of a batch, such as ``{"inputs": "float32[64,28,28,1]"}``."""
    import keras

    parts = {}
    for name, part in zip(("inputs", "labels", "weights"), data if isinstance(data, tuple) else (data,), strict=False):
        for number, array in enumerate(one for one in keras.tree.flatten(part) if hasattr(one, "shape")):
            shape = ",".join("?" if size is None else str(size) for size in array.shape)
            key = f"{name} {number + 1}" if number else name
            parts[key] = f"{keras.backend.standardize_dtype(array.dtype)}[{shape}]"
    return parts
