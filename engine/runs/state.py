"""The state of a run, computed from its journal by a pure function.

`reduce(state, event, at)` returns the next state. `fold` does the same for many journal records and adds progress
records in bulk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from ..sanitize import MOST_METRICS, MOST_REPLICAS
from . import events
from .curves import Curves, interval_means
from .events import EpochEnded, Event, Progress
from .metrics import Metric, best_of, loss_beside, metric_called

if TYPE_CHECKING:
    from .curves import Values
    from .journal import Record

_MOST_NOTICES, _MOST_COMPILED, _MOST_HOSTS = 2000, 200, 4096


class Epochs(Sequence[EpochEnded]):
    """The epochs that ended. Immutable; like `Samples`, all that grew from one share its list instead of copying it."""

    __slots__ = ("_length", "_shared")

    def __init__(self, shared: list[EpochEnded]) -> None:
        self._shared, self._length = shared, len(shared)

    def appended(self, epoch: EpochEnded) -> Epochs:
        """Return the epochs with one more; these stay as they are."""
        shared = self._shared if len(self._shared) == self._length else self._shared[: self._length]
        shared.append(epoch)
        return Epochs(shared)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[EpochEnded]:
        return islice(self._shared, self._length)

    @overload
    def __getitem__(self, place: int) -> EpochEnded: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[EpochEnded]: ...
    def __getitem__(self, place: int | slice) -> EpochEnded | Sequence[EpochEnded]:
        found = range(self._length)[place]
        return self._shared[found] if isinstance(found, int) else [self._shared[at] for at in found]

    def __repr__(self) -> str:
        return repr(tuple(self))


class RunState(Struct, frozen=True):
    """Everything a screen shows of a run."""

    started: events.RunStarted | None = None  # the first event; None if nothing is known yet
    started_at: float = 0.0  # Unix time of the first event
    phase: str = ""  # what the run is doing; empty before the first phase and after the last event
    phase_detail: str = ""  # detail of the phase
    phase_since: float = 0.0  # Unix time at which the phase began
    phase_s: Mapping[str, float] = field(default_factory=dict)  # seconds spent in each phase that has ended
    accelerator: events.AcceleratorReady | None = None  # devices and strategy, once connected
    data: events.DataReady | None = None  # sizes of the data, once loaded
    model: events.ModelBuilt | None = None  # the model's size, once built
    fit: events.FitStarted | None = None  # the plan of training, once it began
    progress: Progress | None = None  # the newest progress
    # Unix time of the newest progress or the end of an epoch, later by the time in which nothing was trained since.
    progress_at: float = 0.0
    validating: events.ValidationProgress | None = None  # how far the current validation is; None outside of one
    # Training metrics, one point per progress event: means since the point before, if they can be recovered.
    train: Curves = field(default_factory=Curves)
    # Validation metrics, named without ``val_``, one point per validated epoch.
    validation: Curves = field(default_factory=Curves)
    epochs: Sequence[EpochEnded] = ()  # the epochs that ended
    # Learning rate, ``examples_per_s`` and ``step_ms``, one point per epoch; NaN if one is missing.
    speed: Curves = field(default_factory=Curves)
    translated: events.Translated | None = None  # the newest translations of a few sentences
    memory: Mapping[int, events.ReplicaMemory] = field(default_factory=dict)  # the newest figures by replica number
    hosts: Mapping[int, events.HostSampled] = field(default_factory=dict)  # the newest figures by the host's number
    # Each host's figures over time by its number: ``cpu_percent``, ``ram_percent``, ``disk_read_mb_per_s``,
    # ``examples_per_s``; NaN if one is missing.
    host_curves: Mapping[int, Curves] = field(default_factory=dict)
    input: events.InputMeasured | None = None  # the newest measure of the input
    input_curve: Curves = field(default_factory=Curves)  # its ``wait_percent`` over time
    lost: tuple[events.HostLost, ...] = ()  # the hosts that are gone
    checkpoint: events.CheckpointSaved | None = None  # the newest checkpoint
    notices: tuple[str, ...] = ()  # messages to the user, oldest first; the newest 2000
    stop: events.StopRequested | None = None  # the newest request to stop, if there was one
    is_diverging: bool = False  # whether an alert, and nobody before it, stops the run
    steered: tuple[events.Steered, ...] = ()  # the answers to requests to steer the run, oldest first; the newest 2000
    profiled: tuple[events.Profiled, ...] = ()  # where the time of a few steps went: the newest two, oldest first
    compiled: tuple[events.Compiled, ...] = ()  # the compilations, oldest first; the newest 200
    alerts: tuple[events.Alerted, ...] = ()  # what needs attention, oldest first; the newest 2000
    budget: events.BudgetSet | None = None  # the run's time budget, if it has one
    mirror: events.MirrorReported | None = None  # how much of the run its mirror holds, if it has one
    mirror_at: float = 0.0  # Unix time of that
    end: events.RunFinished | events.RunFailed | None = None  # the last event of a run that ended
    last_at: float = 0.0  # Unix time of the newest event
    skipped: int = 0  # journal records that were not understood
    resumed: tuple[events.RunResumed, ...] = ()  # where the run was resumed, oldest first
    away_s: float = 0.0  # seconds in which nothing trained, between an interruption and its `resume`

    @property
    def took_s(self) -> float:
        """Seconds from the first event to the newest, without those in which nothing trained."""
        return self.last_at - self.started_at - self.away_s

    @property
    def monitor(self) -> str:
        """The metric that decides which epoch is best: the run's own, else ``val_loss`` if measured, else ``loss``."""
        if self.fit is not None and self.fit.monitor:
            return self.fit.monitor
        return "val_loss" if "loss" in self.validation.metrics else "loss"

    def metric(self, name: str) -> Metric:
        """Return what is known of a metric by its name in ``logs``."""
        return metric_called(name, self.fit.metrics if self.fit is not None else ())

    @property
    def is_nan(self) -> bool:
        """Whether the loss of the newest epoch is NaN or infinite."""
        return bool(self.epochs) and not math.isfinite(self.epochs[-1].logs.get("loss", 0.0))

    def best_epoch(self, name: str = "") -> EpochEnded | None:
        """Return the epoch that is best by a metric, or else by the `monitor`; None if none has a finite value."""
        name = name or self.monitor
        return best_epoch(self.epochs, name, lowest=self.metric(name).lower_is_better)

    @property
    def steps_total(self) -> int | None:
        """Steps of the whole run; None if an epoch's length is unknown."""
        if self.fit is None or self.fit.steps_per_epoch is None:
            return None
        return self.fit.epochs * self.fit.steps_per_epoch


