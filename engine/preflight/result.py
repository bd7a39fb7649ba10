"""What a preflight answers: whether a train step compiles, fits, how fast it can be at best, what it wastes.

Everything here is plain: it becomes the ``--json`` of `tpu-console preflight`, is kept in the cache, and is read by
the console, which loads no framework.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

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
        optimizer: What the optimizer keeps.
        batch: The device's part of a batch.
        temporaries: Activations and whatever else lives within a step.
        peak: The most at once.
        limit: What the device has for a program.
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
        """The share of the limit that stays free; negative where it does not fit."""
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
        images_per_s: Examples a second over all devices at that pace.
        epoch_s: Seconds of an epoch; None where its length is not known.
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
        flops: Operations a step on one device that the layer is paid for, padding included.
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
    """One choice, judged.

    Args:
        tpu: The TPU's name, such as ``v5e-8``.
        devices: Devices of it.
        hosts: Hosts of it.
        replica_batch: Examples a step and device.
        precision: Keras's dtype policy.
        outcome: The verdict.
        reason: One sentence: what fits, or what went wrong, in the person's own model's terms.
        memory: HBM of a device; None where nothing compiled.
        bound: The least time of a step; None likewise.
        wastes: Padding, the worst first.
        findings: What else to know, the most severe first.
        largest_batch: The largest examples a device that fit; None where it was not searched.
        compile_s: Seconds that compiling took.
        is_remembered: Whether the answer comes from the cache.
        versions: Of jax, libtpu and keras, by name.
        compiler_says: The compiler's own words, where it refused.
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
        return self.replica_batch * self.devices

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as `from_dict` reads them."""
        return asdict(self)


def from_dict(values: dict[str, Any]) -> Verdict:
    """Make a verdict of plain values.

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
