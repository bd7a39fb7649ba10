"""JAX: CPU, GPUs, TPUs, simulated replicas, on one host or several (`engine.accelerators.hosts`).

Several devices share a batch by `keras.distribution.DataParallel`: the model is replicated, the batch is dealt out.
"""

from __future__ import annotations

import math
import os
import platform
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.values import AcceleratorKind
from ..errors import AcceleratorError, one_line
from ..machine.sources import installed_versions
from ..storage.files import COMPILED, compiled_files, make_room
from ..storage.keyed_store import key_of
from ..storage.paths import cache_folder
from .framework import Accelerator, Framework, Share

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..runs.events import Replica

_PLATFORMS = {"gpu": ("gpu", "cuda", "rocm"), "tpu": ("tpu",)}
_THREADS_PER_REPLICA = 8
_MOST_COMPILED_BYTES = 1 << 30
_KEPT_FROM_S = 0.3  # programs that compile faster are not kept
AHEAD_S = 0.5  # most seconds of work that wait for the device
_FEWEST_AHEAD = 2
_NEW_WEIGHT = 0.2  # of the newest time of a step in the mean


class Jax(Framework):
    """JAX, which can use a TPU wherever its packages are."""

    name = "jax"
    title = "JAX"
    joins_hosts = True
    splits_evenly = True
    builds_from_shapes = True
    _hits: int | None = None
    host_step_s = 0.2e-3
    """0.23 ms per step were measured with a single dense layer on the two cores that docs/benchmarks.md names. Faster
    cores need less."""

    def environment(self, config: RunConfig) -> dict[str, str]:
        found = super().environment(config)
        if count := config.requested.simulated:
            # Under several hosts each one simulates its share.
            each = max(1, count // (config.hosts.count if isinstance(config.hosts.count, int) else 1))
            found |= _simulation(each)
            found["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {found['XLA_FLAGS']}".strip()
        if config.requested.kind in {AcceleratorKind.CPU, AcceleratorKind.SIMULATED}:
            # Else JAX would take the TPU or GPU of the machine, which another process may be using.
            found["JAX_PLATFORMS"] = "cpu"
        return found | _compilation_cache()

    def prepare(self, config: RunConfig) -> None:
        """Set the variables, and keep the compiled programs from filling the disk."""
        super().prepare(config)
        make_room(compiled_files(), _MOST_COMPILED_BYTES)

    def connect(self, config: RunConfig, name: str) -> Accelerator:
        import jax
        import keras
        import tensorflow as tf

        # TensorFlow only feeds the data here: it must not take memory of a device, nor the TPU.
        for kind in ("GPU", "TPU"):
            tf.config.set_visible_devices([], kind)
        devices = _devices(name)
        settled = name if name != "auto" else {"cpu": "cpu", "tpu": "tpu"}.get(devices[0].platform, "gpu")
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
        versions = {"jax": jax.__version__, "keras": keras.__version__, "tensorflow": tf.__version__}
        if settled == "tpu":  # a nightly build has another name
            versions["libtpu"] = installed_versions(("libtpu",)).get("libtpu", "of another package")
        return Accelerator(
            name=settled,
            reason="asked for" if name != "auto" else f"auto: JAX found {_described(devices)}",
            framework=self,
            strategy="DataParallel" if len(devices) > 1 else "",
            replicas=tuple(_replica(index, device, is_simulated=bool(count)) for index, device in enumerate(devices)),
            scope=lambda: _scope(devices),
            versions=versions,
            topology=_topology(devices) if settled == "tpu" else "",
            share=Share(jax.process_index(), jax.process_count(), is_even=self.splits_evenly and len(devices) > 1),
        )

    def why_no_gpu(self, environ: Mapping[str, str]) -> str:
        platforms = environ.get("JAX_PLATFORMS", "")
        if not platforms or {"cuda", "gpu", "rocm"} & {*platforms.split(",")}:
            return ""
        return f"JAX_PLATFORMS={platforms} keeps JAX from using the GPU."

    def one_step_reason(self, replicas: int) -> str:
        """Its trainer runs the steps of an execution one by one all the same, and none waits for the device."""
        return "JAX queues steps by itself"

    def limit_dispatch(self, model: Any) -> DispatchLimiter:
        inner = model.train_function
        limiter = DispatchLimiter(inner.train_function if isinstance(inner, DispatchLimiter) else inner)
        model.train_function = limiter
        return limiter

    def compiled(self, model: Any, after: Callable[..., Any]) -> Callable[..., Any]:
        import jax
        import keras

        @jax.jit  # type: ignore[untyped-decorator]  # JAX is not looked into
        def traced(trained: Any, other: Any, given: Any, *more: Any) -> Any:
            outputs, _ = model.stateless_call(trained, other, given, training=False)
            return after(outputs, *more)

        def call(given: Any, *more: Any) -> Any:
            # Weights are arguments: the compiled function would keep those of the first call.
            parts = (model.trainable_variables, model.non_trainable_variables)
            return keras.ops.convert_to_numpy(traced(*([one.value for one in part] for part in parts), given, *more))

        return call

    def _memory(self, kind: str, number: int) -> tuple[int | None, int | None, int | None, str]:
        import jax

        device = next((device for device in jax.local_devices() if device.id == number), None)
        try:
            stats = (device.memory_stats() if device is not None else None) or {}
        except RuntimeError as error:  # the class of XLA's errors
            return None, None, None, f"JAX reports an error: {one_line(error, 100)}"
        used, peak, limit = (stats.get(name) for name in ("bytes_in_use", "peak_bytes_in_use", "bytes_limit"))
        return used, peak, limit, "JAX reports no memory for this device" if None in (used, peak, limit) else ""

    def traces_steps(self, model: Any) -> bool:
        """Return whether `fit` compiles the step: Keras does not if a layer does not allow it."""
        return super().traces_steps(model) and bool(model.jit_compile)

    def cached_programs(self) -> int | None:
        if self._hits is None:
            import jax

            self._hits = 0
            jax.monitoring.register_event_listener(self._hear)
        return self._hits

    def _hear(self, event: str, **_: object) -> None:
        self._hits = (self._hits or 0) + (event == "/jax/compilation_cache/cache_hits")

    def start_trace(self, folder: Path) -> None:
        """Begin to write a trace, without every call of a Python function."""
        import jax

        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        jax.profiler.start_trace(folder, profiler_options=options)

    def stop_trace(self) -> None:
        import jax

        jax.profiler.stop_trace()

    def code(self, accelerator: str, replicas: int) -> tuple[dict[str, str], list[str]]:
        environment, lines = {"KERAS_BACKEND": self.name}, []
        if accelerator == "cpu" or accelerator.startswith("sim:"):
            environment["JAX_PLATFORMS"] = "cpu"
        if accelerator.startswith("sim:"):
            environment |= _simulation(replicas)
        if accelerator in {"gpu", "tpu"}:
            lines += [
                "# TensorFlow only reads the data, so tensorflow-cpu is enough. JAX has the devices.",
                f'tf.config.set_visible_devices([], "{accelerator.upper()}")',
            ]
        if replicas > 1:
            lines += [
                "# Each device gets a part of every batch.",
                "distribution = keras.distribution.DataParallel(auto_shard_dataset=False)",
                "keras.distribution.set_distribution(distribution)",
            ]
        return environment, lines

    def lower(
        self, model: Any, data: Callable[[int, Any], Any], devices: Sequence[Any], *, is_training: bool = True
    ) -> Any:
        """Trace a step with its batch sharded over the devices and its state replicated, as `DataParallel` does."""
        import jax
        import keras
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec

        mesh = Mesh(np.array(devices), ("batch",))
        replicated = NamedSharding(mesh, PartitionSpec())
        parts = [model.trainable_variables, model.non_trainable_variables, model.metrics_variables]
        if is_training:
            parts.insert(2, model.optimizer.variables)
        state = tuple(
            [jax.ShapeDtypeStruct(one.shape, one.dtype, sharding=replicated) for one in part] for part in parts
        )
        step = jax.jit(
            model.train_step if is_training else model.test_step,
            donate_argnums=0,
            out_shardings=(None, jax.tree.map(lambda part: part.sharding, state)),
        )
        with keras.StatelessScope(initialize_variables=False):
            return step.lower(state, data(len(devices), NamedSharding(mesh, PartitionSpec("batch"))))


def _simulation(replicas: int) -> dict[str, str]:
    """Return the variables with which JAX makes several devices of a CPU."""
    # A replica that waits for the others holds a thread of a shared pool, which has one per replica by default. If
    # another finds none left, XLA ends the process after 40 s. So there are more threads, and each convolution is
    # computed by one of them.
    flags = f"--xla_force_host_platform_device_count={replicas} --xla_cpu_multi_thread_eigen=false"
    return {"XLA_FLAGS": flags, "PJRT_NPROC": str(_THREADS_PER_REPLICA * replicas)}


def _compilation_cache() -> dict[str, str]:
    """Return the variables with which JAX keeps compiled programs, unless the user has set their folder."""
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return {}
    # A program compiled for one processor may end with an illegal instruction on another that shares the folder.
    with suppress(OSError):
        flags = [line for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines() if line.startswith("flags")]
        folder = cache_folder() / COMPILED / key_of([platform.machine(), *flags[:1]])
        kept_from = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": str(_KEPT_FROM_S)}
        return {"JAX_COMPILATION_CACHE_DIR": str(folder)} | kept_from
    return {}


def _devices(name: str) -> list[Any]:
    import jax

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
    import jax

    from ..runs.events import Replica

    coordinates = getattr(device, "coords", None)
    return Replica(
        index=index,
        device=f"{device.platform}:{device.id}",
        kind="CPU, simulated" if is_simulated else str(device.device_kind),
        host=socket.gethostname() if device.process_index == jax.process_index() else f"host {device.process_index}",
        coordinates="" if coordinates is None else ",".join(map(str, coordinates)),
        core=getattr(device, "core_on_chip", None),
        process=int(device.process_index),
    )


def _scope(devices: list[Any]) -> AbstractContextManager[Any]:
    """Return Keras's distribution of one batch over the devices, or nothing special for a single one."""
    import keras

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
    places = [device.coords for device in devices if getattr(device, "coords", None) is not None]
    hosts = len({device.process_index for device in devices})
    shared = f"{hosts} host{'s' if hosts > 1 else ''} of {len(devices) // hosts} devices"
    mesh = "×".join(str(len({*axis})) for axis in zip(*places, strict=True))
    return f"{mesh} mesh, {shared}" if mesh else shared


class DispatchLimiter:
    """A model's compiled train function, which waits before it sends one more step than may be under way.

    JAX sends a step and does not wait for it. Up to 32 steps may be under way, half a minute for a model that takes a
    second per step: a stop during the first would take effect after the last. So about half a second of work is sent
    ahead, and at least two steps, so that the device is not idle between them.

    It waits for a step's metrics, because the weights are donated to the next step. A step's errors are raised here.
    """

    def __init__(self, train_function: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self.train_function = train_function
        self._sent: deque[Any] = deque()
        self._most = _FEWEST_AHEAD
        self._step_s: float | None = None
        self._waited_at: float | None = None

    def __call__(self, state: Any, iterator: Any) -> tuple[Any, Any]:
        """Send a step; return its metrics and the next state, neither of which need be computed yet."""
        import jax

        while len(self._sent) >= self._most:
            jax.block_until_ready(self._sent.popleft())
            now = time.monotonic()
            if self._waited_at is not None:
                step_s = now - self._waited_at
                mean_s = step_s if self._step_s is None else self._step_s
                self._step_s = mean_s + _NEW_WEIGHT * (step_s - mean_s)
                self._most = max(_FEWEST_AHEAD, math.ceil(AHEAD_S / max(self._step_s, 1e-6)))
            self._waited_at = now
        metrics, state = self.train_function(state, iterator)
        self._sent.append(metrics)
        return metrics, state

    def wait(self) -> None:
        """Wait until the device has finished all steps."""
        import jax

        jax.block_until_ready(list(self._sent))
        self._sent.clear()
        self._waited_at = None  # the time until the next step is not that of a step
