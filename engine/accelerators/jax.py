"""Devices by JAX: CPU, GPUs, TPUs, simulated replicas, on one host or several.

Several devices share a batch by `keras.distribution.DataParallel`: the model is replicated, the batch is dealt out.
"""

from __future__ import annotations

import socket
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import jax
import keras
import tensorflow as tf

from ..errors import AcceleratorError, one_line
from ..machine.sources import installed_versions
from ..runs.events import Replica
from .accelerator import Accelerator
from .backend import JAX

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..config.run_config import RunConfig

_PLATFORMS = {"gpu": ("gpu", "cuda", "rocm"), "tpu": ("tpu",)}


def connect_jax(config: RunConfig, name: str) -> Accelerator:
    """Connect devices, after `engine.accelerators.backend.prepare` has set what JAX reads from the environment.

    `name` is ``auto``, ``cpu``, ``gpu``, ``tpu`` or ``sim:N``.

    Raises:
        AcceleratorError: They are not there, or this process has set JAX up for others already.
    """
    # TensorFlow only feeds the data here: it must not take memory of a device, nor the TPU.
    for kind in ("GPU", "TPU"):
        tf.config.set_visible_devices([], kind)
    devices = _devices(name)
    platform = devices[0].platform
    settled = name if name != "auto" else {"cpu": "cpu", "tpu": "tpu"}.get(platform, "gpu")
    if count := config.requested.simulated:
        if len(devices) < count:
            raise AcceleratorError(
                f"The accelerator '{name}' can no longer be set up in this process.",
                why=f"JAX was set up with {len(devices)} devices before.",
                remedy="Start the run in its own process, without --in-process.",
            )
        devices = devices[:count]
    elif settled == "cpu":
        first = {device.process_index: device for device in reversed(devices)}
        devices = [first[index] for index in sorted(first)]
    reason = "asked for" if name != "auto" else f"auto: JAX found {_described(devices)}"
    return Accelerator(
        name=settled,
        reason=reason,
        backend=JAX,
        strategy="DataParallel" if len(devices) > 1 else "",
        replicas=tuple(_replica(index, device, is_simulated=bool(count)) for index, device in enumerate(devices)),
        scope=lambda: _scope(devices),
        versions=_versions(settled),
        topology=_topology(devices) if settled == "tpu" else "",
        process=jax.process_index(),
        processes=jax.process_count(),
    )


def _devices(name: str) -> list[Any]:
    try:
        devices: list[Any] = jax.devices()
    except RuntimeError as error:
        raise AcceleratorError(
            "JAX cannot set up its devices.",
            why=one_line(error, 300),
            remedy="`tpu-console doctor` looks for the cause.",
        ) from error
    wanted = _PLATFORMS.get(name)
    if wanted is not None and devices[0].platform not in wanted:
        raise AcceleratorError(
            f"There is no {name.upper()} that JAX can use.",
            why=f"JAX {jax.__version__} found {_described(devices)}.",
            remedy="`tpu-console doctor` looks for the cause; there are: cpu, sim:N (N simulated replicas on the CPU).",
        )
    return devices


def _described(devices: list[Any]) -> str:
    return f"{len(devices)} × {devices[0].device_kind}" if len(devices) > 1 else f"one device, {devices[0].device_kind}"


def _replica(index: int, device: Any, *, is_simulated: bool) -> Replica:
    kind = "CPU, simulated" if is_simulated else str(device.device_kind)
    coordinates = getattr(device, "coords", None)
    return Replica(
        index=index,
        device=f"{device.platform}:{device.id}",
        kind=kind,
        host=socket.gethostname() if device.process_index == jax.process_index() else f"host {device.process_index}",
        coordinates=",".join(str(number) for number in coordinates) if coordinates is not None else "",
        core=getattr(device, "core_on_chip", None),
        process=int(device.process_index),
    )


def _scope(devices: list[Any]) -> AbstractContextManager[Any]:
    """Return Keras's distribution of one batch over the devices, or nothing special for a single one."""
    if len(devices) == 1:
        return nullcontext()
    names = [f"{device.platform}:{device.id}" for device in devices]
    # Each host reads its own share of every batch: `engine.input.pipeline` deals it out.
    scope: AbstractContextManager[Any] = keras.distribution.DataParallel(
        devices=names, auto_shard_dataset=False
    ).scope()
    return scope


def _topology(devices: list[Any]) -> str:
    """Describe the mesh of chips, such as ``2×4×1 mesh, 1 host of 8 devices``."""
    places = [tuple(device.coords) for device in devices if getattr(device, "coords", None) is not None]
    hosts = len({device.process_index for device in devices})
    shared = f"{hosts} host{'s' if hosts > 1 else ''} of {len(devices) // hosts} devices"
    if not places:
        return shared
    mesh = "×".join(str(len({place[axis] for place in places})) for axis in range(len(places[0])))
    return f"{mesh} mesh, {shared}"


def _versions(settled: str) -> dict[str, str]:
    versions = {"jax": jax.__version__, "keras": keras.__version__, "tensorflow": tf.__version__}
    if settled == "tpu":  # a nightly build has another name
        versions["libtpu"] = installed_versions(("libtpu",)).get("libtpu", "of another package")
    return versions
