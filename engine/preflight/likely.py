"""How long a run will likely take, whether the input can keep up, and what share of a free quota that is.

A real step reaches a share of its best case. The share is known from the user's runs on the same generation of TPU;
without them only the least time is known. The host's time to start a step, and the input's speed measured on this
machine, hold for every run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import median
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ..accelerators.backend import FRAMEWORKS
from ..data.cached_facts import input_speed_of
from ..errors import ConfigError
from ..machine.environment import usable_cores
from ..storage.files import read_json
from ..storage.paths import runs_folder
from .result import Likely, Verdict
from .topologies import TOPOLOGIES, generation_of

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..runs.state import RunState

WEEK_S = 20 * 3600.0
SESSION_S = 9 * 3600.0
KAGGLE = ("v3-8", "v5e-8")  # TPUs that Kaggle offers; v3-8 until 2025
MOST_CORES = 240
"""Cores of the largest TPU host, of v4: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus"""
_MOST_RUNS = 200  # newest runs whose results are read
_LARGEST = 1 << 20  # bytes of a result


class QuotaShare(Struct, frozen=True):
    """The share of Kaggle's free time that a run takes."""

    week: float  # share of a week's time; above 1 if it is not enough
    session: float  # share of a session's time, likewise


def kaggle_share(tpu: str, run_s: float | None) -> QuotaShare | None:
    """Return the share of Kaggle's time; None for a TPU that Kaggle does not have, or a run of unknown length."""
    return None if tpu not in KAGGLE or run_s is None else QuotaShare(run_s / WEEK_S, run_s / SESSION_S)


class InputThroughput(Struct, frozen=True):
    """The examples that a TPU could take, and those that the pipeline gives on this machine."""

    wanted_per_s: float  # examples per second that the TPU could take at best, over all devices
    measured_per_s: float  # examples per second that the pipeline gave on this machine, from the cache if there is one
    cores: int  # cores that the pipeline had
    cores_needed: int  # cores like these that each host of the TPU needs to keep up; more if reading is the bottleneck

    @property
    def keeps_up(self) -> bool:
        """Whether this machine alone is fast enough."""
        return self.measured_per_s >= self.wanted_per_s


def input_throughput_of(config: RunConfig, verdict: Verdict) -> InputThroughput | None:
    """Compare a verdict's bound with the speed that `tpu-console inspect --speed` measured; None without both."""
    speed = input_speed_of(config)
    if speed is None or verdict.bound is None:
        return None
    cores, measured, wanted = usable_cores(), speed.later or speed.first, verdict.bound.images_per_s
    if host_step_s := FRAMEWORKS[config.tpu_backend].host_step_s:
        wanted = min(wanted, verdict.global_batch / host_step_s)
    needed = math.ceil(wanted * cores / measured / max(1, verdict.hosts))
    return InputThroughput(wanted, measured, cores, needed)


def likely_of(config: RunConfig, verdict: Verdict) -> Likely | None:
    """Return the likely time of a verdict's step; None without a bound."""
    bound, topology = verdict.bound, TOPOLOGIES.get(verdict.tpu)
    if bound is None or topology is None or bound.step_s <= 0:
        return None
    shares = list(_shares(topology.generation.name))
    runs = "run" if len(shares) == 1 else "runs"
    source = f"your {len(shares)} {runs} on {topology.generation.name}" if shares else ""
    low, high = (bound.step_s / max(shares), bound.step_s / min(shares)) if shares else (bound.step_s, None)
    speed = input_speed_of(config)
    waits = {"host": FRAMEWORKS[config.tpu_backend].host_step_s}
    if speed is not None:
        waits["input"] = verdict.global_batch / max(1, verdict.hosts) / (speed.later or speed.first)
    slowest, floor = max(waits.items(), key=lambda one: one[1])
    limited_by = slowest if floor > low else "device"
    likely = Likely(max(low, floor), None if high is None else max(high, floor), limited_by, source)
    run_low, run_high = replace(verdict, likely=likely).expected(bound.run_s)
    return replace(likely, run_low_s=run_low, run_high_s=run_high)


def _shares(generation: str) -> Iterator[float]:
    """Yield the share that each of the user's runs on a generation reached, the newest runs only."""
    for path in sorted(runs_folder().glob("*/summary.json"), reverse=True)[:_MOST_RUNS]:
        try:
            best = read_json(path, _LARGEST)["best_case"]
            name, share = best["tpu"], float(best["reached"])
        except (OSError, ValueError, TypeError, KeyError):
            continue
        if 0 < share <= 1 and name in TOPOLOGIES and TOPOLOGIES[name].generation.name == generation:
            yield share


class Efficiency(Struct, frozen=True):
    """The step time of a run, compared with the least time that its steps could take."""

    tpu: str  # the TPU, such as ``v5e-8``
    best_step_ms: float  # the least time of a step, from the preflight
    measured_step_ms: float  # the median of the epochs' step times

    @property
    def share(self) -> float:
        """The share of the best case that was reached; above 1 only if the bound is wrong."""
        return self.best_step_ms / self.measured_step_ms

    @property
    def summary(self) -> dict[str, Any]:
        """The ``best_case`` of ``summary.json``, as `likely_of` reads it."""
        return {"tpu": self.tpu, "step_ms": self.best_step_ms, "reached": self.share}


def efficiency_of(state: RunState) -> Efficiency | None:
    """Compare a run with its preflight; None without a TPU, a verdict or a measured step."""
    steps = [epoch.step_ms for epoch in state.epochs if epoch.step_ms]
    best = best_case_of(state) if steps else None
    return None if best is None else Efficiency(*best[:2], median(steps))


def best_case_of(state: RunState) -> tuple[str, float, dict[str, float]] | None:
    """Return a run's TPU and the least milliseconds of a step and of each layer; None without a TPU or a verdict.

    The run remembers the verdict that was there when it began, which other machines do not have; else it is looked up.
    """
    if state.accelerator is None or state.accelerator.accelerator != "tpu" or state.started is None:
        return None
    # Only here: every run that is opened asks, and hardly one ran on a TPU.
    from ..config.reading import parse_config
    from .choice import cached_verdict

    replicas = state.accelerator.replicas
    generations = {generation_of(replica.kind) for replica in replicas}
    for name, topology in TOPOLOGIES.items():
        if {topology.generation.name} == generations and topology.devices == len(replicas):
            if state.fit is not None and state.fit.best_step_ms is not None:
                return name, state.fit.best_step_ms, state.fit.best_layers_ms
            try:
                verdict = cached_verdict(parse_config(state.started.config), name)
            except ConfigError:
                return None
            if verdict is not None and verdict.bound is not None:
                layers = {layer: seconds * 1e3 for layer, seconds in verdict.bound.layers.items()}
                return name, verdict.bound.step_s * 1e3, layers
    return None
