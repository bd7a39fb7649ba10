"""The TPUs that a preflight knows: their names on Colab, Kaggle and Google Cloud, and for the compiler.

A name is a generation and a number. The number counts chips for v5e and v6e, TensorCores for the others, two a chip
(https://cloud.google.com/tpu/docs/v4, …/v5e, …/v5p, …/v6e, …/tpu7x; slices and hosts as in their tables). What a
framework sees as a device is a core of v2, v3 and TPU7x and a whole chip of v4, v5e, v5p and v6e: the two cores of a
v4 or v5p work as one ("megacore"). The compiler makes two devices of a v4 chip unless it is configured otherwise.

A comment names the sources of every figure. Where they differ, the largest counts, since a bound must not be above the
real time.
"""

import math
import re
from collections.abc import Mapping

from msgspec import Struct

from ..errors import ConsoleError, nearest


class Generation(Struct, frozen=True):
    """A generation of TPUs."""

    name: str  # as Google Cloud names it, such as ``v5e``
    devices_per_chip: int  # devices that a framework sees on a chip
    flops: float  # peak bf16 operations per second of a chip
    hbm: float  # HBM bandwidth of a chip, in bytes per second
    link: float  # bytes per second that a chip sends over all its links, in one direction
    usable_hbm: float  # what a program may use of one device's HBM, in GiB
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

# Sources: "Cloud" is https://cloud.google.com/tpu/docs/ and the name, where links have half of the bidirectional
# bandwidth. "JAX" is jax/_src/pallas/mosaic/tpu_info.py of 0.10.2. "CACM" is Jouppi et al., A domain-specific
# supercomputer for training deep neural networks, 2020. "ISCA" is Jouppi et al., TPU v4, 2023. Usable HBM is what
# libtpu 0.0.51 and 0.0.42 name when they refuse a program that is too large.
GENERATIONS: dict[str, Generation] = {
    generation.name: generation
    for generation in (
        # Operations and HBM: JAX (CACM: 45 and 700). Links: 4 of 496 Gbit/s, CACM.
        Generation("v2", 2, 46e12, 716e9, 248e9, 7.48, _FLAT, (2, 2), (2, 2)),
        # Operations: JAX (Cloud: 123). HBM: Cloud (JAX: 825). Links: a pod's all-reduce, 340 TB/s over 1,024, Cloud.
        Generation("v3", 2, 140e12, 900e9, 332e9, 15.48, _V3, (2, 2), (2, 2)),
        # Operations: Cloud, JAX. HBM: JAX (Cloud: 1228). Links: 6 of 50 GB/s, ISCA (Cloud: 269).
        Generation("v4", 1, 275e12, 1230e9, 300e9, 30.75, _V4, _HOST, _HOST, "megacore"),
        # Operations: Cloud, JAX. HBM: JAX (Cloud: 819). Links: 400 GB/s, Cloud.
        Generation("v5e", 1, 197e12, 820e9, 200e9, 15.75, _SMALL, (2, 4), (2, 2)),
        # Operations: Cloud, JAX. HBM: Cloud (JAX: 2460). Links: 1,200 GB/s, Cloud.
        Generation("v5p", 1, 459e12, 2765e9, 600e9, 95.73, _V5P, _HOST, _HOST),
        # Operations and HBM: JAX (Cloud: 918 and 1638). Links: 800 GB/s, Cloud.
        Generation("v6e", 1, 920e12, 1640e9, 400e9, 31.24, _SMALL, (2, 4), (2, 2)),
        # Operations and HBM: JAX (Cloud: 2307 and 7380). Links: 1,200 GB/s, Cloud.
        Generation("tpu7x", 2, 2310e12, 7400e9, 600e9, 94.74, _SEVENTH, _HOST, _HOST),
    )
}
"""Every generation by its name."""


class Topology(Struct, frozen=True):
    """A TPU."""

    name: str
    generation: Generation
    compiler_name: str  # what the compiler calls it, such as ``v5e:2x4``
    compiler_options: dict[str, object]  # options of the compiler besides the name
    chips: int
    devices: int  # devices that a framework sees, which are the replicas of a run
    hosts: int  # host machines
    peak_flops: float  # bf16 operations per second of one device
    hbm_bytes_per_s: float  # HBM bandwidth of one device
    link_bytes_per_s: float  # what one device can send: over all links of its chip, as if the other core were idle
    usable_hbm_bytes: int  # what a program may use of one device's HBM


def _topology(generation: Generation, number: int, shape: tuple[int, ...]) -> Topology:
    """Return the TPU with a number in its name and this many chips along each side."""
    chips, per_chip = math.prod(shape), generation.devices_per_chip
    is_whole = all(side <= most for side, most in zip(shape, generation.whole_host, strict=True))
    host = shape if is_whole else generation.part_host
    config = {"chip_config_name": generation.chip_config} if generation.chip_config else {}
    return Topology(
        name=f"{generation.name}-{number}",
        generation=generation,
        compiler_name=f"{generation.name}:{'x'.join(map(str, shape))}",
        compiler_options={"chips_per_host_bounds": (*host, 1)[:3], **config},
        chips=chips,
        devices=chips * per_chip,
        hosts=chips // math.prod(host),
        peak_flops=generation.flops / per_chip,
        hbm_bytes_per_s=generation.hbm / per_chip,
        link_bytes_per_s=generation.link,
        usable_hbm_bytes=round(generation.usable_hbm * 2**30),
    )


TOPOLOGIES = {
    topology.name: topology
    for generation in GENERATIONS.values()
    for topology in (_topology(generation, number, shape) for number, shape in generation.shapes.items())
}
"""Every TPU by its usual name."""

USUAL = ("v2-8", "v3-8", "v4-8", "v5e-1", "v5e-4", "v5e-8", "v5p-8", "v6e-1", "v6e-4", "v6e-8", "tpu7x-8")
"""The most common ones, on one host each."""

_ALIASES = {
    alias: name
    for name, aliases in {
        "v5e": "v5litepod v5-litepod v5-lite v5lite",
        "v5p": "v5",
        "v6e": "v6litepod v6-lite v6lite trillium",
        "tpu7x": "tpu-7x 7x v7x ironwood",
    }.items()
    for alias in aliases.split()
}
"""Other names of generations: as accelerator types of Google Cloud, by JAX, and as people write them."""


def generation_of(name: str) -> str:
    """Return Google Cloud's name of a generation, such as ``v5e`` for JAX's ``TPU v5 lite``."""
    plain = _plain(name)
    return _ALIASES.get(plain, plain)


def _plain(name: str) -> str:
    plain = re.sub(r"[\s_]+", "-", name.strip().lower()).replace("cloud-", "")
    return re.sub(r"^tpu-?(?=v\d|trillium|ironwood)", "", plain)


def find_topology(name: str) -> Topology:
    """Return the TPU with a name as people type it, or raise a `ConsoleError` that names the nearest.

    Case, spaces, ``_`` for ``-`` and ``tpu`` in front do not matter; a generation alone is its usual TPU on one host.
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
    closest = min(sizes[0].generation.shapes, key=lambda size: (abs(size - int(number)), -size))
    listed = ", ".join(one.name for one in sizes)
    raise ConsoleError(
        f"There is no TPU '{name}'; did you mean '{generation}-{closest}'? Of {generation} there are: {listed}."
    )