def best_epoch(epochs: Sequence[EpochEnded], monitor: str, *, lowest: bool) -> EpochEnded | None:
    """Return the epoch with the best finite value of a metric, as `best_of` decides, and with a finite loss."""
    valid = [e for e in epochs if math.isfinite(e.logs.get("loss", 0.0)) and monitor in e.logs]
    values, losses = ([e.logs.get(name) for e in valid] for name in (monitor, loss_beside(monitor)))
    at = best_of(values, losses, lowest=lowest)
    return None if at is None else valid[at]


# Fields that hold the newest event of a type.
_NEWEST: dict[type[Event], str] = {
    events.AcceleratorReady: "accelerator",
    events.BudgetSet: "budget",
    events.CheckpointSaved: "checkpoint",
    events.DataReady: "data",
    events.FitStarted: "fit",
    events.MirrorReported: "mirror",
    events.ModelBuilt: "model",
    events.StopRequested: "stop",
    events.Translated: "translated",
    events.ValidationProgress: "validating",
}
# Fields that hold the newest events of a type, and how many.
_LISTED: dict[type[Event], tuple[str, int]] = {
    events.Alerted: ("alerts", _MOST_NOTICES),
    events.Compiled: ("compiled", _MOST_COMPILED),
    events.HostLost: ("lost", _MOST_HOSTS),
    events.Profiled: ("profiled", 2),
    events.Steered: ("steered", _MOST_NOTICES),
}


