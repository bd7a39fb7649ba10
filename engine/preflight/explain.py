"""Explains why a step cannot be lowered or compiled, in terms of the user's model: which layer, which operation.

Keras wraps what a layer raises, and fails on some of JAX's exceptions while it does so. The cause is therefore searched
for in the whole chain of exceptions, and the layer in their stack frames.
"""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ConsoleError, one_line
from ..findings import Finding, Severity
from ..runs.failures import own_line
from .hlo import pipeline_remedy
from .layers import all_layers, has_open_sides, subject

if TYPE_CHECKING:
    from collections.abc import Iterator

_CALLED = re.compile(r"Exception encountered when calling (?:layer ')?([\w.]+?)(?:'|\.call\(\))")
_OWN_LINE = re.compile(r"(File .+, line \d+): (.*)")
_LONGEST_LINE = 120
_CHANGES_SIZE = re.compile(r"^random_?(height|width)", re.IGNORECASE)
_NO_KERNEL = re.compile(r"unsupported operations.* on XLA_\w+: (\w+) \(.*?\{\{node ([^}]+)\}\}", re.DOTALL)
_TENSORFLOW_LAYERS = ("TFSMLayer", "KerasLayer", "TorchModuleWrapper")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of error."""

    says: re.Pattern[str]  # pattern of an exception's class or message
    text: str  # what is wrong, after the layer's name
    remedy: str
    key: str = ""  # the setting that may help instead


_KINDS = (
    _Kind(
        re.compile(
            r"NonConcreteBooleanIndexError|concrete values of integer type|nonzero|jnp\.unique|The size argument of|"
            r"boolean_mask|dynamic shape|DynamicShape|must be (?:a )?static",
        ),
        "has an output whose shape changes, but a TPU program is compiled for fixed shapes",
        "Keep the shape: keras.ops.where instead of a boolean mask, a fixed size for nonzero and unique, and resizing "
        "in the input pipeline.",
    ),
    _Kind(
        re.compile(r"train_step\(\) takes 2 positional|test_step\(\) takes 2 positional"),
        "has its own train_step(self, data), as for TensorFlow, and on a TPU the model runs on JAX",
        "Override compute_loss instead, or write train_step(self, state, data) as in Keras's guide for JAX.",
        key="backend",
    ),
    _Kind(
        re.compile(r"UnexpectedTracerError|leaked trace"),
        "keeps a value from one step for a later one in a Python variable, which a compiled step cannot do",
        "Store it in a weight of the layer: self.add_weight(..., trainable=False) and assign().",
    ),
    _Kind(
        re.compile(r"only use seeded random ops"),
        "draws random numbers without a seed generator, and a compiled step would draw the same ones each time",
        "In __init__, self.seed = keras.random.SeedGenerator(); in call, give the random function seed=self.seed.",
    ),
    _Kind(
        re.compile(r"do(?:es)? not support (?:in-place )?item assignment"),
        "writes into a part of a tensor, and tensors cannot be changed",
        "Make a new one: keras.ops.where with a mask, keras.ops.slice_update or keras.ops.scatter_update.",
    ),
    _Kind(
        re.compile(r"TracerBoolConversionError|Attempted boolean conversion of traced"),
        "makes a Python decision (if, while, assert, and, or) on the values of a batch, which are unknown when the "
        "step is compiled",
        "Write keras.ops.where(condition, a, b), keras.ops.cond for whole branches, keras.ops.while_loop, and "
        "keras.ops.argsort, min or max for Python's sorted, min and max.",
    ),
    _Kind(
        re.compile(r"TracerArrayConversionError|has no attribute '?numpy\b|has no attribute '?tolist\b"),
        "gives the values of a batch to NumPy, and they are unknown when the step is compiled",
        "Use the function of keras.ops instead, such as keras.ops.sort for np.sort.",
    ),
    _Kind(
        re.compile(
            r"InconclusiveDimensionOperation|(?s:^(?!.*incompatible shapes).*dynamic_dimension)|"
            r"(?:NoneType|Tracer)\S* .*cannot be interpreted as an|"
            r"has no attribute 'process_primitive'"  # JAX 0.12, for arithmetic with an unknown size
        ),
        "uses the batch size as a Python number, and it is unknown while the layer is built",
        "Do it for the whole batch with keras.ops, or use keras.ops.vectorized_map or keras.ops.scan instead of a "
        "loop; -1 stands for the batch size in keras.ops.reshape.",
    ),
    _Kind(
        re.compile(
            r"TracerIntegerConversionError|ConcretizationTypeError|unsupported format string|"
            r"(?:float|int|bool)\(\) argument must be .*(?:KerasTensor|Tracer)",
        ),
        "turns the values of a batch into Python numbers, and they are unknown when the step is compiled",
        "Keep them as tensors: no float(), int(), item() or print; use keras.ops on the tensor itself, and "
        "keras.ops.while_loop instead of range().",
    ),
    _Kind(
        re.compile(
            r"not a valid JAX (?:array )?type|with dtype (?:<U|object|string)|"
            r"(?:F64|C128|float64|complex128)[^.]*(?:not supported|unsupported|[Uu]nimplemented)|"
            r"(?:not supported|unsupported|[Uu]nimplemented)[^.]*(?:F64|C128|float64|complex128|string)",
        ),
        "uses a data type that a TPU does not support: strings or 64-bit numbers",
        "Turn text into numbers in the input pipeline, and use float32, bfloat16 or int32 in the model.",
    ),
)
_TENSORFLOW = _Kind(
    re.compile(r"$^"),
    "calls TensorFlow, and on a TPU the model runs on JAX",
    "Write it with keras.ops instead of tf.",
    key="backend",
)


def explain_refusal(error: Exception, model: Any) -> tuple[str, tuple[Finding, ...]]:
    """Explain in one sentence and in findings why a step could not be built, lowered or compiled.

    `model` is None if it could not be built.
    """
    from .compile import refused_bytes  # JAX is loaded if a step was compiled

    if (figures := refused_bytes(str(error))) is not None:
        used, limit = (f"{number / 2**30:,.2f} GiB" for number in figures)
        text = f"The step needs {used}, and a device has {limit}."
        remedy = "Use a smaller batch_size, precision=mixed_bfloat16, or a TPU with more memory per device."
        return text, (Finding(Severity.ERROR, text, remedy=remedy, key="batch_size"),)
    chain = list(_chain(error))
    if (found := next(filter(None, (_NO_KERNEL.search(str(one)) for one in chain)), None)) is not None:
        return _no_xla_kernel(found[1], found[2], model)
    layer = _layer_of(chain, model)
    kind = _KINDS[0] if layer is not None and _changes_size(layer) else _kind_of(chain, layer)
    name = str(getattr(layer, "name", "") or "")
    if kind is None:
        return _unknown(error, chain, layer, name)
    text = f"{_subject(layer)} {kind.text}."
    whole = f"{text} {_where(chain)}".strip()
    remedy, key = pipeline_remedy(layer)
    return text, (Finding(Severity.ERROR, whole, name, remedy or kind.remedy, key or kind.key),)


def changing_shapes(model: Any) -> tuple[Finding, ...]:
    """Find the layers that change height, width or length from one call to the next.

    Such a layer may be traced with one random size and compiled into something that is not the user's model, so it is
    refused because of the output shape that Keras reports.
    """
    found = []
    for layer in all_layers(model):
        if _changes_size(layer):
            text = f"{_subject(layer)} {_KINDS[0].text}."
            remedy = "Remove it from the model; augmentation.zoom and augmentation.crop in the pipeline keep the size."
            found.append(Finding(Severity.ERROR, text, layer.name, remedy))
    return tuple(found)


def _changes_size(layer: Any) -> bool:
    """Whether Keras knows a layer's input, but not the height, width or length of its output."""
    if _CHANGES_SIZE.match(type(layer).__name__):
        return True
    if type(layer).__name__ == "InputLayer":  # of a model for any size; the dataset's is fixed
        return False
    return not has_open_sides(layer, "input") and has_open_sides(layer, "output")


