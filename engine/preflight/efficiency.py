"""What a run on a real TPU reached of its best case, so that the bound itself can be judged."""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ..config.reading import parse_config
from ..errors import ConfigError
from .cache import cached_verdict
from .topologies import TOPOLOGIES

if TYPE_CHECKING:
    from ..runs.state import RunState

_LITE = re.compile(r"\s*lite(?:pod)?")


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The pace of a run beside the least time that its steps could take.

    Args:
        tpu: The TPU that was judged, such as ``v5e-8``.
        best_step_ms: The least time of a step, as the preflight had it.
        measured_step_ms: The middle one of the epochs' times of a step.
    """

    tpu: str
    best_step_ms: float
    measured_step_ms: float

    @property
    def share(self) -> float:
        """What was reached of the best case; above 1 only where the bound is wrong."""
        return self.best_step_ms / self.measured_step_ms


def efficiency_of(state: RunState) -> Efficiency | None:
    """Set a run beside its preflight.

    Args:
        state: The run's state.

    Returns:
        The comparison; None for a run that was on no TPU, whose verdict is not remembered, or with no measured step.
    """
    steps = [epoch.step_ms for epoch in state.epochs if epoch.step_ms]
    if not steps or state.accelerator is None or state.accelerator.accelerator != "tpu" or state.started is None:
        return None
    try:
        config = parse_config(state.started.config)
    except ConfigError:
        return None
    replicas = state.accelerator.replicas
    generations = {generation(replica.kind) for replica in replicas}
    for name, topology in TOPOLOGIES.items():
        if {topology.generation.name} == generations and topology.devices == len(replicas):
            verdict = cached_verdict(config, name)
            if verdict is not None and verdict.bound is not None:
                return Efficiency(name, verdict.bound.step_s * 1e3, median(steps))
    return None


def generation(kind: str) -> str:
    """Return the generation of a device, such as ``v5e`` for JAX's ``TPU v5 lite``.

    Args:
        kind: What the framework calls the device.
    """
    name = kind.lower().removeprefix("tpu").strip()
    if _LITE.search(name):
        return f"{_LITE.sub('', name)}e"
    return {"v5": "v5p", "7x": "tpu7x", "v7x": "tpu7x"}.get(name, name)
