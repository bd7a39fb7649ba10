"""Whether the input pipeline could keep a TPU busy, from its measured speed on this machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..data.input_speed import input_speed_of
from ..machine.resources import usable_cores
from .bound import HOST_STEP_S

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from .result import Verdict


_MOST_CORES = 240
"""Cores of the largest TPU host, of v4: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus"""


@dataclass(frozen=True, slots=True)
class InputThroughput:
    """The examples that a TPU could take, and those that the pipeline gives on this machine."""

    wanted_per_s: float  # examples per second that the TPU could take at best, over all devices
    measured_per_s: float  # examples per second that the pipeline gave on this machine, from the cache if there is one
    cores: int  # cores that the pipeline had
    cores_needed: int  # cores like these that each host of the TPU needs to keep up; more if reading is the bottleneck

    @property
    def is_too_much(self) -> bool:
        """Whether no host has the cores that it needs."""
        return self.cores_needed > _MOST_CORES

    @property
    def keeps_up(self) -> bool:
        """Whether this machine alone is fast enough."""
        return self.measured_per_s >= self.wanted_per_s


def input_throughput_of(config: RunConfig, verdict: Verdict) -> InputThroughput | None:
    """Compare a verdict's bound with the speed that `tpu-console inspect --speed` measured; None without both."""
    speed = input_speed_of(config)
    if speed is None or verdict.bound is None:
        return None
    cores = usable_cores()
    measured = speed.later or speed.first
    wanted = verdict.bound.images_per_s
    if not config.takes_tensorflow:
        wanted = min(wanted, verdict.global_batch / HOST_STEP_S)
    needed = math.ceil(wanted * cores / measured / max(1, verdict.hosts))
    return InputThroughput(wanted, measured, cores, needed)
