"""Notices when Keras compiles the training or the validation step of a model, and for which batch."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..accelerators.table import loaded_framework

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Compilation:
    """A step was traced and compiled."""

    is_validation: bool
    seconds: float  # until the execution that it was compiled for returned
    is_cached: bool | None  # whether the program came from a cache on the disk; None if the framework has none
    batch: Mapping[str, str]  # type and shape of each part of the batch, such as ``float32[64,28,28,1]``
    before: Mapping[str, str]  # those of the compilation before; empty for the first since `Model.compile`
    steps: int = 1  # steps per execution


def watch(model: Any, report: Callable[[Compilation], None]) -> None:
    """Report every further compilation of a model's steps; `report` is called in the training thread.

    It replaces the one of an earlier call.
    """
    watched = getattr(model, "tpu_console_compilations", None)
    if watched is None and loaded_framework().traces_steps(model):
        watched = model.tpu_console_compilations = _Watched(model)
    if watched is not None:
        watched.report, watched.traced = report, None


class _Watched:
    """Wraps the methods of a model that trace a step, and those that make the functions that `fit` calls."""

    report: Callable[[Compilation], None]

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
            self.report(Compilation(name == "test", seconds, is_cached, batch, before, steps))
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
