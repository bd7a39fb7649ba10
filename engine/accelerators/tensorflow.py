"""TensorFlow: CPU, GPUs, simulated replicas, and a TPU on a TPU VM with ``tensorflow-tpu`` or at an address."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..config.values import parse_accelerator
from ..errors import AcceleratorError, one_line
from ..machine.devices import Hardware, detect_hardware
from ..machine.environment import usable_cores
from ..machine.install import compiles_for_cpu, install_line
from ..machine.sources import this_machine
from .framework import Accelerator, Framework, NotPossibleError

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..runs.events import Replica

LIMIT_S = 90.0  # longest time a TPU may take to answer: a v3-8 takes about 15 s, a slice of several hosts longer
_LOCAL = "local"
_CHECK_TPU = "Check the address and that the TPU is running; `tpu-console doctor` names a process that holds it."
_COPY = "mhlo.copy"  # the one XLA operation that TensorFlow uses and StableHLO lacks: it only keeps buffers apart


class TensorFlow(Framework):
    """TensorFlow, with a strategy if there are several replicas."""

    name = "tensorflow"
    title = "TensorFlow"
    reaches_other_machines = True
    takes_tpu_when_imported = True
    runs_tensorflow = True
    has_float64 = True
    step_note = (
        "TensorFlow's own step was compiled, for one device and its share of the batch: the exchange of gradients is "
        "calculated from the size of the weights, and the TensorFlow strategy itself is not checked."
    )

    def connect(self, config: RunConfig, name: str) -> Accelerator:
        import keras
        import tensorflow as tf

        from ..runs.events import Replica

        asked = parse_accelerator(name)
        if asked.is_tpu:
            return connect_tpu(self, asked.address)
        gpus = tf.config.list_physical_devices("GPU")
        if name == "gpu" and not gpus:
            raise AcceleratorError(
                "There is no GPU that TensorFlow can use.",
                why=_why_no_gpu(detect_hardware()),
                remedy=f"There are: cpu ({usable_cores()} cores), sim:N (N simulated replicas on the CPU).",
            )
        try:
            if name == "gpu" or (name == "auto" and gpus):
                settled, devices = "gpu", _gpus(gpus)
                found = f"found {len(gpus)} GPUs" if len(gpus) > 1 else f"found a GPU ({devices['/device:GPU:0']})"
            else:
                tf.config.set_visible_devices([], "GPU")
                settled, devices = "cpu", {"/device:CPU:0": f"CPU, {usable_cores()} cores"}
                found = _why_no_gpu(detect_hardware()) if name == "auto" else ""
                if asked.simulated:
                    settled, devices = name, _simulated(asked.simulated)
            several = len(devices) > 1
            strategy = tf.distribute.MirroredStrategy([*devices]) if several else tf.distribute.get_strategy()
        except RuntimeError as error:
            raise AcceleratorError(
                f"The accelerator '{name}' can no longer be set up in this process.",
                why=str(error),
                remedy="Start the run in its own process, without --in-process.",
            ) from error
        host = socket.gethostname()
        return Accelerator(
            name=settled,
            reason=f"auto: {found}" if name == "auto" else "asked for",
            framework=self,
            strategy=type(strategy).__name__ if several else "",
            replicas=tuple(Replica(index, *device, host) for index, device in enumerate(devices.items())),
            scope=strategy.scope,
            versions={"tensorflow": tf.__version__, "keras": keras.__version__},
        )

    def uses_scope(self, accelerator: str, replicas: int) -> bool:
        return replicas > 1 or accelerator == "tpu"

    def fits_in_trace(self, *, in_scope: bool) -> bool:
        """Under a strategy, `fit` builds a model before its first step."""
        return not in_scope

    def allows_xla(self, *, in_scope: bool) -> bool:
        """Under a strategy, building a model on TPU and GPU fails with XLA (keras#19448)."""
        return not in_scope and compiles_for_cpu()

    def one_step_reason(self, replicas: int) -> str:
        """Keras 3 fails with "must feed a value for placeholder" for more than one."""
        return "Keras runs one step at a time with several replicas (keras#19246)" if replicas > 1 else ""

    def compiled(self, model: Any, after: Callable[..., Any]) -> Callable[..., Any]:
        import tensorflow as tf

        @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]  # TensorFlow is untyped
        def traced(given: Any, *more: Any) -> Any:
            return after(model(given, training=False), *more)

        # As tensors: every new value of a number or an array would be traced again.
        return lambda *given: traced(*tf.nest.map_structure(tf.constant, given)).numpy()

    def _memory(self, kind: str, number: int) -> tuple[int | None, int | None, int | None, str]:
        import tensorflow as tf

        try:
            info = tf.config.experimental.get_memory_info(f"{kind.upper()}:{number}")
        except (ValueError, RuntimeError, tf.errors.OpError) as error:
            return None, None, None, f"TensorFlow reports an error: {one_line(error, 100)}"
        if not info["peak"]:  # it does not follow the device, or nothing was put there yet
            return None, None, None, "TensorFlow has counted no memory there"
        return int(info["current"]), int(info["peak"]), None, "TensorFlow reports no limit: its share grows as needed"

    def showing_shapes(self, model: Any, step: Callable[..., Any], show: Callable[[Any], None]) -> Any:
        """Return a step that XLA compiles: it does so for each shape, while TensorFlow traces a batch of any length.

        None under a strategy, whose replicas exchange gradients outside of what is compiled. What TensorFlow counts
        itself (``/tensorflow/core/xla_compilations``) cannot be read from Python.
        """
        import keras
        import tensorflow as tf

        with model.distribute_strategy.scope():
            if not model.jit_compile or tf.distribute.has_strategy():
                return None
        compiled = tf.function(step, jit_compile=True, reduce_retracing=True, autograph=False)

        def shown(data: Any) -> Any:
            parts = keras.tree.flatten(data)
            tensors = [part for part in parts if isinstance(part, tf.Tensor)]

            def specified(*shapes: Any) -> None:
                specs = [tf.TensorSpec(shape, one.dtype) for shape, one in zip(shapes, tensors, strict=True)]
                known = iter(specs)
                show(keras.tree.map_structure(lambda part: next(known) if isinstance(part, tf.Tensor) else part, data))

            if not all(one.shape.is_fully_defined() for one in tensors):
                tf.numpy_function(specified, [tf.shape(one) for one in tensors], [])
            return compiled(data)

        return shown

    def start_trace(self, folder: Path) -> None:
        import tensorflow as tf

        tf.profiler.experimental.start(str(folder))

    def stop_trace(self) -> None:
        import tensorflow as tf

        tf.profiler.experimental.stop()

    def code(self, accelerator: str, replicas: int) -> tuple[dict[str, str], list[str]]:
        lines: list[str] = []
        if accelerator == "tpu":
            lines = [
                "resolver = tf.distribute.cluster_resolver.TPUClusterResolver()",
                "tf.config.experimental_connect_to_cluster(resolver)",
                "tf.tpu.experimental.initialize_tpu_system(resolver)",
                "strategy = tf.distribute.TPUStrategy(resolver)",
            ]
        elif replicas > 1 and accelerator.startswith("sim:"):
            lines = [
                f"# {replicas} replicas, simulated on the CPU.",
                'cpu = tf.config.list_physical_devices("CPU")[0]',
                f"devices = [tf.config.LogicalDeviceConfiguration()] * {replicas}",
                "tf.config.set_logical_device_configuration(cpu, devices)",
                f'names = [f"/CPU:{{number}}" for number in range({replicas})]',
                "strategy = tf.distribute.MirroredStrategy(names)",
            ]
        elif replicas > 1:
            lines = ["strategy = tf.distribute.MirroredStrategy()  # all GPUs"]
        return {"KERAS_BACKEND": self.name}, lines

    def lower(
        self, model: Any, data: Callable[[int, Any], Any], devices: Sequence[Any], *, is_training: bool = True
    ) -> Any:
        """Trace a step for one device: TensorFlow gives it as HLO, and jaxlib turns that into StableHLO."""
        import jax
        import tensorflow as tf

        step = model.train_step if is_training else model.test_step
        parts, structure = jax.tree.flatten(data(1, None))
        # TensorFlow gives only the program of a function of plain tensors.
        traced = tf.function(lambda *flat: step(jax.tree.unflatten(structure, flat)), jit_compile=True, autograph=False)
        given = [tf.TensorSpec(part.shape, part.dtype.name) for part in parts]
        if not hasattr(traced, "experimental_get_compiler_ir"):
            raise _not_possible("TensorFlow no longer gives its programs")
        program = traced.experimental_get_compiler_ir(*given)(stage="hlo_serialized")
        module = _stable(program)
        return SimpleNamespace(  # the methods of a step that JAX lowered
            as_text=lambda dialect="stablehlo": str(module) if dialect == "stablehlo" else "",
            compiler_ir=lambda: module,
            compile=lambda: _compiled(module, devices[0]),
        )


