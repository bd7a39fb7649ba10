"""The TPUs that a preflight knows: their names on Colab, Kaggle and Google Cloud, and for the compiler.

A name is a generation and a number. The number counts chips for v5e and v6e, TensorCores for the others, two a chip
(https://cloud.google.com/tpu/docs/v4, …/v5e, …/v5p, …/v6e, …/tpu7x; slices and hosts as in their tables). What a
framework sees as a device is a core of v2, v3 and TPU7x and a whole chip of v4, v5e, v5p and v6e: the two cores of a
v4 or v5p work as one ("megacore"). The compiler makes two devices of a v4 chip unless it is configured otherwise.

Peak bf16 operations and HBM are from Google's tables on those pages (v4: 1,200 GB/s in the newer ones, 1,228 in the
older; v2: Jouppi et al., "A domain-specific supercomputer for training deep neural networks", CACM 2020). What a
program may use of HBM is less: the figures are those that libtpu 0.0.51 names when it refuses a program that is too
large.

The interconnect's figures are of one direction over all links of a chip. For v5e, v5p, v6e and TPU7x Google's tables
give both directions together: 400, 1200, 800 and 1200 GB/s a chip. For v3 and v4 they give the all-reduce bandwidth of
a pod, 340 TB/s over 1,024 chips (332 GB/s a chip) and 1.1 PB/s over 4,096 (269); v4 has 6 links of 50 GB/s at most
(Jouppi et al., "TPU v4", ISCA 2023; 45 in https://jax-ml.github.io/scaling-book/tpus), and for a bound the larger
counts. v2 has 4 links of 496 Gbit/s (CACM 2020).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ConsoleError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of TPUs."""

    name: str  # as Google Cloud names it, such as ``v5e``
    devices_per_chip: int  # devices that a framework sees on a chip
    chip_flops: float  # peak bf16 operations per second of a chip
    chip_hbm_bytes_per_s: float  # HBM bandwidth of a chip, in bytes per second
    chip_link_bytes_per_s: float  # bytes per second that a chip sends over all its links
    usable_hbm_gib: float  # what a program may use of one device's HBM, in GiB
    shapes: Mapping[int, tuple[int, ...]]  # the slices on offer, by the number in their name: chips along each side
    whole_host: tuple[int, ...]  # chips along each side of the largest machine that holds a slice alone
    part_host: tuple[int, ...]  # likewise of each machine of a larger slice
    chip_config: str = ""  # the compiler option that makes one device of a chip; empty if that is the default


_FLAT = {8: (2, 2), 32: (4, 4), 64: (4, 8), 128: (8, 8), 256: (8, 16), 512: (16, 16)}
_SMALL = {1: (1, 1), 4: (2, 2), 8: (2, 4), 16: (4, 4), 32: (4, 8), 64: (8, 8), 128: (8, 16), 256: (16, 16)}
_DEEP = {8: (2, 2, 1), 16: (2, 2, 2), 32: (2, 2, 4), 64: (2, 4, 4), 128: (4, 4, 4)}

GENERATIONS: dict[str, Generation] = {
    generation.name: generation
    for generation in (
        Generation("v2", 2, 45e12, 700e9, 248e9, 7.48, _FLAT, (2, 2), (2, 2)),
        Generation("v3", 2, 123e12, 900e9, 332e9, 15.48, _FLAT, (2, 2), (2, 2)),
        Generation("v4", 1, 275e12, 1228e9, 300e9, 30.75, _DEEP, (2, 2, 1), (2, 2, 1), "megacore"),
        Generation("v5e", 1, 197e12, 819e9, 200e9, 15.75, _SMALL, (2, 4), (2, 2)),
        Generation("v5p", 1, 459e12, 2765e9, 600e9, 95.73, _DEEP, (2, 2, 1), (2, 2, 1)),
        Generation("v6e", 1, 918e12, 1638e9, 400e9, 31.24, _SMALL, (2, 4), (2, 2)),
        Generation("tpu7x", 2, 2307e12, 7380e9, 600e9, 94.74, _DEEP, (2, 2, 1), (2, 2, 1)),
    )
}
"""Every generation by its name."""


