"""Whether the input pipeline could keep a TPU busy, from its speed on this machine."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..data.input_speed import input_speed_of

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from .result import Verdict


@dataclass(frozen=True, slots=True)
class Feeding:
    """What a TPU could take, and what the pipeline gives here.

    Args:
        wanted_per_s: Examples a second that the TPU could take at best, over all devices.
        measured_per_s: Examples a second that the pipeline gave on this machine, once examples are cached where they
            are.
        cores: Cores it had for that.
        cores_needed: Cores like these that each host of the TPU needs to keep up; more where reading is what limits.
    """

    wanted_per_s: float
    measured_per_s: float
    cores: int
    cores_needed: int

    @property
    def keeps_up(self) -> bool:
        """Whether this machine alone would do."""
        return self.measured_per_s >= self.wanted_per_s


def feeding_of(config: RunConfig, verdict: Verdict, cores: int | None = None) -> Feeding | None:
    """Compare a verdict's bound with the speed that `tpu-console inspect --speed` measured.

    Args:
        config: The configuration whose pipeline it is.
        verdict: The verdict.
        cores: Cores that the measurement had; all of this process by default.

    Returns:
        The comparison; None where nothing was measured or nothing compiled.
    """
    speed = input_speed_of(config)
    if speed is None or verdict.bound is None:
        return None
    cores = cores or len(os.sched_getaffinity(0))
    measured = speed.later or speed.first
    wanted = verdict.bound.images_per_s
    needed = math.ceil(wanted * cores / measured / max(1, verdict.hosts))
    return Feeding(wanted, measured, cores, needed)