def reduce(state: RunState, event: Event, at: float) -> RunState:  # noqa: C901  one case an event
    """Return the state after one event at a Unix time in seconds; the state before is not changed."""
    if isinstance(event, events.RunResumed):
        return _resumed(state, event, at)
    kind, changes = type(event), dict[str, Any](last_at=at)
    if kind in _NEWEST:
        changes[_NEWEST[kind]] = event
    elif kind in _LISTED:
        name, most = _LISTED[kind]
        changes[name] = (*getattr(state, name)[1 - most :], event)
    state = replace(state, **changes)
    match event:
        case Progress():
            return _with_reports(state, [event], at)
        case EpochEnded():
            return _with_epoch(state, event, at)
        case events.RunStarted():
            return replace(state, started=event, started_at=at)
        case events.PhaseStarted():
            return replace(_phase_closed(state, at), phase=event.phase, phase_detail=event.detail, phase_since=at)
        case events.MemorySampled():
            memory = {**state.memory, **{memory.index: memory for memory in event.replicas}}
            return replace(state, memory=memory) if len(memory) <= MOST_REPLICAS else state
        case events.HostSampled():
            return _with_host(state, event)
        case events.InputMeasured():
            share = 100 * event.wait_s / event.span_s if event.span_s > 0 else math.nan
            place = state.train.epoch.last or float(event.epoch - 1)
            curve = state.input_curve.extended([event.step], [place], [event.elapsed_s], {"wait_percent": [share]})
            return replace(state, input=event, input_curve=curve)
        case events.Noticed():
            return replace(state, notices=(*state.notices[1 - _MOST_NOTICES :], event.message))
        case events.Steered(action=events.Steering.EPOCHS, refused="", after=after):
            if state.fit is not None and after and after >= 1:
                return replace(state, fit=replace(state.fit, epochs=int(after)))
        case events.Alerted(stops=True):
            is_first = state.stop is None or state.stop.after == events.StopAfter.EPOCH
            return replace(state, is_diverging=state.is_diverging or is_first)
        case events.MirrorReported():
            return replace(state, mirror_at=at)
        case events.RunFinished() | events.RunFailed():
            return replace(_phase_closed(state, at), end=event)
    return state


def fold(state: RunState, records: Sequence[Record]) -> RunState:
    """Return the state after records from a `JournalReader`, as `reduce` one by one would give it."""
    for kind, part in groupby(records, lambda record: type(record.event)):
        if kind is Progress:
            records = [*part]
            state = _with_reports(state, [record.event for record in records], records[-1].at)
            continue
        for record in part:
            event = record.event
            state = replace(state, skipped=state.skipped + 1) if event is None else reduce(state, event, record.at)
    return state


def _with_reports(state: RunState, reports: Sequence[Any], at: float, place: Values | None = None) -> RunState:
    """Add events `Progress`, many at once; `place` is that on the axis of epochs if the steps do not say it."""
    step, epoch, epoch_step, elapsed_s = (
        np.fromiter(map(attrgetter(name), reports), np.float64, len(reports))
        for name in ("step", "epoch", "epoch_step", "elapsed_s")
    )
    reported, names = [report.logs for report in reports], [*state.train.metrics]
    if set().union(*reported).difference(names):
        names = [*dict.fromkeys(chain(names, *reported))][:MOST_METRICS]
    logs = {name: np.fromiter([log.get(name, math.nan) for log in reported], np.float64) for name in names}
    if place is None:
        steps = state.fit.steps_per_epoch if state.fit is not None else None
        place = epoch - 1.0 + (np.minimum(epoch_step / steps, 1.0) if steps else 0.0)
    metrics = [state.metric(name) for name in names]
    means, running = interval_means(logs, epoch, epoch_step, state.progress, metrics, state.train.running)
    train = state.train.extended(step, place, elapsed_s, means, running)
    return replace(state, train=train, progress=reports[-1], progress_at=at, last_at=at)


