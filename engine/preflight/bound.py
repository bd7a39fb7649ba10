"""The least time that a compiled step can take on a TPU: a roofline (Williams, Waterman, Patterson 2009).

A step cannot be faster than its operations at the peak of the matrix units, its bytes at the peak of the HBM, or its
exchange at the peak of the interconnect, even if all three overlap and nothing else takes time. The peak is that of
bf16, in which a TPU by default also multiplies float32 numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config.batch import global_batch, steps_per_epoch
from ..planning.example_count import train_examples_of
from .program import executions, repeated_flops
from .result import Bound
from .traffic import exchanged_bytes, hbm_bytes

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from .topologies import Topology


def bound_of(
    config: RunConfig,
    topology: Topology,
    flops: float,
    bytes_accessed: float,
    hlo_text: str,
    exchanged: float | None = None,
) -> Bound:
    """Return the bound of a compiled step, from its operations and bytes on one device as the compiler counts them.

    The compiler counts the body of a loop once; here it counts as often as the loop goes round, if that is known.
    `bytes_accessed` includes fast memory; `exchanged` bytes go to other devices, or are read from the program if None.
    """
    found, computations = executions(hlo_text)
    repeated = repeated_flops(found, computations)
    flops += repeated
    moved = hbm_bytes(hlo_text)
    if bytes_accessed > 0 and not repeated:
        moved = min(bytes_accessed, moved)
    exchanged = exchanged_bytes(hlo_text, topology.devices) if exchanged is None else exchanged
    seconds = {
        "compute": flops / topology.peak_flops,
        "memory": moved / topology.hbm_bytes_per_s,
        "exchange": exchanged / topology.link_bytes_per_s,
    }
    limited_by = max(seconds, key=lambda name: seconds[name])
    step_s = seconds[limited_by]
    epoch_s, run_s = _whole(config, topology, step_s)
    return Bound(
        flops=flops,
        hbm_bytes=moved,
        all_reduce_bytes=exchanged,
        compute_s=seconds["compute"],
        memory_s=seconds["memory"],
        exchange_s=seconds["exchange"],
        limited_by=limited_by,
        step_s=step_s,
        images_per_s=global_batch(config.batch_size, topology.devices) / step_s,
        epoch_s=epoch_s,
        run_s=run_s,
        is_partial=found.has_unknown_loops,
    )


def ring_bytes(size: float, devices: int) -> float:
    """Return the bytes that a device sends for a sum over all devices that goes round a ring."""
    return 2.0 * size * (devices - 1) / devices


def _whole(config: RunConfig, topology: Topology, step_s: float) -> tuple[float | None, float | None]:
    """Return the seconds of an epoch and of the run; of a run in two phases those of the second alone."""
    steps = steps_per_epoch(config, train_examples_of(config), topology.devices)
    if not steps:
        return None, None
    epoch_s = steps * step_s
    return epoch_s, (config.epochs - config.fine_tuning.after_epochs) * epoch_s
