"""The figures of a host that the system pane plots over time, and why any are missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpu_console.engine.runs.curves import Curves

from .hosts import silence, waited_percent, why_no_figure
from .numbers import count, memory, percent, size

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpu_console.engine.runs.state import RunState

WAITS = "wait_percent"


@dataclass(frozen=True, slots=True)
class Gauge:
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
    waits = Gauge("waits", percent(waited), "" if waited is not None else why, state.input_curve, WAITS)
    host = _of_host(state, process)
    return [waits, *(host if len(state.hosts) > 1 else host[:-1])]


def _of_host(state: RunState, process: int) -> list[Gauge]:
    curves = state.host_curves.get(process, Curves())
    is_lost = any(event.process == process for event in state.lost)
    now = None if is_lost else state.hosts.get(process)
    ram = "" if now is None or now.ram_bytes is None else memory(now.ram_bytes, now.ram_limit_bytes)
    disk = "" if now is None or now.disk_read_bytes_per_s is None else _per_second(now.disk_read_bytes_per_s)
    rows: list[tuple[str, str, str, str, Callable[[float], str] | None]] = [
        ("cpu", percent(now.cpu_percent if now else None), "cpu_percent", "cpu_percent", None),
        ("memory", ram, "ram_bytes", "ram_percent", None),
        ("disk", disk, "disk_read_bytes_per_s", "disk_read_mb_per_s", lambda most: _per_second(most * 1e6)),
        ("examples/s", count(now.examples_per_s if now else None), "examples_per_s", "examples_per_s", count),
    ]
    return [
        Gauge(name, value, "" if value else why_no_figure(state, process, figure), curves, metric, written)
        for name, value, figure, metric, written in rows
    ]


def _per_second(count_of_bytes: float) -> str:
    return f"{size(round(count_of_bytes))}/s"
