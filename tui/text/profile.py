"""Where the time of a few traced steps went: what limits them, in a sentence, and the figures as bars."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from tpu_console.engine.accelerators.backend import framework_of
from tpu_console.engine.monitoring.alerts import ONE_SHAPE
from tpu_console.engine.runs.events import Compiled, Profiled, Spent

from .numbers import NONE, duration, milliseconds, plural
from .tables import Bar, Column, as_lines, bar_chart

if TYPE_CHECKING:
    from tpu_console.engine.runs.state import RunState

    Traced = tuple[str, Profiled]
    """Where steps were traced, such as ``at step 20``, and what the trace says."""

_SHOWN = 8  # bars of a chart
_NARROW = 50  # cells, below which there is room for one further column only
_NO_LAYER = "(no layer)"
_LEAST_FLOAT32 = 0.10
_IDLE, _BUSY = 0.30, 0.50  # XProf calls a matrix unit idle below the first; above the second, memory is the limit
_LEAST_COMPILING = 0.10  # of the time of training
_LEAST_CHANGE = 0.05  # of a step's time: less may be chance
_MOST = 0.5  # from this share of computing on, one layer is the cause
_LEAST = {Spent.INPUT: 0.20, Spent.CALLBACKS: 0.10, Spent.HOST: 0.10, Spent.TRANSFER: 0.10, Spent.EXCHANGE: 0.10}
"""The shares of a step from which on a cause is named: XProf calls a device idle from a tenth on."""

_CACHED = {True: "yes", False: "no", None: ""}
_COMPILATIONS = (
    Column("compiled", 5, value=lambda one: "validation" if one.is_validation else "training"),
    Column("epoch", 4, right=True, value=lambda one: max(1, one.epoch), text=str),
    Column("took", 3, right=True, value=lambda one: one.seconds, text=duration),
    Column("cached", 1, value=lambda one: _CACHED[one.is_cached]),
    Column("because", 2, value=lambda one: f"{one.part}: {one.batch}, not {one.before}" if one.part else one.batch),
)


def changes_in(reason: str) -> list[str]:
    """Return the settings that a sentence says to make, such as ``precision=mixed_bfloat16``."""
    return re.findall(r"\b[a-z_.]+=\w+", reason)


def reason_of(profiled: Profiled, state: RunState) -> str:
    """Say what limits a step and what to do about it."""
    again, seconds = _compiled_again(state)
    if seconds >= _LEAST_COMPILING * (profiled.elapsed_s or 1.0):
        return again
    step_s = profiled.step_s or 1.0
    shares = {cause: profiled.spent.get(cause, 0.0) / step_s for cause in Spent}
    cause = max((one for one, least in _LEAST.items() if shares[one] >= least), key=shares.__getitem__, default=None)
    if cause is None:
        return _of_computing(profiled, state, f"{shares[Spent.COMPUTING]:.0%}")
    share, larger = f"{shares[cause]:.0%} of a step", _larger(state)
    match cause:
        case Spent.INPUT:
            text = f"Training waits for its input in {share}. {state.input.remedy if state.input is not None else ''}"
        case Spent.CALLBACKS:
            name, seconds = next(iter(profiled.callbacks.items()), ("", 0.0))
            text = f"The callback {name} takes {milliseconds(seconds * 1e3)} ms of every step, {seconds / step_s:.0%}."
            text += " Let it work at the end of an epoch, or every 100 steps."
        case Spent.TRANSFER:
            text = f"Moving batches to the device takes {share}. Send smaller numbers, such as images as uint8."
        case Spent.EXCHANGE:
            text = f"The replicas exchange gradients in {share}. Set {larger}: that share gets smaller."
        case _:
            each, devices = state.fit.steps_per_execution if state.fit is not None else 1, state.accelerator
            is_one = devices is not None and framework_of(devices.backend).one_step_reason(len(devices.replicas))
            remedy = larger if each > 1 or is_one else "a larger batch_size, or steps_per_execution=10"
            text = f"The device waits for Python in {share}. Set {remedy}."
    return f"{text.rstrip()} Without that, a step takes {milliseconds((1 - shares[cause]) * step_s * 1e3)} ms at best."


def _larger(state: RunState) -> str:
    batch = state.fit.replica_batch if state.fit is not None else None
    return f"batch_size={2 * batch}" if batch else "a larger batch_size"


def _compiled_again(state: RunState) -> tuple[str, float]:
    """Say how long the training step was compiled for other batches than the first; also return the seconds."""
    again = [one for one in state.compiled if one.part and not one.is_validation]
    if not again:
        return "", 0.0
    last, seconds = again[-1], sum(one.seconds for one in again)
    took = f"Compiling the training step again took {duration(seconds)}, {plural(len(again), 'time')}"
    return f"{took}: the {last.part} of a batch were {last.batch}, not {last.before}. {ONE_SHAPE}", seconds


def _of_computing(profiled: Profiled, state: RunState, share: str) -> str:
    """Say what the device computes longest. A TPU multiplies float32 as bfloat16, but moves twice as many bytes."""
    name, seconds = next(iter(profiled.layers.items()), ("", 0.0))
    part = seconds / (sum(profiled.layers.values()) or 1.0)
    largest, weights = next(iter(profiled.weights.items()), ("", 0.0))
    if name and name == profiled.optimizer and part >= _MOST:
        text = f"The optimizer takes {part:.0%} of the computing: every step, it updates all weights"
        return f"{text}, {weights:.0%} of which are in '{largest}'. Make '{largest}' smaller."
    computing_s = profiled.spent.get(Spent.COMPUTING, 0.0)
    float32_s = computing_s if profiled.float32_s is None else profiled.float32_s
    precision = state.started.config.get("precision") if state.started is not None else None
    is_float32 = precision == "float32" or (precision is None and profiled.float32_s is not None)
    device = state.accelerator.accelerator if state.accelerator is not None else ""
    if is_float32 and device in {"tpu", "gpu"} and float32_s >= _LEAST_FLOAT32 * profiled.step_s:
        text = f"The device computes in float32 for {float32_s / (computing_s or 1.0):.0%} of its computing"
        best = milliseconds((profiled.step_s - float32_s / 2) * 1e3)
        return f"{text}. Set precision=mixed_bfloat16: half as many bytes move, and a step takes {best} ms at best."
    text = f"The device is the limit: it computes in {share} of a step"
    text += f", {part:.0%} of that in the layer '{name}'" if name and part >= _MOST else ""
    text += f", and uses {used}." if (used := _used(profiled)) else "."
    if used and (profiled.matrix_unit or 0.0) < _IDLE and (profiled.bandwidth or 0.0) < _BUSY:
        text += f" Layers in multiples of 128 and {_larger(state)} keep it busier."
    return text


def _used(profiled: Profiled) -> str:
    """Say how much of a device is used while it computes; empty if the trace does not have that."""
    if profiled.matrix_unit is None or profiled.bandwidth is None:
        return ""
    return f"{profiled.matrix_unit:.0%} of the matrix unit and {profiled.bandwidth:.0%} of the memory's bandwidth"


def compilation_lines(compiled: Sequence[Compiled], width: int | None) -> list[str]:
    """List compilations, the newest first."""
    if not compiled:
        return []
    lines, seconds = as_lines(_COMPILATIONS, compiled[: -_SHOWN - 1 : -1], width), sum(one.seconds for one in compiled)
    earlier = [f"{len(compiled) - _SHOWN} earlier ones; {duration(seconds)} in all"] if len(compiled) > _SHOWN else []
    return [*lines, *earlier]


def traced_before(state: RunState) -> Traced | None:
    """Return the trace before the newest one of the same run; None if there is none."""
    last = state.profiled[-1].step if state.profiled else 0
    earlier = next((one for one in reversed(state.profiled) if one.step < last and not one.problem), None)
    return (f"at step {earlier.step:,}", earlier) if earlier is not None else None


def change_of(profiled: Profiled, before: Traced) -> str:
    """Say which of two traces has the shorter step, by how much, and what most of that is."""
    where, earlier = before
    now, then = (f"{milliseconds(one.step_s * 1e3)} ms" for one in (profiled, earlier))
    change = profiled.step_s / (earlier.step_s or 1.0) - 1
    if abs(change) < _LEAST_CHANGE:
        return f"A step takes as long as {where}: {now} and {then}."
    sign = math.copysign(1.0, change)
    spent = {one: sign * (profiled.spent.get(one, 0.0) - earlier.spent.get(one, 0.0)) for one in Spent}
    most, less = max(spent, key=lambda one: spent[one]), "more" if change > 0 else "less"
    return f"A step takes {now} instead of {then} {where}: {abs(change):.0%} {less}, mostly {most.value}."


def profile_lines(
    state: RunState, width: int, if_none: str = "S traces a few steps.", before: Traced | None = None
) -> list[str]:
    """Return the page about a run's steps: what limits them, the time by cause, layer and operation, compilations.

    `if_none` is said if no steps were traced; `before` is what to compare with, by default an earlier trace of the run.
    """
    compiled = ["", *compilation_lines(state.compiled, width)]
    if not state.profiled:
        return [_compiled_again(state)[0] or if_none, *compiled]
    profiled = state.profiled[-1]
    if profiled.problem:
        return [f"The trace of {plural(profiled.steps, 'step')} cannot be used: {profiled.problem}", *compiled]
    before = before or traced_before(state)
    best_ms = state.fit.best_step_ms if state.fit is not None else None
    possible = f", {milliseconds(best_ms)} ms at best" if best_ms is not None else ""
    best_s = {name: ms / 1e3 for name, ms in state.fit.best_layers_ms.items()} if state.fit else {}
    earlier = before[1] if before is not None else None
    spent, layers, operations = (earlier.spent, earlier.layers, earlier.operations) if earlier else ({}, {}, {})
    used = _used(profiled)
    parts = [
        textwrap.wrap(change_of(profiled, before), width) if before is not None else [],
        _bars(f"{milliseconds(profiled.step_s * 1e3)} ms a step{possible}", width, profiled.spent, spent),
        textwrap.wrap(f"In use while computing: {used}.", width) if used else [],
        _bars("computing by layer", width, profiled.layers, layers, best_s),
        _bars("computing by operation", width, profiled.operations, operations),
    ]
    return [reason_of(profiled, state), *(line for part in parts if part for line in ("", *part)), *compiled]


def _bars(
    title: str,
    width: int,
    seconds: Mapping[str, float],
    before: Mapping[str, float],
    best: Mapping[str, float] = MappingProxyType({}),
) -> list[str]:
    """Draw seconds as bars, with those before and at best in further columns if there are any."""
    columns = {"at best": best, "before": before}
    having = [(heading, column) for heading, column in columns.items() if column.keys() & seconds.keys()]
    shown = dict(having[: 1 if width < _NARROW else None])
    longest = {name: max(seconds.get(name, 0.0), before.get(name, 0.0)) for name in [*seconds, *before]}
    total, bars = sum(seconds.values()) or 1.0, []
    for name in sorted(filter(longest.get, longest), key=lambda name: -longest[name])[:_SHOWN]:
        value = seconds.get(name, 0.0)
        further = [milliseconds(column[name] * 1e3) if name in column else NONE for column in shown.values()]
        bars.append(Bar(name or _NO_LAYER, value, (milliseconds(value * 1e3), f"{value / total:.0%}", *further)))
    return bar_chart(bars, (title, "ms", "share", *shown), width)