@dataclass(frozen=True, slots=True)
class Topology:
    """A TPU."""

    name: str
    generation: Generation
    shape: tuple[int, ...]  # chips along each side

    @property
    def compiler_name(self) -> str:
        """What the compiler calls it, such as ``v5e:2x4``."""
        return f"{self.generation.name}:{'x'.join(map(str, self.shape))}"

    @property
    def chips(self) -> int:
        """The number of chips."""
        return math.prod(self.shape)

    @property
    def devices(self) -> int:
        """Devices that a framework sees, which are the replicas of a run."""
        return self.chips * self.generation.devices_per_chip

    @property
    def host_shape(self) -> tuple[int, ...]:
        """Chips of one host along each side."""
        whole = self.generation.whole_host
        fits = all(side <= most for side, most in zip(self.shape, whole, strict=True))
        return self.shape if fits else self.generation.part_host

    @property
    def hosts(self) -> int:
        """The number of host machines."""
        return self.chips // math.prod(self.host_shape)

    @property
    def compiler_options(self) -> dict[str, object]:
        """Options of the compiler besides the name."""
        bounds = (*self.host_shape, 1)[:3]
        config = {"chip_config_name": self.generation.chip_config} if self.generation.chip_config else {}
        return {"chips_per_host_bounds": bounds, **config}

    @property
    def peak_flops(self) -> float:
        """Peak bf16 operations per second of one device."""
        return self.generation.chip_flops / self.generation.devices_per_chip

    @property
    def hbm_bytes_per_s(self) -> float:
        """HBM bandwidth of one device, in bytes per second."""
        return self.generation.chip_hbm_bytes_per_s / self.generation.devices_per_chip

    @property
    def link_bytes_per_s(self) -> float:
        """Most bytes per second that one device can send: all links of its chip, as if the other core were idle."""
        return self.generation.chip_link_bytes_per_s

    @property
    def usable_hbm_bytes(self) -> int:
        """What a program may use of one device's HBM, in bytes."""
        return round(self.generation.usable_hbm_gib * 2**30)


TOPOLOGIES: dict[str, Topology] = {
    f"{generation.name}-{number}": Topology(f"{generation.name}-{number}", generation, shape)
    for generation in GENERATIONS.values()
    for number, shape in generation.shapes.items()
}
"""Every TPU by its usual name."""

USUAL = ("v2-8", "v3-8", "v4-8", "v5e-1", "v5e-4", "v5e-8", "v5p-8", "v6e-1", "v6e-4", "v6e-8", "tpu7x-8")
"""The most common ones, on one host each."""

# Google Cloud's accelerator types, the names in JAX's device kinds, and what people write.
_ALIASES = {
    "v5litepod": "v5e",
    "v5lite": "v5e",
    "v6lite": "v6e",
    "v6litepod": "v6e",
    "trillium": "v6e",
    "7x": "tpu7x",
    "v7x": "tpu7x",
    "ironwood": "tpu7x",
    "v5": "v5p",
}


def find_topology(name: str) -> Topology:
    """Return the TPU with a name, in any case, with ``_`` or ``-``, and with or without ``tpu`` in front.

    Raises:
        ConsoleError: There is no such TPU; the nearest is named.
    """
    plain = re.sub(r"[\s_]+", "-", name.strip().lower())
    generation, _, number = plain.rpartition("-")
    for written in (generation, re.sub(r"^tpu-?", "", generation)):
        if found := TOPOLOGIES.get(f"{_ALIASES.get(written, written)}-{number}"):
            return found
    known = _ALIASES.get(generation, generation)
    same = [other for other in TOPOLOGIES if other.rpartition("-")[0] == known]
    if same:
        raise ConsoleError(f"There is no TPU '{name}'; of {known} there are: {', '.join(same)}.")
    hint = did_you_mean(plain, TOPOLOGIES)
    usual = f"The usual ones: {', '.join(USUAL)}."
    if hint.startswith("did you"):
        raise ConsoleError(f"There is no TPU '{name}'; {hint}", remedy=usual)
    raise ConsoleError(f"There is no TPU '{name}'.", remedy=usual)
