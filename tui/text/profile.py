"""Where the time of a few traced steps went: what limits them, in a sentence, and the figures as bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpu_console.engine.accelerators.table import framework_of
from tpu_console.engine.monitoring.alerts import ONE_SHAPE
from tpu_console.engine.runs.events import Spent

from .bars import Bar, bar_chart
from .numbers import duration, milliseconds, plural
from .tables import Column, as_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tpu_console.engine.runs.events import Compiled, Profiled
    from tpu_console.engine.runs.state import RunState

_SHOWN = 8  # bars of a chart
_SHORT_S = 1e-3
_LEAST_COMPILING = 0.10  # of the time of training
_MOST = 0.5  # from this share of computing on, one layer is the cause
_LEAST = {Spent.INPUT: 0.20, Spent.CALLBACKS: 0.10, Spent.HOST: 0.10, Spent.TRANSFER: 0.10, Spent.EXCHANGE: 0.10}
"""The shares of a step from which on a cause is named: XProf calls a device idle from a tenth on."""


def _because(one: Compiled) -> str:
    if one.part:
        return f"{one.part}: {one.batch}, not {one.before}"
    return one.batch + (f", {one.steps} steps at a time" if one.steps > 1 else "")


_CACHED = {True: "yes", False: "no", None: ""}
_COMPILATIONS = (
    Column("compiled", 5, value=lambda one: "validation" if one.is_validation else "training"),
    Column("epoch", 4, right=True, value=lambda one: max(1, one.epoch), text=str),
    Column("took", 3, right=True, value=lambda one: one.seconds, text=duration),
    Column("cached", 1, value=lambda one: _CACHED[one.is_cached]),
    Column("because", 2, value=_because),
)


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
    without_s = step_s * (1 - shares[cause])
    at_best = f"Without that, a step takes {milliseconds(without_s * 1e3)} ms at best."
    return f"{_of_waiting(cause, profiled, state, shares[cause])} {at_best}"


def _of_waiting(cause: Spent, profiled: Profiled, state: RunState, part: float) -> str:
    """Say what a step waits for in a part of its time."""
    share = f"{part:.0%} of a step"
    match cause:
        case Spent.INPUT:
            remedy = state.input.remedy if state.input is not None else ""
            return f"Training waits for its input in {share}. {remedy}".rstrip()
        case Spent.CALLBACKS:
            name, seconds = next(iter(profiled.callbacks.items()), ("", 0.0))
            takes = f"{milliseconds(seconds * 1e3)} ms of every step, {seconds / (profiled.step_s or 1.0):.0%}"
            return f"The callback {name} takes {takes}. Let it work at the end of an epoch, or every 100 steps."
        case Spent.TRANSFER:
            return f"Moving batches to the device takes {share}. Send smaller numbers, such as images as uint8."
        case Spent.EXCHANGE:
            return f"The replicas exchange gradients in {share}. A larger batch_size makes that share smaller."
    each, devices = state.fit.steps_per_execution if state.fit is not None else 1, state.accelerator
    is_one = devices is not None and framework_of(devices.backend).one_step_reason(len(devices.replicas))
    why = " Steps are short, so set" if profiled.step_s < _SHORT_S else " Set"
    or_more = "" if each > 1 or is_one else ", or steps_per_execution=10"
    return f"The device waits for Python in {share}.{why} a larger batch_size{or_more}."


def _compiled_again(state: RunState) -> tuple[str, float]:
    """Say how long the training step was compiled for other batches than the first; also return the seconds."""
    again = [one for one in state.compiled if one.part and not one.is_validation]
    if not again:
        return "", 0.0
    last, seconds = again[-1], sum(one.seconds for one in again)
    times = f", {len(again)} times" if len(again) > 1 else ""
    took = f"Compiling the training step again took {duration(seconds)}{times}"
    return f"{took}: the {last.part} of a batch were {last.batch}, not {last.before}. {ONE_SHAPE}", seconds


def _of_computing(profiled: Profiled, state: RunState, share: str) -> str:
    """Say what the device computes for the longest time."""
    name, seconds = next(iter(profiled.layers.items()), ("", 0.0))
    part = seconds / (sum(profiled.layers.values()) or 1.0)
    largest, weights = next(iter(profiled.weights.items()), ("", 0.0))
    device = state.accelerator.accelerator if state.accelerator is not None else ""
    is_float32 = state.started is not None and state.started.config.get("precision") == "float32"
    if name and name == profiled.optimizer:
        text = f"The optimizer takes {part:.0%} of the computing: every step, it updates all weights"
        return f"{text}, {weights:.0%} of which are in '{largest}'. Make '{largest}' smaller."
    if is_float32 and device in {"tpu", "gpu"}:
        return "The device computes in float32. Set precision=mixed_bfloat16: it multiplies at least twice as fast."
    text = f"The device is the limit: it computes in {share} of a step"
    return f"{text}, {part:.0%} of that in the layer '{name}'." if name and part >= _MOST else f"{text}."


def compilation_lines(compiled: Sequence[Compiled], width: int | None) -> list[str]:
    """List compilations, the newest first."""
    if not compiled:
        return []
    lines, seconds = as_lines(_COMPILATIONS, compiled[: -_SHOWN - 1 : -1], width), sum(one.seconds for one in compiled)
    earlier = [f"{len(compiled) - _SHOWN} earlier ones; {duration(seconds)} in all"] if len(compiled) > _SHOWN else []
    return [*lines, *earlier]


def profile_lines(state: RunState, width: int) -> list[str]:
    """Return the page about a run's steps: what limits them, the time by cause, layer and operation, compilations."""
    compiled = ["", *compilation_lines(state.compiled, width)]
    if not state.profiled:
        return [_compiled_again(state)[0] or "S traces a few steps.", *compiled]
    profiled = state.profiled[-1]
    if profiled.problem:
        return [f"The trace of {plural(profiled.steps, 'step')} cannot be used: {profiled.problem}", *compiled]
    earlier = next((one for one in reversed(state.profiled) if one.step < profiled.step and not one.problem), None)
    before = f", {milliseconds(earlier.step_s * 1e3)} ms at step {earlier.step:,}" if earlier is not None else ""
    best_ms = state.fit.best_step_ms if state.fit is not None else None
    possible = f", {milliseconds(best_ms)} ms at best by the preflight" if best_ms is not None else ""
    took = f"{milliseconds(profiled.step_s * 1e3)} ms a step{before}{possible}"
    spent = {name: seconds for name, seconds in profiled.spent.items() if seconds}
    layers = {name or "(no layer)": seconds for name, seconds in profiled.layers.items()}
    return [
        reason_of(profiled, state),
        "",
        *_bars(spent, took, width, earlier.spent if earlier is not None else None),
        "",
        *_bars(layers, "computing by layer", width),
        "",
        *_bars(profiled.operations, "computing by operation", width),
        *compiled,
    ]


def _bars(seconds: Mapping[str, float], title: str, width: int, before: Mapping[str, float] | None = None) -> list[str]:
    total, bars = sum(seconds.values()) or 1.0, []
    for name, value in sorted(seconds.items(), key=lambda one: -one[1])[:_SHOWN]:
        figures = [milliseconds(value * 1e3), f"{value / total:.0%}"]
        figures += [] if before is None else [milliseconds(before.get(name, 0.0) * 1e3)]
        bars.append(Bar(name, value, tuple(figures)))
    return bar_chart(bars, (title, "ms", "share", *(["before"] if before is not None else [])), width)