def _no_xla_kernel(operation: str, node: str, model: Any) -> tuple[str, tuple[Finding, ...]]:
    """Explain an unsupported TensorFlow operation; the node's scope names layers, with a number if called again."""
    layers = {} if model is None else {layer.name: layer for layer in all_layers(model)}
    parts = [name for part in reversed(node.split("/")) for name in (part, re.sub(r"_\d+$", "", part))]
    layer = next((layers[part] for part in parts if part in layers), None)
    text = f"{_subject(layer)} uses TensorFlow's {operation}, which XLA cannot compile."
    remedy = "Do it in the input pipeline, or use operations that XLA supports, such as keras.ops."
    return text, (Finding(Severity.ERROR, text, str(getattr(layer, "name", "")), remedy),)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its cause, and so on back to the first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _layer_of(chain: list[BaseException], model: Any) -> Any:
    """Return the innermost layer that was being called, or None."""
    outer = None
    for error in reversed(chain):
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        for frame in reversed(frames):
            owner = frame.f_locals.get("self")
            is_layer = hasattr(owner, "get_config") and hasattr(owner, "trainable_weights") and hasattr(owner, "name")
            if not is_layer or frame.f_code.co_name not in {"call", "__call__", "build", "compute_output_spec"}:
                continue
            if not hasattr(owner, "layers"):
                return owner
            outer = outer or owner
    return _named(chain, model) or outer


