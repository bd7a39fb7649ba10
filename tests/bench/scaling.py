"""Eight simulated replicas against one device, and two processes against one with as many replicas."""

from __future__ import annotations

import socket
import subprocess
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.bench import ROOT, Bench, journal_of
from tests.bench.report import Row, Section, ratio_row
from tests.bench.throughput import epoch_ends

if TYPE_CHECKING:
    from collections.abc import Sequence

_BATCH, _STEPS, _SIMULATED = 1000, 15, 8
_MOST_TIME = 1.05


def measure(bench: Bench) -> Section:
    """Train in turn, with the same global batch on both sides."""
    one, simulated, replicas, processes = [], [], [], []
    for _ in bench.rounds(9, quick=2):
        one.append(_epoch_s(bench, "cpu", 1))
        simulated.append(_epoch_s(bench, f"sim:{_SIMULATED}", _SIMULATED))
        replicas.append(_epoch_s(bench, "sim:2", 2, "--backend", "jax"))
        processes.append(_two_processes(bench))
    return Section(
        "Replicas and processes",
        f"`fashion-mnist-cnn`, epochs of {_STEPS} steps of {_BATCH} images in total, without the first one. Two "
        "processes are two hosts on this machine, which share its cores, and train on JAX.",
        (
            Row("one device", f"{median(one):.2f} s an epoch"),
            ratio_row(f"time with `sim:{_SIMULATED}` ÷ one device", simulated, one, most=_MOST_TIME),
            Row("`sim:2` on JAX", f"{median(replicas):.2f} s an epoch"),
            ratio_row("efficiency: speed of two processes ÷ of one with `sim:2`", replicas, processes),
        ),
    )


def _arguments(accelerator: str, replicas: int, *more: object) -> list[object]:
    epochs = ["--epochs", 4, "--set", f"steps_per_epoch={_STEPS}", "--set", "validation_freq=4"]
    size = ["--batch-size", _BATCH // replicas, "--accelerator", accelerator]
    return ["run", "fashion-mnist-cnn", *epochs, *size, *more]


def _epoch_s(bench: Bench, accelerator: str, replicas: int, *more: object) -> float:
    records = bench.records(bench.console(*_arguments(accelerator, replicas, *more), "--json"))
    return _middle(epoch_ends(records))


def _two_processes(bench: Bench) -> float:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    known = {run.run_id for run in bench.runs}
    hosts = []
    for index in range(2):
        several = ["--backend", "jax", "--hosts", 2, "--host-index", index, "--coordinator", address]
        command = bench.console(*_arguments("sim:2", 2, *several), "--json")
        output = subprocess.DEVNULL
        hosts.append(subprocess.Popen(command, env=bench.environment, cwd=ROOT, stdout=output, stderr=output))
    if any(host.wait() for host in hosts):
        raise RuntimeError("one of the two processes failed")
    begun = [run for run in bench.runs if run.run_id not in known]
    return max(_middle(ends) for run in begun if len(ends := epoch_ends(journal_of(run))) > 1)


def _middle(ends: Sequence[float]) -> float:
    """Return the seconds of an epoch after the first; the last one also validates."""
    return median(after - before for before, after in pairwise(ends[:-1]))