def _why_no_gpu(hardware: Hardware) -> str:
    if hardware.gpus:
        return (
            f"TensorFlow does not see {hardware.gpus[0]}: its CUDA libraries are missing or do not match "
            f"(`{install_line('tensorflow[and-cuda]')}`)."
        )
    return next((text for text in hardware.hidden if "GPU" in text), "No NVIDIA GPU was found.")


def _gpus(gpus: Sequence[Any]) -> dict[str, str]:
    """Set up the GPUs, and return their kinds by device."""
    import tensorflow as tf

    from ..compat.tensorflow import wait_for_replica_threads

    for gpu in gpus:
        tf.config.experimental.set_memory_growth(gpu, True)
    wait_for_replica_threads()
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return {f"/device:GPU:{number}": one.get("device_name", "GPU") for number, one in enumerate(details)}


def _simulated(count: int) -> dict[str, str]:
    """Make several devices of the CPU, and return their kinds by device."""
    import tensorflow as tf

    from ..compat.tensorflow import switch_off_tuning_of_device_iterators, wait_for_replica_threads

    switch_off_tuning_of_device_iterators()
    wait_for_replica_threads()
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * count)
    return dict.fromkeys((device.name for device in tf.config.list_logical_devices("CPU")), "CPU, simulated")


def _compiled(module: Any, device: Any) -> SimpleNamespace:
    """Compile a module of StableHLO; return the methods of a step that JAX compiled."""
    from ..compat.jax import compile_module

    try:
        executable = compile_module(module, device)
    except (ImportError, AttributeError, TypeError) as error:
        raise _not_possible("jaxlib no longer compiles what JAX did not lower") from error
    return SimpleNamespace(
        memory_analysis=executable.get_compiled_memory_stats,
        cost_analysis=executable.cost_analysis,
        as_text=lambda: str(executable.hlo_modules()[0].to_string()),
    )


