"""Writes the journals of TPU runs on one or many hosts, as an engine would, for screens and plain lines."""

import math
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.tui.live_fakes import FakeEngine
from tpu_console.engine.runs import events
from tpu_console.engine.runs.follower import StateReader
from tpu_console.engine.runs.state import RunState

GIB = 1 << 30
REMEDY = "Cache the decoded examples in memory (data.cache = memory)."
NO_DISK = "the container hides its disks"
NO_DUTY = "port 8431 refuses the connection"


class FakeTpu(FakeEngine):
    """A TPU run that a test moves on second by second; `chips` are the replicas of a host."""

    def __init__(self, folder: Path, hosts: int = 1, chips: int = 8) -> None:
        super().__init__(folder, "cifar10-vgg", hosts * chips)
        self.hosts, self.chips = hosts, chips
        self._second = 0

    def described(self) -> tuple[events.Event, ...]:
        config = {"dataset": "cifar10", "model": "vgg", "accelerator": "tpu", "precision": "mixed_bfloat16"}
        replicas = tuple(self._replica(index) for index in range(self.replicas))
        mesh = f"mesh 2×{self.chips // 2 * self.hosts}, {self.hosts} processes × {self.chips} devices"
        reason = "a TPU is here and JAX is ready for it"
        return (
            events.RunStarted("cifar10-vgg", "host", os.getpid(), socket.gethostname(), config),
            events.AcceleratorReady(
                "tpu", "auto: JAX found a TPU", "DataParallel", replicas, {"jax": "0.8.0"}, "jax", reason, mesh
            ),
            events.DataReady(50_000, 10_000, (32, 32, 3), 10),
            events.ModelBuilt("vgg", 15_001_418, 15_001_418, 60_005_672, 40),
            events.FitStarted(10, 400, 128 * self.replicas, 128, 32, "32 steps take 0.3 s.", "val_accuracy"),
            events.PhaseStarted("training"),
        )

    def _replica(self, index: int) -> events.Replica:
        process = index // self.chips
        at = f"{index % self.chips // 2},{index % 2 + 2 * process},0"
        return events.Replica(index, f"TPU:{index}", "TPU v5 lite", f"tpu-vm-{process}", at, 0, process)

    def second(
        self,
        *,
        rates: Sequence[float | None] = (),
        wait: float = 0.38,
        limit: str = "input",
        memory: Sequence[events.ReplicaMemory] = (),
        without: Sequence[int] = (),
        disk: bool = True,
    ) -> None:
        """One second of training: progress, what each host does, memory and the input.

        `rates` are those of the hosts, 12,000 by default; `wait` is the share of the second that training waited;
        hosts in `without` say nothing.
        """
        self._second += 1
        self.clock += 1
        now, step = float(self._second), 10 * self._second
        epoch = 1 + (step - 1) // 400
        logs = {"loss": 2.0 / (1 + now / 20), "accuracy": 1 - 1 / (1 + now / 20)}
        self.write(events.Progress(epoch, step - (epoch - 1) * 400, step, now, logs))
        for process in range(self.hosts):
            if process not in without:
                rate = rates[process] if process < len(rates) else 12_000.0
                self.write(self._host(process, now, rate, disk=disk))
                reported = memory or [self._memory(i) for i in range(self.replicas)]
                mine = tuple(one for one in reported if one.index // self.chips == process)
                self.write(events.MemorySampled(mine))
        self.write(events.InputMeasured(epoch, step, now, 10, wait, 1.0, limit, REMEDY if limit == "input" else ""))

    def _host(self, process: int, now: float, rate: float | None, *, disk: bool) -> events.HostSampled:
        wave = 0.5 + 0.5 * math.sin(now / 7 + process)
        why = {} if disk else {"disk_read_bytes_per_s": NO_DISK}
        if rate is None:
            why["examples_per_s"] = "the batch size is unknown"
        read = 4e8 * wave if disk else None
        ram = int((20 + now / 10) * GIB)
        return events.HostSampled(process, f"tpu-vm-{process}", now, 30 + 60 * wave, ram, 188 * GIB, read, rate, why)

    def _memory(self, index: int) -> events.ReplicaMemory:
        return events.ReplicaMemory(
            index, int((9 + index % 8 * 0.1) * GIB), 11 * GIB, int(15.75 * GIB), "", 61.0 + index % 8
        )

    def lose(self, process: int) -> None:
        """One host is heard of no more."""
        self.clock += 12
        self.write(events.HostLost(process, f"tpu-vm-{process}", 12.4))


def state_of(run: FakeTpu) -> RunState:
    """What the run's journal says."""
    return StateReader(run.run).catch_up()


def trained(folder: Path, hosts: int = 1, chips: int = 8, seconds: int = 3, **values: Any) -> FakeTpu:
    """A run that trained for some seconds; `values` are those of `FakeTpu.second`."""
    run = FakeTpu(folder, hosts, chips)
    run.begin()
    for _ in range(seconds):
        run.second(**values)
    return run
