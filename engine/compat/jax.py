"""Private calls of JAX and jaxlib, checked on JAX 0.10.2."""

from importlib import import_module
from typing import Any


def stablehlo(program: bytes) -> Any:
    """Turn XLA's own form of a program into a module of StableHLO.

    Private: `jaxlib._jax.mlir.hlo_to_stablehlo` and `jaxlib.mlir.ir`. JAX has no public call for programs that it did
    not trace itself. Without it, a train step that only TensorFlow can make cannot be compiled for a TPU.

    Raises:
        ImportError, AttributeError, TypeError: This jaxlib has no such call.
        ValueError, RuntimeError: It cannot read the program.
    """
    from jax.interpreters.mlir import make_ir_context

    text = import_module("jaxlib._jax").mlir.hlo_to_stablehlo(program)
    with make_ir_context():
        return import_module("jaxlib.mlir.ir").Module.parse(text)


def compile_module(module: Any, device: Any) -> Any:
    """Compile a module of StableHLO for a device; return jaxlib's executable.

    Private: `DeviceList` and `CompileOptions` of `jaxlib._jax`, and `Device.client.compile`, for the reason that
    `stablehlo` names.

    Raises:
        ImportError, AttributeError, TypeError: This jaxlib has no such call.
        Exception: Whatever the compiler raises.
    """
    internal = import_module("jaxlib._jax")
    return device.client.compile(module, internal.DeviceList((device,)), internal.CompileOptions())


def coordination_client() -> Any:
    """Return the client with which `jax.distributed.initialize` connected this process.

    Private: `jax._src.distributed.global_state.client`, which Orbax uses too. It has a key-value store for short texts,
    and barriers. JAX has no public call for that, and an `allgather` would need all hosts at the same point of the
    program. Without it, several hosts cannot train together.
    """
    from jax._src import distributed

    return distributed.global_state.client


def leave_sigterm_alone() -> None:
    """Keep `jax.distributed.initialize` from handling SIGTERM in this process.

    Private: `jax._src.distributed.State.initialize_preemption_sync_manager`. The option
    ``jax_enable_preemption_service`` does the same, but JAX 0.4 has none. Without it, a second SIGTERM is lost.
    """
    from jax._src import distributed

    distributed.global_state.initialize_preemption_sync_manager = lambda: None