def _resumed(state: RunState, event: events.RunResumed, at: float) -> RunState:
    """Drop what the run did after its checkpoint: it is repeated."""
    state = _phase_closed(state, state.last_at)
    train = state.train.until(event.step)
    logs = train.means_since(event.step - event.epoch_step)
    last = int(train.step.last or event.step)
    done = max(event.epoch_step - (event.step - last), 0)
    started, fit, epochs = state.started, state.fit, event.config.get("epochs")
    if started is not None:
        folder = event.folder or started.folder
        started = replace(started, pid=event.pid, host=event.host, config=event.config, folder=folder)
    if fit is not None and not event.why and isinstance(epochs, int) and epochs > 0:
        fit = replace(fit, epochs=epochs)
    return replace(
        state,
        fit=fit,
        started=started,
        progress=Progress(event.epoch + 1, done, last, event.elapsed_s, logs) if event.step else None,
        progress_at=at,
        train=train,
        validation=state.validation.until(event.step),
        epochs=Epochs([ended for ended in state.epochs if ended.epoch <= event.epoch]),
        alerts=tuple(alert for alert in state.alerts if alert.step <= event.step),
        host_curves={process: curves.until(event.step) for process, curves in state.host_curves.items()},
        input_curve=state.input_curve.until(event.step),
        speed=state.speed.until(event.step),
        lost=(),
        stop=None,
        is_diverging=False,
        end=None,
        last_at=at,
        resumed=(*state.resumed[1 - _MOST_NOTICES :], event),
        away_s=state.away_s + max(0.0, at - state.last_at),
    )


def _with_epoch(state: RunState, event: EpochEnded, at: float) -> RunState:
    means = {name: value for name, value in event.logs.items() if not name.startswith("val_")}
    scores = {name.removeprefix("val_"): [value] for name, value in event.logs.items() if name not in means}
    if state.train.step.last != event.step:
        # The last progress event was written before the epoch's last step: the epoch ends the curve.
        last = Progress(event.epoch, event.epoch_steps, event.step, event.elapsed_s, means)
        state = _with_reports(state, [last], at, [float(event.epoch)])
    place = ([event.step], [float(event.epoch)], [event.elapsed_s])
    speed = {name: [getattr(event, name)] for name in ("learning_rate", "examples_per_s", "step_ms")}
    epochs = state.epochs if isinstance(state.epochs, Epochs) else Epochs([*state.epochs])
    return replace(
        state,
        progress_at=at,
        epochs=epochs.appended(event),
        validation=state.validation.extended(*place, scores) if scores else state.validation,
        speed=state.speed.extended(*place, speed),
    )


def _with_host(state: RunState, event: events.HostSampled) -> RunState:
    hosts = {**state.hosts, event.process: event}
    if len(hosts) > _MOST_HOSTS:
        return state
    if event.elapsed_s is None:
        return replace(state, hosts=hosts)
    limit, read = event.ram_limit_bytes, event.disk_read_bytes_per_s
    figures = {
        "cpu_percent": event.cpu_percent,
        "ram_percent": 100 * event.ram_bytes / limit if event.ram_bytes is not None and limit else None,
        "disk_read_mb_per_s": None if read is None else read / 1e6,
        "examples_per_s": event.examples_per_s,
    }
    place = ([state.progress.step if state.progress else 0], [state.train.epoch.last or 0.0], [event.elapsed_s])
    logs = {name: [value] for name, value in figures.items()}
    curves = state.host_curves.get(event.process, Curves()).extended(*place, logs)
    return replace(state, hosts=hosts, host_curves={**state.host_curves, event.process: curves})


def _phase_closed(state: RunState, at: float) -> RunState:
    if not state.phase:
        return state
    took = max(0.0, at - state.phase_since)
    return replace(
        state,
        phase="",
        phase_detail="",
        validating=None,
        phase_s={**state.phase_s, state.phase: state.phase_s.get(state.phase, 0.0) + took},
        progress_at=state.progress_at + (0.0 if state.phase in events.OF_EPOCHS else took),
    )
