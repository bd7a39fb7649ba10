"""Compiles the steps of a model that only TensorFlow can build, such as one from TensorFlow Hub, for a TPU.

TensorFlow gives the step as HLO, jaxlib turns that into StableHLO, and libtpu compiles it. The calls of
jaxlib are private (`engine.compat.jax`); `NotPossibleError` says if the installed versions do not have them or do not
understand each other. What is compiled is the work of one device on its share of the batch: the exchange of
gradients, which a strategy of TensorFlow adds, is not in the program and is calculated separately.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import jax
import tensorflow as tf

from ..compat.jax import compile_module, stablehlo
from ..errors import one_line
from .bound import ring_bytes
from .build import NotPossibleError, specification
from .compile import Compiler, bytes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .inputs import Batch

# The one XLA operation that TensorFlow uses and StableHLO lacks: it only keeps buffers apart.
_COPY = "mhlo.copy"


class GraphCompiler(Compiler):
    """Compiles TensorFlow steps for one device of a TPU."""

    share = (
        "TensorFlow's own step was compiled, for one device and its share of the batch: the exchange of gradients is "
        "calculated from the size of the weights, and the TensorFlow strategy itself is not checked."
    )

    def lower(self, model: Any, batch: Batch, replica_batch: int, *, is_training: bool = True) -> Any:
        """Trace a step and convert it from TensorFlow.

        Raises:
            NotPossibleError: The installed versions do not allow it.
            Exception: Anything that custom layers and TensorFlow raise.
        """
        step = model.train_step if is_training else model.test_step
        parts, structure = jax.tree.flatten(specification(batch, replica_batch, is_training=is_training))
        # TensorFlow gives only the program of a function of plain tensors.
        traced = tf.function(lambda *flat: step(jax.tree.unflatten(structure, flat)), jit_compile=True, autograph=False)
        data = [tf.TensorSpec(part.shape, part.dtype.name) for part in parts]
        if not hasattr(traced, "experimental_get_compiler_ir"):
            raise _not_possible("TensorFlow no longer gives its programs")
        program = traced.experimental_get_compiler_ir(*data)(stage="hlo_serialized")
        return _Lowered(_stable(program), self.devices[0])

    def exchanged(self, model: Any) -> float | None:
        """Return the bytes that a device sends when the devices sum their gradients in a ring."""
        return ring_bytes(bytes_of(model.trainable_variables), self.topology.devices)


class _Lowered:
    """A step as StableHLO, with the methods of a step that JAX lowered."""

    def __init__(self, module: Any, device: Any) -> None:
        self._module = module
        self._device = device

    def as_text(self, dialect: str = "stablehlo") -> str:
        return str(self._module) if dialect == "stablehlo" else ""

    def compiler_ir(self) -> Any:
        return self._module

    def compile(self, compiler_options: Mapping[str, bool] | None = None) -> _Compiled:
        try:
            return _Compiled(compile_module(self._module, self._device, compiler_options or {}))
        except (ImportError, AttributeError, TypeError) as error:
            raise _not_possible("jaxlib no longer compiles what JAX did not lower") from error


class _Compiled:
    """A compiled step, with the methods of one that JAX compiled."""

    def __init__(self, executable: Any) -> None:
        self._executable = executable

    def memory_analysis(self) -> Any:
        return self._executable.get_compiled_memory_stats()

    def cost_analysis(self) -> dict[str, float]:
        cost: dict[str, float] = self._executable.cost_analysis()
        return cost

    def as_text(self) -> str:
        return str(self._executable.hlo_modules()[0].to_string())


def _stable(program: bytes) -> Any:
    """Convert XLA's form of a program to StableHLO.

    Raises:
        NotPossibleError: jaxlib cannot do it, or not for this TensorFlow's programs.
    """
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
    # Not by the name of its package, which may be tensorflow-cpu.
    versions = f"tensorflow {tf.__version__}, jaxlib {version('jaxlib')}"
    return NotPossibleError(
        f"A TensorFlow step cannot be compiled for a TPU by the installed versions: {why} ({versions})."
    )
