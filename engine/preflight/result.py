"""The verdict of a preflight: whether a training step compiles, fits, how fast it can be at best, what it wastes.

It becomes the ``--json`` of `tpu-console preflight`, is cached, and is read by the console, which loads no framework.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct, convert, field, to_builtins

from ..errors import Finding
from ..storage.keyed_store import plain_value


class Outcome(StrEnum):
    """The verdict on one choice of TPU, batch and precision."""

    FITS = "fits"
    DOES_NOT_FIT = "does not fit"
    DOES_NOT_COMPILE = "does not compile"
    UNKNOWN = "could not tell"


class Memory(Struct, frozen=True):
    """HBM of one device while a step runs, in bytes."""

    parameters: int  # the model's weights
    optimizer: int  # the optimizer's slots
    batch: int  # the device's part of a batch
    temporaries: int  # activations and everything else that exists only within a step
    peak: int  # the most at once
    limit: int  # what a program may use of the device
    # Whether the compiler has not answered: ``temporaries`` is 0, and a step needs more than ``peak``.
    is_lower_bound: bool = False
    code: int = 0  # the compiled program
    other: int = 0  # padding of weights, slots and batch to tiles, and results beside them: with it the parts add up

    @property
    def headroom(self) -> float:
        """The share of the limit that stays free; negative if it does not fit."""
        return 1.0 - self.peak / self.limit


class Bound(Struct, frozen=True):
    """The least time a step can take (Williams et al. 2009, roofline): a bound, never a prediction."""

    flops: float  # floating-point operations of a step on one device
    hbm_bytes: float  # bytes that one device reads and writes in its memory
    all_reduce_bytes: float  # bytes of gradients that one device exchanges with the others
    compute_s: float  # seconds for the operations at the chip's peak
    memory_s: float  # seconds for the bytes at the memory's peak
    exchange_s: float  # seconds for the exchange at the interconnect's peak
    limited_by: str  # ``compute``, ``memory`` or ``exchange``
    step_s: float  # the largest of the three
    images_per_s: float  # examples per second over all devices at that pace
    epoch_s: float | None = None  # seconds per epoch; None if its length is unknown
    run_s: float | None = None  # seconds of the whole run, without compiling and validating; None likewise
    is_partial: bool = False  # whether a loop's number of rounds is unknown, so that it was counted once
    # Seconds that each layer takes at least, the slowest ones; the rest of the step has an empty name.
    layers: dict[str, float] = field(default_factory=dict)


class Likely(Struct, frozen=True):
    """The time that a step will likely take, and what it depends on."""

    low_s: float  # seconds per step, at least
    high_s: float | None  # likewise at most; None if only the least is known
    limited_by: str  # what makes it the least: ``device``, ``host`` or ``input``
    source: str  # what the range is from
    run_low_s: float | None = None  # of the whole run, without compiling and validating; None if its length is unknown
    run_high_s: float | None = None


class Waste(Struct, frozen=True):
    """Padding of one layer's dimension to the tiles of the matrix unit."""

    layer: str  # the layer's name in the model
    dimension: str  # ``batch`` or ``features``
    size: int  # as it is
    padded: int  # as it is computed
    share: float  # share of the layer's work that is padding
    flops: float  # operations of the layer per step on one device, padding included
    nearest: int  # the nearest size that wastes nothing

    @property
    def padding(self) -> float:
        """The share of the padded size that is padding, the same for every layer: 0.5 for 64 of 128."""
        return 1.0 - self.size / self.padded


class Filling(Struct, frozen=True):
    """What needs much of a device's memory."""

    layer: str
    kind: str  # the layer's class
    what: str  # ``weights``, ``weights and optimizer slots`` or ``result``
    size: int  # bytes on one device


class BatchFigures(Struct, frozen=True):
    """What a batch needs, and how fast it can be."""

    replica_batch: int
    peak: int  # bytes of a device's HBM
    images_per_s: float  # examples per second over all devices at best; 0 if it does not fit
    fits: bool = True


class Verdict(Struct, frozen=True):
    """The verdict on one choice."""

    tpu: str  # the TPU's name, such as ``v5e-8``
    devices: int
    hosts: int
    replica_batch: int  # examples per step and device
    precision: str
    outcome: Outcome
    reason: str  # one sentence: what fits, or what went wrong, in terms of the user's model
    memory: Memory | None = None  # HBM of a device; None if nothing compiled
    bound: Bound | None = None  # the least time of a step; None likewise
    wastes: tuple[Waste, ...] = ()  # padding, the worst first
    findings: tuple[Finding, ...] = ()  # what else to know, the most severe first
    largest_batch: int | None = None  # the largest batch per device known to fit; None if it was not searched
    too_large_batch: int | None = None  # the smallest above it known not to fit
    fillings: tuple[Filling, ...] = ()  # what needs most of the memory if it does not fit, the largest first
    batches: tuple[BatchFigures, ...] = ()  # after a search: the batches worth choosing, the largest first
    tried: tuple[BatchFigures, ...] = ()  # every batch that the search compiled, in this order
    dataset_is_limit: bool = False  # whether a larger batch than `largest_batch` has more examples than the dataset
    compile_s: float = 0.0
    is_remembered: bool = False  # whether the verdict comes from the cache
    versions: dict[str, str] = field(default_factory=dict)
    compiler_says: str = ""
    likely: Likely | None = None  # the time to expect; never in the cache, since it depends on later runs

    @property
    def global_batch(self) -> int:
        """Examples a step over all devices."""
        return self.replica_batch * self.devices

    @property
    def limited_by(self) -> str:
        """What makes a step take as long as it likely does: what limits the device, ``host`` or ``input``."""
        if self.likely is not None and self.likely.limited_by != "device":
            return self.likely.limited_by
        return "" if self.bound is None else self.bound.limited_by

    def expected(self, best_s: float | None) -> tuple[float | None, float | None]:
        """Return how long what takes `best_s` seconds at best will likely take: at least and at most, if known."""
        if best_s is None or self.bound is None or self.likely is None:
            return best_s, None
        slower = best_s / self.bound.step_s
        return slower * self.likely.low_s, None if self.likely.high_s is None else slower * self.likely.high_s

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, as `from_dict` reads them."""
        values: dict[str, Any] = to_builtins(self, enc_hook=plain_value)  # NumPy may name a layer
        return values


def from_dict(values: dict[str, Any]) -> Verdict:
    """Return the verdict with these plain values; raise `ValueError` if they are not those of one."""
    return convert(values, Verdict)