def _named(chain: list[BaseException], model: Any) -> Any:
    """Return the layer that Keras's message names by its class or its name, if there is only one."""
    for error in reversed(chain):
        for word in reversed(_CALLED.findall(str(error))):
            same = [] if model is None else [one for one in all_layers(model) if word in (one.name, type(one).__name__)]
            if len(same) == 1:
                return same[0]
    return None


def _kind_of(chain: list[BaseException], layer: Any) -> _Kind | None:
    import keras  # loaded where a model was built

    files = [frame.f_code.co_filename for error in chain for frame, _ in traceback.walk_tb(error.__traceback__)]
    is_foreign = any("/site-packages/tensorflow/" in file or "/tensorflow_hub/" in file for file in files)
    if (is_foreign or type(layer).__name__ in _TENSORFLOW_LAYERS) and keras.backend.backend() == "jax":
        return _TENSORFLOW
    texts = [f"{' '.join(kind.__name__ for kind in type(error).__mro__)} {error}" for error in reversed(chain)]
    for text in texts:
        # JAX's messages go on with remedies for other cases, so only the beginning counts.
        if kind := next((kind for kind in _KINDS if kind.says.search(text[:600])), None):
            return kind
    return None


def _unknown(error: Exception, chain: list[BaseException], layer: Any, name: str) -> tuple[str, tuple[Finding, ...]]:
    """Pass on what was raised, with the layer if it is known."""
    known = next((one for one in chain if isinstance(one, ConsoleError)), None)
    if known is not None and layer is None:
        text = f"{known.what.rstrip('.')}. {known.why}".strip()
        return text, (Finding(Severity.ERROR, text, remedy=known.remedy),)
    first = chain[-1]
    words = (one_line(first) or type(first).__name__).replace("dynamic_dimension", "batch")
    if type(error).__name__ in {"JaxRuntimeError", "XlaRuntimeError"}:
        text = f"The TPU compiler refused the step: {words}"
    else:
        text = f"{_subject(layer)} raised {type(first).__name__}: {words}"
    text = f"{text.rstrip('.')}."
    where = _where(chain)
    remedy = "Fix it there and try again." if where else ""
    whole = f"{text} {where}".strip()
    return text, (Finding(Severity.ERROR, whole, name, remedy),)


def _where(chain: list[BaseException]) -> str:
    """Quote the line of the user's code where it began; empty if there is none."""
    line = next((line for line in map(own_line, reversed(chain)) if line), "")
    found = _OWN_LINE.fullmatch(line)
    return f"{found[1]}: `{found[2][:_LONGEST_LINE]}`." if found else line


def _subject(layer: Any) -> str:
    return "The model" if layer is None else subject(layer)
