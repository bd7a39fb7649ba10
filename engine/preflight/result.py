"""The verdict of a preflight: whether a training step compiles, fits, how fast it can be at best, what it wastes.

It becomes the ``--json`` of `tpu-console preflight`, is cached, and is read by the console, which loads no framework.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ..config.batch import global_batch
from ..findings import Finding, Severity


class Outcome(StrEnum):
    """The verdict on one choice of TPU, batch and precision."""

    FITS = "fits"
    DOES_NOT_FIT = "does not fit"
    DOES_NOT_COMPILE = "does not compile"
    UNKNOWN = "could not tell"


@dataclass(frozen=True, slots=True)
class Memory:
    """HBM of one device while a step runs, in bytes.

    Args:
        parameters: The model's weights.
        optimizer: The optimizer's slots.
        batch: The device's part of a batch.
        temporaries: Activations and everything else that exists only within a step.
        peak: The most at once.
        limit: What a program may use of the device.
        is_lower_bound: Whether the compiler was not asked: ``temporaries`` is 0, and a step needs more than ``peak``.
    """

    parameters: int
    optimizer: int
    batch: int
    temporaries: int
    peak: int
    limit: int
    is_lower_bound: bool = False

    @property
    def headroom(self) -> float:
        """The share of the limit that stays free; negative if it does not fit."""
        return 1.0 - self.peak / self.limit


@dataclass(frozen=True, slots=True)
class Bound:
    """The least time a step can take (Williams et al. 2009, roofline): a bound, never a prediction.

    Args:
        flops: Floating-point operations of a step on one device.
        hbm_bytes: Bytes that one device reads and writes in its memory.
        all_reduce_bytes: Bytes of gradients that one device exchanges with the others.
        compute_s: Seconds for the operations at the chip's peak.
        memory_s: Seconds for the bytes at the memory's peak.
        exchange_s: Seconds for the exchange at the interconnect's peak.
        limited_by: ``compute``, ``memory`` or ``exchange``.
        step_s: The largest of the three.
        images_per_s: Examples per second over all devices at that pace.
        epoch_s: Seconds per epoch; None if its length is unknown.
        run_s: Seconds of the whole run, without compiling and validating; None likewise.
    """

    flops: float
    hbm_bytes: float
    all_reduce_bytes: float
    compute_s: float
    memory_s: float
    exchange_s: float
    limited_by: str
    step_s: float
    images_per_s: float
    epoch_s: float | None = None
    run_s: float | None = None


@dataclass(frozen=True, slots=True)
class Waste:
    """Padding of one layer's dimension to the tiles of the matrix unit.

    Args:
        layer: The layer's name in the model.
        dimension: ``batch`` or ``features``.
        size: As it is.
        padded: As it is computed.
        share: Share of the layer's work that is padding.
        flops: Operations of the layer per step on one device, padding included.
        nearest: The nearest size that wastes nothing.
    """

    layer: str
    dimension: str
    size: int
    padded: int
    share: float
    flops: float
    nearest: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one choice.

    Args:
        tpu: The TPU's name, such as ``v5e-8``.
        replica_batch: Examples per step and device.
        reason: One sentence: what fits, or what went wrong, in terms of the user's model.
        memory: HBM of a device; None if nothing compiled.
        bound: The least time of a step; None likewise.
        wastes: Padding, the worst first.
        findings: What else to know, the most severe first.
        largest_batch: The largest batch per device that fits; None if it was not searched.
        is_remembered: Whether the verdict comes from the cache.
    """

    tpu: str
    devices: int
    hosts: int
    replica_batch: int
    precision: str
    outcome: Outcome
    reason: str
    memory: Memory | None = None
    bound: Bound | None = None
    wastes: tuple[Waste, ...] = ()
    findings: tuple[Finding, ...] = ()
    largest_batch: int | None = None
    compile_s: float = 0.0
    is_remembered: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    compiler_says: str = ""

    @property
    def global_batch(self) -> int:
        """Examples a step over all devices."""
        return global_batch(self.replica_batch, self.devices)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as `from_dict` reads them."""
        return asdict(self)


def from_dict(values: dict[str, Any]) -> Verdict:
    """Return the verdict with these plain values.

    Raises:
        TypeError: They are not those of a verdict.
        KeyError: Likewise.
    """
    return Verdict(
        **{
            **values,
            "outcome": Outcome(values["outcome"]),
            "memory": Memory(**values["memory"]) if values["memory"] else None,
            "bound": Bound(**values["bound"]) if values["bound"] else None,
            "wastes": tuple(Waste(**one) for one in values["wastes"]),
            "findings": tuple(Finding(**{**one, "severity": Severity(one["severity"])}) for one in values["findings"]),
        }
    )
