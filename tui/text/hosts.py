"""Describes a run's hosts, replicas and input for the screen, plain lines and `show`.

A figure that was not measured is None and comes with a reason.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from statistics import fmean, median

import numpy as np
from msgspec import Struct

from tpu_console.engine.runs.curves import Curves
from tpu_console.engine.runs.events import AcceleratorReady, Bottleneck, HostLost, InputMeasured, Replica, ReplicaMemory
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.runs.timing import pace, validating_share

from .names import BACKENDS
from .numbers import count, memory, percent, size, whole_duration

SLOW = 0.10  # a host is marked as slow if it is at least this share below the median of all hosts

LOST = "the host is lost"  # why a lost host has no figures: its last ones are out of date

WAITS = "wait_percent"
_RECENT = 10  # samples, one per second: a single one says little if an execution takes a third of that time
_LEAST_SHARE = 0.05  # of epochs' time in validation, from which on it is said, as for waiting
_NOT_YET, _NEVER = "no data yet", "not recorded in this run"


class Host(Struct, frozen=True):
    """One host of a run, and the speed of its replicas."""

    process: int  # its number, from 0
    name: str  # name of the machine
    replicas: tuple[Replica, ...]  # the replicas it drives
    examples_per_s: float | None  # examples per second of all its replicas over the last seconds, or None
    why_not: str = ""  # why `examples_per_s` is missing; empty if it is not
    behind: float = 0.0  # the share by which it is below the median of the hosts; 0 if that is too small to mark
    lost: HostLost | None = None  # the event that reported it lost, or None

    @property
    def examples_a_replica(self) -> float | None:
        """Examples per second and replica; all replicas take the same share of a batch."""
        if self.examples_per_s is None or not self.replicas:
            return None
        return self.examples_per_s / len(self.replicas)


def hosts_of(state: RunState) -> dict[int, Host]:
    """Return the hosts by number, the slow ones marked, each with the mean speed of its last samples."""
    drives: dict[int, list[Replica]] = {process: [] for process in state.hosts}
    for replica in state.accelerator.replicas if state.accelerator is not None else ():
        drives.setdefault(replica.process, []).append(replica)
    lost = {event.process: event for event in state.lost}
    rates: dict[int, float] = {}
    for process in drives.keys() - lost.keys():
        curves = state.host_curves.get(process, Curves())
        recent = curves.metrics["examples_per_s"].values[-_RECENT:] if curves.metrics else np.empty(0)
        recent = recent[np.isfinite(recent)]
        epoch = state.epochs[-1].examples_per_s if len(drives) == 1 and state.epochs else None
        if (rate := float(recent.mean()) if len(recent) else epoch) is not None:
            rates[process] = rate
    each = {process: rate / (len(drives[process]) or 1) for process, rate in rates.items() if rate}
    middle = median(each.values()) if len(each) > 1 else 0.0
    return {
        process: Host(
            process,
            state.hosts[process].host if process in state.hosts else replicas[0].host,
            tuple(replicas),
            rates.get(process),
            "" if process in rates else why_no_figure(state, process, "examples_per_s"),
            share if middle and (share := 1 - each.get(process, middle) / middle) > SLOW else 0.0,
            lost.get(process),
        )
        for process, replicas in sorted(drives.items())
    }


def why_no_figure(state: RunState, process: int, figure: str) -> str:
    """Say why a figure of a host is missing."""
    if any(event.process == process for event in state.lost):
        return LOST
    sampled = state.hosts.get(process)
    return (sampled is not None and sampled.why_not.get(figure)) or silence(state)


def silence(state: RunState) -> str:
    """Say that a figure has not been reported yet, or, if the run has ended, that it never was."""
    return _NOT_YET if state.end is None else _NEVER


def slow_text(host: Host) -> str:
    """Say which host is slow and by how much."""
    rate = count(host.examples_per_s)
    return f"host {host.process} ({host.name}) is slow: {rate} examples/s, {behind_text(host)}"


def behind_text(host: Host) -> str:
    """Say how far a slow host is behind the others."""
    return f"{percent(100 * host.behind)} below the median host"


def lost_text(event: HostLost) -> str:
    """Say that a host was lost."""
    return f"host {event.process} ({event.host}) is lost: no heartbeat for {whole_duration(event.silent_s)}"


def no_batch(state: RunState) -> str:
    """Say why the batch size is unknown; empty if it is known."""
    if state.fit is None:
        return "known once training begins"
    return "" if state.fit.replica_batch else "unknown for this dataset"


def no_memory(state: RunState, usage: ReplicaMemory | None) -> str:
    """Say why a replica's memory is unknown or only partly known; empty if it is known."""
    if usage is None:
        return silence(state)
    is_known = usage.used_bytes is not None and usage.limit_bytes is not None
    return "" if is_known else usage.why_not or "not reported by the runtime"


def no_duty(state: RunState, usage: ReplicaMemory | None) -> str:
    """Say why a replica's duty cycle is unknown; empty if it is known."""
    if usage is None:
        return silence(state)
    return "" if usage.duty_percent is not None else usage.duty_why_not or "not reported by the runtime"


