"""The TPUs that a preflight knows: their names on Colab, Kaggle and Google Cloud, and for the compiler.

A name is a generation and a number. The number counts chips for v5e and v6e, TensorCores for the others, two a chip
(https://cloud.google.com/tpu/docs/v4, …/v5e, …/v5p, …/v6e, …/tpu7x; slices and hosts as in their tables). What a
framework sees as a device is a core of v2, v3 and TPU7x and a whole chip of v4, v5e, v5p and v6e: the two cores of a
v4 or v5p work as one ("megacore"). The compiler makes two devices of a v4 chip unless it is configured otherwise.

Every figure names its sources. Where they differ, the largest counts, since a bound must not be above the real time.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import ConsoleError, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping


_CLOUD = "https://cloud.google.com/tpu/docs/"
_JAX = "jax/_src/pallas/mosaic/tpu_info.py of JAX 0.10.2"
_CACM = "Jouppi et al., A domain-specific supercomputer for training deep neural networks, CACM 2020"
_ISCA = "Jouppi et al., TPU v4, ISCA 2023: 6 links of 50 GB/s; 45 in https://jax-ml.github.io/scaling-book/tpus"
_LIBTPU = "what libtpu 0.0.51 and 0.0.42 name when they refuse a program that is too large"
_BOTH_WAYS = "half of the bidirectional bandwidth in "
_POD = "the all-reduce bandwidth of a pod over its chips in "


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the hardware, and where it is from."""

    value: float
    source: str


def _largest(*given: tuple[float, str]) -> Figure:
    """Return the largest of what sources say, with the source that says so."""
    return max((Figure(*one) for one in given), key=lambda figure: figure.value)


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation of TPUs."""

    name: str  # as Google Cloud names it, such as ``v5e``
    devices_per_chip: int  # devices that a framework sees on a chip
    flops: Figure  # peak bf16 operations per second of a chip
    hbm: Figure  # HBM bandwidth of a chip, in bytes per second
    link: Figure  # bytes per second that a chip sends over all its links, in one direction
    usable_hbm: Figure  # what a program may use of one device's HBM, in GiB
    shapes: Mapping[int, tuple[int, ...]]  # the slices on offer, by the number in their name: chips along each side
    whole_host: tuple[int, ...]  # chips along each side of the largest machine that holds a slice alone
    part_host: tuple[int, ...]  # likewise of each machine of a larger slice
    chip_config: str = ""  # the compiler option that makes one device of a chip; empty if that is the default


_FLAT = {8: (2, 2), 32: (4, 4), 64: (4, 8), 128: (8, 8), 256: (8, 16), 512: (16, 16)}
_V3 = {**_FLAT, 1024: (16, 32), 2048: (32, 32)}
_SMALL = {1: (1, 1), 4: (2, 2), 8: (2, 4), 16: (4, 4), 32: (4, 8), 64: (8, 8), 128: (8, 16), 256: (16, 16)}
_V4 = {
    2 * math.prod(sides): sides
    for sides in (
        *((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8)),
        *((8, 8, 8), (8, 8, 16), (8, 16, 16), (16, 16, 16)),
    )
}
_V5P = {**_V4, 12_288: (16, 16, 24)}
_SEVENTH = {**_V5P, 18_432: (16, 24, 24)}
_HOST = (2, 2, 1)

GENERATIONS: dict[str, Generation] = {
    generation.name: generation
    for generation in (
        Generation(
            "v2",
            2,
            _largest((45e12, _CACM), (46e12, _JAX)),
            _largest((700e9, _CACM), (716e9, _JAX)),
            Figure(248e9, f"4 links of 496 Gbit/s: {_CACM}"),
            Figure(7.48, _LIBTPU),
            _FLAT,
            (2, 2),
            (2, 2),
        ),
        Generation(
            "v3",
            2,
            _largest((123e12, f"{_CLOUD}v3"), (140e12, _JAX)),
            _largest((900e9, f"{_CLOUD}v3"), (825e9, _JAX)),
            Figure(332e9, f"{_POD}{_CLOUD}v3: 340 TB/s over 1,024"),
            Figure(15.48, _LIBTPU),
            _V3,
            (2, 2),
            (2, 2),
        ),
        Generation(
            "v4",
            1,
            _largest((275e12, f"{_CLOUD}v4"), (275e12, _JAX)),
            _largest((1228e9, f"{_CLOUD}v4"), (1230e9, _JAX)),
            _largest((300e9, _ISCA), (269e9, f"{_POD}{_CLOUD}v4: 1.1 PB/s over 4,096")),
            Figure(30.75, _LIBTPU),
            _V4,
            _HOST,
            _HOST,
            "megacore",
        ),
        Generation(
            "v5e",
            1,
            _largest((197e12, f"{_CLOUD}v5e"), (197e12, _JAX)),
            _largest((819e9, f"{_CLOUD}v5e"), (820e9, _JAX)),
            Figure(200e9, f"{_BOTH_WAYS}{_CLOUD}v5e: 400 GB/s"),
            Figure(15.75, _LIBTPU),
            _SMALL,
            (2, 4),
            (2, 2),
        ),
        Generation(
            "v5p",
            1,
            _largest((459e12, f"{_CLOUD}v5p"), (459e12, _JAX)),
            _largest((2765e9, f"{_CLOUD}v5p"), (2460e9, _JAX)),
            Figure(600e9, f"{_BOTH_WAYS}{_CLOUD}v5p: 1,200 GB/s"),
            Figure(95.73, _LIBTPU),
            _V5P,
            _HOST,
            _HOST,
        ),
        Generation(
            "v6e",
            1,
            _largest((918e12, f"{_CLOUD}v6e"), (920e12, _JAX)),
            _largest((1638e9, f"{_CLOUD}v6e"), (1640e9, _JAX)),
            Figure(400e9, f"{_BOTH_WAYS}{_CLOUD}v6e: 800 GB/s"),
            Figure(31.24, _LIBTPU),
            _SMALL,
            (2, 4),
            (2, 2),
        ),
        Generation(
            "tpu7x",
            2,
            _largest((2307e12, f"{_CLOUD}tpu7x"), (2310e12, _JAX)),
            _largest((7380e9, f"{_CLOUD}tpu7x"), (7400e9, _JAX)),
            Figure(600e9, f"{_BOTH_WAYS}{_CLOUD}tpu7x: 1,200 GB/s"),
            Figure(94.74, _LIBTPU),
            _SEVENTH,
            _HOST,
            _HOST,
        ),
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
        return self.generation.flops.value / self.generation.devices_per_chip

    @property
    def hbm_bytes_per_s(self) -> float:
        """HBM bandwidth of one device, in bytes per second."""
        return self.generation.hbm.value / self.generation.devices_per_chip

    @property
    def link_bytes_per_s(self) -> float:
        """Most bytes per second that one device can send: all links of its chip, as if the other core were idle."""
        return self.generation.link.value

    @property
    def usable_hbm_bytes(self) -> int:
        """What a program may use of one device's HBM, in bytes."""
        return round(self.generation.usable_hbm.value * 2**30)


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
    "v5-lite": "v5e",
    "v5-litepod": "v5e",
    "v6-lite": "v6e",
    "tpu-7x": "tpu7x",
    "v5lite": "v5e",
    "v6lite": "v6e",
    "v6litepod": "v6e",
    "trillium": "v6e",
    "7x": "tpu7x",
    "v7x": "tpu7x",
    "ironwood": "tpu7x",
    "v5": "v5p",
}


