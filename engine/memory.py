"""How much memory each replica's device uses, as far as the runtime tells."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

import psutil
import tensorflow as tf

from engine.events import MemorySampled, ReplicaMemory

if TYPE_CHECKING:
    from types import TracebackType

    from engine.accelerators import Accelerator
    from engine.channel import Channel


def sample_memory(accelerator: Accelerator) -> MemorySampled:
    """Read the memory of every replica; cheap, and safe outside the training thread."""
    if accelerator.name == "gpu":
        return MemorySampled(tuple(_gpu_memory(replica.index) for replica in accelerator.replicas))
    used = psutil.Process().memory_info().rss
    if accelerator.name == "cpu":
        return MemorySampled((ReplicaMemory(0, used, None, psutil.virtual_memory().total),))
    why_not = f"shares the host process, {used / 2**20:,.0f} MiB in all"
    return MemorySampled(
        tuple(ReplicaMemory(replica.index, None, None, None, why_not) for replica in accelerator.replicas)
    )


def _gpu_memory(index: int) -> ReplicaMemory:
    try:
        info = tf.config.experimental.get_memory_info(f"GPU:{index}")
    except (ValueError, RuntimeError) as error:
        return ReplicaMemory(index, None, None, None, f"TensorFlow does not tell: {error}")
    why_not = "TensorFlow tells no limit: its share grows with need"
    return ReplicaMemory(index, int(info["current"]), int(info["peak"]), None, why_not)


class MemorySampler:
    """Writes memory figures while a block runs, when they changed by a hundredth, from a thread of its own.

    Args:
        channel: The run.
        accelerator: Whose devices to look at.
        every_s: Seconds between two looks.
    """

    def __init__(self, channel: Channel, accelerator: Accelerator, every_s: float = 2.0) -> None:
        self._channel = channel
        self._accelerator = accelerator
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="tpu-console-memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(2.0)

    def _sample(self) -> None:
        told: MemorySampled | None = None
        while True:
            sample = sample_memory(self._accelerator)
            if told is None or _differs(told, sample):
                told = sample
                self._channel.emit(sample)
            if self._over.wait(self._every_s):
                return


def _differs(before: MemorySampled, after: MemorySampled) -> bool:
    return any(
        abs((old.used_bytes or 0) - (new.used_bytes or 0)) > 0.01 * (old.used_bytes or 1)
        for old, new in zip(before.replicas, after.replicas, strict=True)
    )