def _stable(program: bytes) -> Any:
    """Convert XLA's form of a program to StableHLO."""
    from ..compat.jax import stablehlo

    try:
        module = stablehlo(program)
    except (ImportError, AttributeError, TypeError) as error:
        raise _not_possible("jaxlib no longer reads XLA's programs") from error
    except (ValueError, RuntimeError) as error:
        raise _not_possible(f"jaxlib does not understand TensorFlow's program ({one_line(error, 200)})") from error
    _drop_copies(module.operation)
    return module


def _drop_copies(operation: Any) -> None:
    """Replace the result of each copy by its operand."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in list(block.operations):
                _drop_copies(inner.operation)
                if inner.operation.name == _COPY:
                    inner.operation.results[0].replace_all_uses_with(inner.operation.operands[0])
                    inner.operation.erase()


def _not_possible(why: str) -> NotPossibleError:
    import tensorflow as tf

    # Not by the name of its package, which may be tensorflow-cpu.
    versions = f"tensorflow {tf.__version__}, jaxlib {version('jaxlib')}"
    return NotPossibleError(
        f"A TensorFlow step cannot be compiled for a TPU by the installed versions: {why} ({versions})."
    )


class Target(Struct, frozen=True):
    """A TPU to connect to."""

    address: str  # the argument of `TPUClusterResolver`: ``local``, ``grpc://…``, or a name
    why: str  # where it comes from


def choose_target(asked: str, environ: Mapping[str, str], *, is_here: bool) -> Target | None:
    """Return the TPU at the address of ``tpu:ADDRESS``, if any, or the first with a sign of one, or None.

    The order is that of TensorFlow's `TPUClusterResolver` and Colab's notebooks.
    """
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
    """Connect the TPU at an address, or the first that is found; raise `AcceleratorError` if none can be used.

    A resolver accepts anything, and only connecting shows whether a TPU is there. That may hang forever, so a separate
    process runs this module first, and ends before this one connects: a TPU has one user at a time. The thread that
    connects also builds, compiles and trains.
    """
    import keras
    import tensorflow as tf

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
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
    if address != _LOCAL:
        tf.config.experimental_connect_to_cluster(resolver)
    return resolver, tf.tpu.experimental.initialize_tpu_system(resolver)


def replicas(coordinates: Any, kind: str, host: str) -> tuple[Replica, ...]:
    """List a topology's devices; `coordinates` has shape ``(tasks, devices per task, 4)``: x, y, z and core."""
    from ..runs.events import Replica

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
    command = [sys.executable, "-P", "-m", "tpu_console.engine.accelerators.tensorflow", target.address]
    # Elsewhere, the resolver would wait for a metadata server that is not there.
    is_google = "Google" in this_machine().text("sys/class/dmi/id/product_name")
    env = os.environ if is_google else {"TPU_SKIP_MDS_QUERY": "1"} | os.environ
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False, env=env)
    except subprocess.TimeoutExpired as error:
        raise AcceleratorError(
            f"The TPU at {target.address} ({target.why}) did not answer within {limit_s:.0f} s.", remedy=_CHECK_TPU
        ) from error
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        answer = {"error": (done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"])[0]}
    if "error" in answer:
        raise refusal(target, answer["error"])


def refusal(target: Target, error: str) -> AcceleratorError:
    """Return the error that says why a TPU was not connected, from what TensorFlow said."""
    import tensorflow as tf

    where, why = f"The TPU at {target.address} ({target.why}) cannot be used.", " ".join(error.split())[:300]
    remedy = _CHECK_TPU
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