def generation_of(name: str) -> str:
    """Return Google Cloud's name of a generation, such as ``v5e`` for JAX's ``TPU v5 lite``."""
    plain = _plain(name)
    return _ALIASES.get(plain, plain)


def _plain(name: str) -> str:
    plain = re.sub(r"[\s_]+", "-", name.strip().lower()).replace("cloud-", "")
    return re.sub(r"^tpu-?(?=v\d|trillium|ironwood)", "", plain)


def find_topology(name: str) -> Topology:
    """Return the TPU with a name as people type it.

    Case, spaces, ``_`` for ``-`` and ``tpu`` in front do not matter; a generation alone is its usual TPU on one host.

    Raises:
        ConsoleError: There is no such TPU; the nearest is named.
    """
    plain = _plain(name)
    generation, _, number = plain.rpartition("-") if re.search(r"-\d+$", plain) else (plain, "", "")
    generation = _ALIASES.get(generation, generation)
    if found := TOPOLOGIES.get(f"{generation}-{number}"):
        return found
    sizes = [one for one in TOPOLOGIES.values() if one.generation.name == generation]
    if not sizes:
        near = nearest(plain, sorted(TOPOLOGIES))
        hint = f"; did you mean '{near}'?" if near else "."
        raise ConsoleError(f"There is no TPU '{name}'{hint}", remedy=f"The usual ones: {', '.join(USUAL)}.")
    if not number:
        return max((one for one in sizes if one.hosts == 1), key=lambda one: one.devices)
    wanted = int(number)
    closest = min(sizes, key=lambda one: (abs(_number(one) - wanted), -_number(one))).name
    listed = ", ".join(one.name for one in sizes)
    raise ConsoleError(f"There is no TPU '{name}'; did you mean '{closest}'? Of {generation} there are: {listed}.")


def _number(topology: Topology) -> int:
    return int(topology.name.rpartition("-")[2])
