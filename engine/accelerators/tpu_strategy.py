"""A TPU by TensorFlow: `TPUStrategy`, on a TPU VM with ``tensorflow-tpu`` or at an address.

It looks for a TPU in this order, as TensorFlow's `TPUClusterResolver` and Colab's notebooks do: the address of the
configuration, ``COLAB_TPU_ADDR``, the TPU of this machine, ``TPU_NAME``. A resolver accepts anything, and only
connecting shows whether a TPU is there. That may hang forever, so a separate process runs this module first, and ends
before this one connects: a TPU has one user at a time. Connecting, building, compiling and training happen in one
thread.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from msgspec import Struct

from ..errors import AcceleratorError, one_line
from ..machine.devices import detect_hardware
from ..machine.sources import this_machine
from ..runs.events import Replica
from .framework import Accelerator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .framework import Framework

LIMIT_S = 90.0  # longest time a TPU may take to answer: a v3-8 takes about 15 s, a slice of several hosts longer
_LOCAL = "local"


class Target(Struct, frozen=True):
    """A TPU to connect to."""

    address: str  # the argument of `TPUClusterResolver`: ``local``, ``grpc://…``, or a name
    why: str  # where it comes from


def choose_target(asked: str, environ: Mapping[str, str], *, is_here: bool) -> Target | None:
    """Return the TPU at the address of ``tpu:ADDRESS``, if any, or the first with a sign of one, or None."""
    if asked:
        # A name without a port stays a name.
        return Target(f"grpc://{asked}" if ":" in asked and "://" not in asked else asked, "asked for")
    if address := environ.get("COLAB_TPU_ADDR", ""):
        return Target(f"grpc://{address.removeprefix('grpc://')}", "COLAB_TPU_ADDR")
    if is_here:
        return Target(_LOCAL, "the TPU of this machine")
    if name := environ.get("TPU_NAME", ""):
        return Target(name, "TPU_NAME")
    return None


def connect_tpu(framework: Framework, asked: str) -> Accelerator:
    """Connect the TPU at an address, or the first that is found; raise `AcceleratorError` if none can be used."""
    import keras

    hardware = detect_hardware()
    target = choose_target(asked, os.environ, is_here=bool(hardware.tpu))
    if target is None:
        raise AcceleratorError(
            "There is no TPU that TensorFlow can use.",
            why="This machine has none, and neither COLAB_TPU_ADDR nor TPU_NAME names one.",
            remedy="`tpu-console doctor` shows what is here; accelerator=tpu:ADDRESS uses a TPU on another machine.",
        )
    probe(target, LIMIT_S)
    try:
        resolver, topology = _initialized(target.address)
        strategy = tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, RuntimeError, ValueError, OSError) as error:
        raise refusal(target, f"{type(error).__name__}: {error}") from error
    return Accelerator(
        name="tpu",
        reason=f"{target.address} ({target.why})",
        framework=framework,
        strategy=type(strategy).__name__,
        replicas=replicas(topology.device_coordinates, f"TPU {hardware.tpu_kind}".strip(), target.address),
        scope=strategy.scope,
        versions={"tensorflow": tf.__version__, "keras": keras.__version__},
        topology=describe_topology(topology.mesh_shape, topology.num_tasks, topology.num_tpus_per_task),
    )


def _initialized(address: str) -> tuple[Any, Any]:
    """Initialize the TPU at an address; return its resolver and its topology."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
    if address != _LOCAL:
        tf.config.experimental_connect_to_cluster(resolver)
    return resolver, tf.tpu.experimental.initialize_tpu_system(resolver)


def replicas(coordinates: Any, kind: str, host: str) -> tuple[Replica, ...]:
    """List a topology's devices; `coordinates` has shape ``(tasks, devices per task, 4)``: x, y, z and core."""
    places = [(task, number, place) for task, devices in enumerate(coordinates) for number, place in enumerate(devices)]
    return tuple(
        Replica(index, f"/task:{task}/device:TPU:{number}", kind, host, f"{x},{y},{z}", int(core), task)
        for index, (task, number, (x, y, z, core)) in enumerate(places)
    )


def describe_topology(mesh: Any, tasks: int, devices: int) -> str:
    """Describe a topology, such as ``2×2×1 mesh of chips with 2 cores, 1 task of 8 devices``.

    `mesh` is the number of chips along x, y and z, and of cores per chip; `devices` are those of one task.
    """
    *chips, cores = mesh
    of_cores = f" with {cores} cores" if cores > 1 else ""
    shape, plural = "×".join(map(str, chips)), "s" if tasks > 1 else ""
    return f"{shape} mesh of chips{of_cores}, {tasks} task{plural} of {devices} devices"


def probe(target: Target, limit_s: float) -> None:
    """Try to connect in a separate process with a time limit; raise `AcceleratorError` if it fails."""
    command = [sys.executable, "-P", "-m", "tpu_console.engine.accelerators.tpu_strategy", target.address]
    # Elsewhere, the resolver would wait for a metadata server that is not there.
    is_google = "Google" in this_machine().text("sys/class/dmi/id/product_name")
    env = os.environ if is_google else {"TPU_SKIP_MDS_QUERY": "1"} | os.environ
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, env=env)
    except subprocess.TimeoutExpired as error:
        raise AcceleratorError(
            f"The TPU at {target.address} ({target.why}) did not answer within {limit_s:.0f} s.",
            remedy="Check the address and that the TPU is running; `tpu-console doctor` names a process that holds it.",
        ) from error
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        answer = {"error": (done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"])[0]}
    if "error" in answer:
        raise refusal(target, answer["error"])


def refusal(target: Target, error: str) -> AcceleratorError:
    """Return the error that says why a TPU was not connected, from what TensorFlow said."""
    where, why = f"The TPU at {target.address} ({target.why}) cannot be used.", " ".join(error.split())[:300]
    remedy = "Check the address and that the TPU is running; `tpu-console doctor` names a process that holds it."
    if "ConfigureDistributedTPU" in error or "No OpKernel was registered" in error:
        why = f"TensorFlow {tf.__version__} is built without TPU operations here."
        remedy = "Install tensorflow-tpu instead of tensorflow, or use backend=jax."
    elif "UnimplementedError" in error:
        why = f"The gRPC server there is not a TPU: {why}"
    return AcceleratorError(where, why=why, remedy=remedy)


if __name__ == "__main__":
    try:
        answer = {"devices": _initialized(sys.argv[1])[1].num_tasks}
    except Exception as error:  # noqa: BLE001  whatever it is, the answer says it
        answer = {"error": f"{type(error).__name__}: {one_line(error)}"}
    print(json.dumps(answer), flush=True)
    os._exit(0)  # without waiting for TensorFlow's threads