def mean_duty(usage: Iterable[ReplicaMemory]) -> float | None:
    """Return the mean duty cycle in percent of the replicas that report one; None if none does."""
    known = [one.duty_percent for one in usage if one.duty_percent is not None]
    return fmean(known) if known else None


def fullest(usage: Iterable[ReplicaMemory]) -> ReplicaMemory | None:
    """Return the replica with the least free memory among those that report it; None if none does."""
    known = [one for one in usage if one.used_bytes is not None]
    return max(known, key=lambda one: (one.used_bytes or 0) / (one.limit_bytes or math.inf), default=None)


def backend_name(ready: AcceleratorReady) -> str:
    """Return the backend's official name."""
    return BACKENDS.get(ready.backend, ready.backend)


def topology_text(ready: AcceleratorReady) -> str:
    """Describe the accelerator and why it was chosen, the distribution strategy and the topology, in one line."""
    reason = f" ({ready.backend_reason.rstrip('.')})" if ready.backend_reason else ""
    return "; ".join(part for part in (f"{backend_name(ready)}{reason}", ready.strategy, ready.topology) if part)


def kinds_text(ready: AcceleratorReady) -> str:
    """Describe the replicas, such as ``8 × TPU v5 lite on tpu-vm-0``; if there are many hosts, with their number."""
    hosts = dict.fromkeys(replica.host for replica in ready.replicas)
    counted = (f"{number} × {kind}" for kind, number in Counter(replica.kind for replica in ready.replicas).items())
    return f"{', '.join(counted)} on {', '.join(hosts) if len(hosts) <= 3 else f'{len(hosts)} hosts'}"


def account_of(state: RunState, *, is_short: bool = False) -> list[str]:
    """Say where an epoch's time goes and what would be possible; the short text has no remedy."""
    texts = [validating_text(state), "" if state.input is None else input_verdict(state.input, is_short=is_short)]
    best_ms = state.fit.best_step_ms if state.fit is not None else None
    if best_ms is not None and (step_ms := pace(state).step_ms):
        texts.append(f"reaches {percent(100 * best_ms / step_ms)} of what the compiler says is possible")
    return [text for text in texts if text]


def validating_text(state: RunState, least: float = _LEAST_SHARE) -> str:
    """Say how much of the time is validation; empty if that is unknown or less than a share."""
    share = validating_share(state.epochs)
    return "" if share is None or share < least else f"validation takes {percent(100 * share)} of the time"


def waited_percent(measured: InputMeasured) -> float | None:
    """Return the percentage of time that training waited for its input; None if no time passed."""
    return 100 * measured.wait_s / measured.span_s if measured.span_s > 0 else None


def input_verdict(measured: InputMeasured, *, is_short: bool = False) -> str:
    """Say whether input or compute limits a run, with the share of time spent waiting; the short text has no remedy."""
    share = waited_percent(measured)
    waits = "not measured" if share is None else f"{percent(share)} waiting for data"
    if measured.limit == Bottleneck.INPUT:
        return f"input-bound ({waits})" + (f". {measured.remedy}" if measured.remedy and not is_short else "")
    what = "compute-bound" if measured.limit == Bottleneck.ACCELERATOR else "input and compute are balanced"
    return f"{what} ({waits})"


class Gauge(Struct, frozen=True):
    """One figure over time."""

    name: str  # the figure's name
    value: str  # the newest value as text; empty if it is missing
    why_not: str  # why it is missing; empty if it is not
    curves: Curves  # the curves that contain its history
    metric: str  # its name in those curves
    written: Callable[[float], str] | None = None  # formats the value of a full bar; None if a full bar is 100 percent


def gauges_of(state: RunState, process: int) -> list[Gauge]:
    """Return the share of time that training waits for input, and the figures of one host."""
    waited = waited_percent(state.input) if state.input is not None else None
    why = silence(state) if state.input is None else "not measured yet"
    curves = state.host_curves.get(process, Curves())
    is_lost = any(event.process == process for event in state.lost)
    now = None if is_lost else state.hosts.get(process)
    ram = "" if now is None or now.ram_bytes is None else memory(now.ram_bytes, now.ram_limit_bytes)
    disk = "" if now is None or now.disk_read_bytes_per_s is None else f"{size(round(now.disk_read_bytes_per_s))}/s"

    host = [
        Gauge(name, value, "" if value else why_no_figure(state, process, figure), curves, metric, written)
        for name, value, figure, metric, written in (
            ("cpu", percent(now.cpu_percent if now else None), "cpu_percent", "cpu_percent", None),
            ("memory", ram, "ram_bytes", "ram_percent", None),
            ("disk", disk, "disk_read_bytes_per_s", "disk_read_mb_per_s", lambda mb: f"{size(round(mb * 1e6))}/s"),
            ("examples/s", count(now.examples_per_s if now else None), "examples_per_s", "examples_per_s", count),
        )
    ]
    waits = Gauge("waits", percent(waited), "" if waited is not None else why, state.input_curve, WAITS)
    return [waits, *(host if len(state.hosts) > 1 else host[:-1])]
