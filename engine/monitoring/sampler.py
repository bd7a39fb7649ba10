"""Samples devices and the host once per second during a run, in its own thread."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from .devices import DeviceReader, differs
from .machine import HostReader
from .pace import HostPace

if TYPE_CHECKING:
    from ..accelerators.accelerator import Accelerator
    from ..runs.events import HostSampled, MemorySampled
    from ..runs.recorder import Recorder


_EVERY_S = 1.0


class Sampler:
    """Writes the figures of this host, and those of its devices when they change, while a block runs.

    `accelerator` is None in a notebook, which chooses its own; `earlier_s` are the seconds of training before the run
    was resumed.
    """

    def __init__(self, recorder: Recorder, accelerator: Accelerator | None = None, earlier_s: float = 0.0) -> None:
        self._recorder = recorder
        self._devices = DeviceReader(accelerator) if accelerator is not None else None
        self._host = HostReader(accelerator.process if accelerator is not None else 0)
        self._pace = HostPace(_share(accelerator) if accelerator is not None else 1.0, earlier_s)
        self._last: MemorySampled | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tpu-console-sampler", daemon=True)

    def start(self) -> None:
        """Start sampling."""
        self._recorder.listen(self._pace.on_event)
        self._thread.start()

    def stop(self) -> None:
        """Stop sampling; wait for a sample that is under way."""
        self._over.set()
        self._thread.join(2.0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        self._sample_devices()
        while not self._over.wait(_EVERY_S):
            self._recorder.emit(self._host_sample())
            self._sample_devices()
        if self._devices is not None:
            self._devices.close()

    def _host_sample(self) -> HostSampled:
        sample = self._host.read()
        rate, why_not = self._pace.look()
        reasons = {**sample.why_not, "examples_per_s": why_not} if why_not else sample.why_not
        return replace(sample, elapsed_s=self._pace.elapsed_s(), examples_per_s=rate, why_not=reasons)

    def _sample_devices(self) -> None:
        if self._devices is None:
            return
        sample = self._devices.read()
        if self._last is None or differs(self._last, sample):
            self._last = sample
            self._recorder.emit(sample)


def _share(accelerator: Accelerator) -> float:
    """Return this host's share of the replicas."""
    mine = sum(replica.process == accelerator.process for replica in accelerator.replicas)
    return mine / len(accelerator.replicas)
