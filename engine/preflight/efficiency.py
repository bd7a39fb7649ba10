"""The share of its best case that a run on a real TPU reached, which also shows how good the bound is."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..runs.state import RunState


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The step time of a run, compared with the least time that its steps could take."""

    tpu: str  # the TPU, such as ``v5e-8``
    best_step_ms: float  # the least time of a step, from the preflight
    measured_step_ms: float  # the median of the epochs' step times

    @property
    def share(self) -> float:
        """The share of the best case that was reached; above 1 only if the bound is wrong."""
        return self.best_step_ms / self.measured_step_ms


def efficiency_of(state: RunState) -> Efficiency | None:
    """Compare a run with its preflight; None without a TPU, a cached verdict or a measured step."""
    steps = [epoch.step_ms for epoch in state.epochs if epoch.step_ms]
    if not steps or state.accelerator is None or state.accelerator.accelerator != "tpu" or state.started is None:
        return None
    # Only here: every run that is opened asks, and hardly one ran on a TPU.
    from ..config.reading import parse_config
    from .cache import cached_verdict
    from .topologies import TOPOLOGIES, generation_of

    try:
        config = parse_config(state.started.config)
    except ConfigError:
        return None
    replicas = state.accelerator.replicas
    generations = {generation_of(replica.kind) for replica in replicas}
    for name, topology in TOPOLOGIES.items():
        if {topology.generation.name} == generations and topology.devices == len(replicas):
            verdict = cached_verdict(config, name)
            if verdict is not None and verdict.bound is not None:
                return Efficiency(name, verdict.bound.step_s * 1e3, median(steps))
    return None
