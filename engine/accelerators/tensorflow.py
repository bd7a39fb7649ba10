"""Devices by TensorFlow: CPU, GPUs, simulated replicas, and a TPU through `engine.accelerators.tpu_strategy`."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from ..compat.tensorflow import switch_off_tuning_of_device_iterators
from ..config.accelerator import parse_accelerator
from ..errors import AcceleratorError
from ..machine.devices import detect_hardware
from ..machine.install import install_line
from ..machine.resources import usable_cores
from ..runs.events import Replica
from .accelerator import Accelerator
from .backend import TENSORFLOW

if TYPE_CHECKING:
    from ..machine.devices import Hardware


def connect_tensorflow(name: str) -> Accelerator:
    """Connect the devices of a `RunConfig.accelerator`.

    Raises `AcceleratorError` if it is missing, or this process has already connected another one.
    """
    requested = parse_accelerator(name)
    if requested.is_tpu:
        from .tpu_strategy import connect_tpu

        return connect_tpu(requested.address)
    gpus = tf.config.list_physical_devices("GPU")
    if name == "gpu" and not gpus:
        raise AcceleratorError(
            "There is no GPU that TensorFlow can use.",
            why=_why_no_gpu(detect_hardware()),
            remedy=f"There are: cpu ({usable_cores()} cores), sim:N (N simulated replicas on the CPU).",
        )
    try:
        if name == "gpu" or (name == "auto" and gpus):
            return _gpu(gpus, name)
        if requested.simulated:
            return _simulated(requested.simulated)
        return _cpu(name)
    except RuntimeError as error:
        raise AcceleratorError(
            f"The accelerator '{name}' can no longer be set up in this process.",
            why=str(error),
            remedy="Start the run in its own process, without --in-process.",
        ) from error


def _why_no_gpu(hardware: Hardware) -> str:
    if hardware.gpus:
        return (
            f"{hardware.gpus[0]} is in this machine, but TensorFlow {tf.__version__} does not see it: its CUDA "
            f"libraries are missing or do not match (`{install_line('tensorflow[and-cuda]')}`)."
        )
    return next((text for text in hardware.hidden if "GPU" in text), "No NVIDIA GPU was found.")


def _cpu(asked: str) -> Accelerator:
    tf.config.set_visible_devices([], "GPU")
    reason = "asked for"
    if asked == "auto":
        hardware = detect_hardware()
        reason = f"auto: {_why_no_gpu(hardware)}"
        if hardware.tpu:
            reason += (
                f" The TPU at {hardware.tpu} is not used: neither JAX's TPU packages nor tensorflow-tpu are installed."
            )
    replica = Replica(0, "/device:CPU:0", f"CPU, {usable_cores()} cores", socket.gethostname())
    return _accelerator("cpu", reason, tf.distribute.get_strategy(), (replica,))


def _gpu(gpus: list[Any], asked: str) -> Accelerator:
    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    kinds = [tf.config.experimental.get_device_details(gpu).get("device_name", "GPU") for gpu in gpus]
    several = len(gpus) > 1
    strategy = tf.distribute.MirroredStrategy() if several else tf.distribute.get_strategy()
    count = f"{len(gpus)} GPUs" if several else f"a GPU ({kinds[0]})"
    reason = f"auto: found {count}" if asked == "auto" else "asked for"
    host = socket.gethostname()
    replicas = tuple(Replica(i, f"/device:GPU:{i}", kind, host) for i, kind in enumerate(kinds))
    return _accelerator("gpu", reason, strategy, replicas)


def _simulated(count: int) -> Accelerator:
    tf.config.set_visible_devices([], "GPU")
    switch_off_tuning_of_device_iterators()
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    strategy = tf.distribute.MirroredStrategy(devices) if count > 1 else tf.distribute.get_strategy()
    host = socket.gethostname()
    replicas = tuple(Replica(i, device, "CPU, simulated", host) for i, device in enumerate(devices))
    return _accelerator(f"sim:{count}", "asked for", strategy, replicas)


def _accelerator(name: str, reason: str, strategy: Any, replicas: tuple[Replica, ...]) -> Accelerator:
    return Accelerator(
        name=name,
        reason=reason,
        backend=TENSORFLOW,
        strategy=type(strategy).__name__ if len(replicas) > 1 else "",
        replicas=replicas,
        scope=strategy.scope,
        versions={"tensorflow": tf.__version__, "keras": keras.__version__},
    )
