"""Traces a few steps of a run while it trains, and finds out where their time went."""

import math
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..accelerators.backend import loaded_framework
from ..errors import one_line
from ..monitoring.input_rate import InputMeter, Taken
from ..monitoring.trace import LARGEST_TRACE, Trace, read_trace
from ..preflight.layers import all_layers
from ..runs.events import Profiled, Spent
from ..runs.recorder import Recorder
from ..storage.files import read_bytes
from .bridge import BridgeCallback, steps_of

DEFAULT_STEPS, _MOST_STEPS = 5, 100
_MOST_TRACES = 3  # kept in a run's folder
_MOST_ROWS = 30
_HOOKS = ("on_train_batch_begin", "on_train_batch_end")


class Profiler:
    """Traces steps, and times the user's own callbacks and the input; called between two executions."""

    def __init__(
        self, recorder: Recorder, bridge: BridgeCallback, own: Sequence[Any], meter: InputMeter | None
    ) -> None:
        self._recorder, self._bridge, self._own, self._meter = recorder, bridge, own, meter
        self._left = 0  # executions that are still to be traced
        self._callbacks: dict[str, float] = defaultdict(float)  # seconds by class

    def begin(self, model: Any, done: int, steps: int, request: str = "") -> None:
        """Trace the steps after the first `done` of the run, in whole executions; raise what the framework raises."""
        self._model, self._done, self._request = model, done, request
        self._each, self._steps = steps_of(model), 0
        self._folder = self._recorder.run.profile
        with self._bridge.standing_still():
            loaded_framework().start_trace(self._folder)
        self._callbacks.clear()
        for callback in self._own:
            for hook in _HOOKS:
                setattr(callback, hook, partial(self._timed, type(callback).__name__, getattr(callback, hook)))
        self._waited = self._meter.read() if self._meter is not None else Taken()
        self._left = -(-min(steps, _MOST_STEPS) // self._each)
        self._began = time.perf_counter()

    @property
    def is_tracing(self) -> bool:
        """Whether steps are being traced."""
        return self._left > 0

    def executed(self, *, is_last: bool = False) -> None:
        """Count an execution; after the last one, end the trace and report what it says."""
        if self._left:
            self._steps += self._each
            self._left -= 1
            if is_last or not self._left:
                self.end()

    def end(self) -> None:
        """End the trace, with the steps so far."""
        self._left, began = 0, self._began
        with self._bridge.standing_still():  # waits for the steps that were sent to the device
            seconds = time.perf_counter() - began
            waited = self._meter.read() - self._waited if self._meter is not None else Taken()
            for callback in self._own:
                for hook in _HOOKS:
                    delattr(callback, hook)
            self._bridge.leave_out(self._steps, seconds)
            self._recorder.emit(self._profiled(seconds, waited.wait_s))
            for trace in _traces(self._folder)[:-_MOST_TRACES]:
                shutil.rmtree(trace.parent, ignore_errors=True)

    def _profiled(self, seconds: float, wait_s: float) -> Profiled:
        epoch, _, elapsed_s = self._bridge.where()
        layers = {layer.name: sum(math.prod(one.shape) for one in layer.weights) for layer in all_layers(self._model)}
        optimizer, weights = str(getattr(self._model.optimizer, "name", "")), sum(layers.values()) or 1
        traces, trace, problem = list[Path](), Trace(), ""
        try:
            loaded_framework().stop_trace()
            traces = _traces(self._folder)
            trace = read_trace(read_bytes(traces[-1], LARGEST_TRACE), frozenset(layers), optimizer)
        except Exception as error:  # noqa: BLE001  whatever a profiler does, the run goes on
            problem = one_line(error, 300) or type(error).__name__
        steps = max(1, self._steps)
        left, spent = seconds, {}
        found = {
            Spent.COMPUTING: trace.computing - trace.exchange,
            Spent.EXCHANGE: trace.exchange,
            Spent.TRANSFER: trace.transfer,
            Spent.INPUT: wait_s,  # what happens beside computing costs nothing
            Spent.CALLBACKS: sum(self._callbacks.values()),
            Spent.HOST: math.inf,
        }
        for part, part_s in found.items():
            spent[part.value] = min(max(0.0, part_s), left) / steps
            left = max(0.0, left - part_s)
        return Profiled(
            epoch=epoch,
            step=self._done + self._steps,
            elapsed_s=elapsed_s,
            steps=self._steps,
            step_s=seconds / steps,
            spent=spent,
            layers=_most(trace.layers, steps),
            operations=_most(trace.operations, steps),
            callbacks=_most(self._callbacks, steps),
            optimizer=optimizer,
            weights=_most(layers, weights),
            trace=str(traces[-1].relative_to(self._recorder.run.path)) if traces else "",
            problem=problem,
            request=self._request,
            float32_s=None if trace.float32 is None else trace.float32 / steps,
            matrix_unit=trace.matrix_unit,
            bandwidth=trace.bandwidth,
        )

    def _timed(self, name: str, hook: Callable[..., None], *args: Any, **named: Any) -> None:
        began = time.perf_counter()
        hook(*args, **named)
        self._callbacks[name] += time.perf_counter() - began


def _most(figures: Mapping[str, float], divisor: int) -> dict[str, float]:
    """Return the largest figures, the largest first, divided by a number."""
    largest = sorted(figures.items(), key=lambda one: -one[1])[:_MOST_ROWS]
    return {name: value / divisor for name, value in largest}


def _traces(folder: Path) -> list[Path]:
    """Return the traces, the oldest first: each is in a folder that is named by its time."""
    return sorted(folder.glob("plugins/profile/*/*.xplane.pb"))
