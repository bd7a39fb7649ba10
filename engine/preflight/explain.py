"""Explains why a step cannot be lowered or compiled, in terms of the user's model: which layer, which operation.

Keras wraps what a layer raises, and fails on some of JAX's exceptions while it does so. The cause is therefore searched
for in the whole chain of exceptions, and the layer in their stack frames.
"""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import keras

from ..accelerators.table import loaded_framework
from ..errors import ConsoleError, one_line
from ..findings import Finding, Severity
from ..runs.failures import is_own_file, own_line
from .hlo import pipeline_remedy
from .layers import all_layers, has_open_sides, subject

if TYPE_CHECKING:
    from collections.abc import Iterator

_CALLED = re.compile(r"Exception encountered when calling (?:layer ')?([\w.]+?)(?:'|\.call\(\))")
_LONGEST_LINE = 120
_CHANGES_SIZE = re.compile(r"^random_?(height|width)", re.IGNORECASE)
_NO_KERNEL = re.compile(r"unsupported operations.* on XLA_\w+: (\w+) \(.*?\{\{node ([^}]+)\}\}", re.DOTALL)
_TEXT_FILES = re.compile(r"/(?:gen_)?string_ops\.py|/tensorflow_text/|/lookup_ops\.py")
_PREPROCESSING_LAYERS = ("Hashing", "HashedCrossing", "IntegerLookup", "StringLookup", "TextVectorization")
_TENSORFLOW_LAYERS = ("TFSMLayer", "KerasLayer", "TorchModuleWrapper")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of error."""

    says: re.Pattern[str]  # pattern of an exception's class or message
    # What is wrong, after the layer's name. One with {function} is about a call of Keras's or JAX's.
    text: str
    remedy: str
    key: str = ""  # the setting that may help instead


_CHANGING_OUTPUT = _Kind(
    re.compile(r"$^"),
    "has an output whose shape changes, but a TPU program is compiled for fixed shapes",
    "Give its output a fixed size, or resize in the input pipeline.",
)
_KINDS = (
    _Kind(
        re.compile(r"[Ss]lice (?:indices|entries) must (?:have|be) static"),
        "cuts a slice whose length depends on the values of a batch, but a TPU program is compiled for fixed shapes",
        "Keep the whole tensor and hide the rest: keras.ops.where(keras.ops.arange(LENGTH) < k, x, 0) instead of "
        "x[:, :k]. A window of a fixed length may begin anywhere: keras.ops.slice(x, start, shape).",
    ),
    _Kind(
        re.compile(r"Reverse-mode differentiation does not work for|requires a fixed tensor list size"),
        "has a loop whose number of rounds depends on values, and training cannot go back through it for the gradients",
        "Run the largest number of rounds that can occur: keras.ops.fori_loop(0, LARGEST, body, x), with "
        "keras.ops.where(i < n, new, old) in the body. If nothing before the loop is trained, it may stay: put "
        "keras.ops.stop_gradient around its inputs.",
    ),
    _Kind(
        re.compile(
            r"branches must have equal output types|body_fun (?:output and input|carry)|carry (?:input and|output)"
        ),
        "has a loop or a keras.ops.cond that does not always give the same shapes and data types",
        "Give both branches, or the values that a loop carries, the same shapes and data types: keras.ops.pad and "
        "keras.ops.cast.",
    ),
    _Kind(
        re.compile(
            r"(?s:^(?!.*(?:NonConcreteBooleanIndex|The size argument of|jnp\.unique|nonzero)).*"
            r"(?:ConcretizationTypeError|TracerIntegerConversionError|concrete values of integer type|"
            r"unhashable type: '\w*Tracer))"
        ),
        "gives {function} a number that depends on the values of a batch, but sizes and settings must be known when "
        "the step is compiled",
        "Give it a fixed number, the largest that can occur, and hide what is too much: "
        "keras.ops.where(keras.ops.arange(LARGEST) < number, result, 0).",
    ),
    _Kind(
        re.compile(
            r"NonConcreteBooleanIndexError|concrete values of integer type|nonzero|jnp\.unique|The size argument of|"
            r"boolean_mask|dynamic shape|DynamicShape|must be (?:a )?static",
        ),
        "makes a tensor whose shape depends on the values of a batch, but a TPU program is compiled for fixed shapes",
        "Keep the shape: keras.ops.where(mask, x, 0) instead of x[mask], a mean as keras.ops.sum(x * mask) / "
        "keras.ops.sum(mask), and a fixed size for nonzero and unique.",
    ),
    _Kind(
        re.compile(r"train_step\(\) takes 2 positional|test_step\(\) takes 2 positional"),
        "has its own train_step(self, data), as for TensorFlow, and on a TPU the model runs on JAX",
        "Override compute_loss instead, or write train_step(self, state, data), as Keras's guide for JAX does.",
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
        re.compile(r"TracerBoolConversionError|Attempted boolean conversion of traced|truth value of an array with"),
        "makes a Python decision (if, while, assert, and, or) on the values of a batch, which are unknown when the "
        "step is compiled",
        "Write keras.ops.where(condition, a, b), keras.ops.cond for whole branches, keras.ops.fori_loop over a fixed "
        "number of rounds for while, keras.ops.logical_and and logical_or, and keras.ops.argsort, min or max for "
        "Python's sorted, min and max.",
    ),
    _Kind(
        re.compile(r"TracerArrayConversionError|has no attribute '?numpy\b|has no attribute '?tolist\b"),
        "gives the values of a batch to NumPy, and they are unknown when the step is compiled",
        "Use the function of keras.ops instead, such as keras.ops.sort for np.sort.",
    ),
    _Kind(
        re.compile(r"'(?:ShapedArray|KerasTensor|\w*Tracer)' object has no attribute"),
        "uses a method or attribute that Keras's tensors do not have",
        "Use the function of keras.ops instead.",
    ),
    _Kind(
        re.compile(
            r"InconclusiveDimensionOperation|(?s:^(?!.*incompatible shapes).*dynamic_dimension)|"
            r"(?:NoneType|Tracer|_DimExpr)\S* .*cannot be interpreted as an|"
            r"has no attribute 'process_primitive'"  # JAX 0.12, for arithmetic with an unknown size
        ),
        "uses the batch size as a Python number, and it is unknown while the layer is built",
        "Do it for the whole batch with keras.ops, or use keras.ops.vectorized_map or keras.ops.scan instead of a "
        "loop; -1 stands for the batch size in keras.ops.reshape.",
    ),
    _Kind(
        re.compile(
            r"TracerIntegerConversionError|ConcretizationTypeError|unsupported format string|"
            r"(?:float|int|bool)\(\) argument must be .*(?:KerasTensor|Tracer)|unhashable type: '\w*Tracer",
        ),
        "turns the values of a batch into Python numbers, and they are unknown when the step is compiled",
        "Keep them as tensors: no float(), int(), item() or print; use keras.ops on the tensor itself, keras.ops.take "
        "for an index, and instead of range(n) keras.ops.fori_loop over a fixed number of rounds.",
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
    "Write it with keras.ops instead of tf. Or set backend=tensorflow: that needs a TPU VM with tensorflow-tpu.",
    key="backend",
)
_PREPROCESSING = _Kind(
    re.compile(r"$^"),
    "prepares texts or categories with TensorFlow, which no TPU does",
    "Do it in the dataset function, as in dataset.map(lambda x, y: (prepare(x), y)), and give the model its numbers.",
)


def explain_refusal(error: Exception, model: Any) -> tuple[str, tuple[Finding, ...]]:
    """Explain in one sentence and in findings why a step could not be built, lowered or compiled.

    `model` is None if it could not be built.
    """
    from .compile import refused_bytes  # it needs JAX

    if (figures := refused_bytes(str(error))) is not None:
        used, limit = (f"{number / 2**30:,.2f} GiB" for number in figures)
        text = f"The step needs {used}, and a device has {limit}."
        remedy = "Use a smaller batch_size, precision=mixed_bfloat16, or a TPU with more memory per device."
        return text, (Finding(Severity.ERROR, text, remedy=remedy, key="batch_size"),)
    chain = list(_chain(error))
    if (found := next(filter(None, (_NO_KERNEL.search(str(one)) for one in chain)), None)) is not None:
        return _no_xla_kernel(found[1], found[2], model)
    owner = _owner_of(chain, model)
    is_layer = hasattr(owner, "trainable_weights")
    kind = _CHANGING_OUTPUT if is_layer and _changes_size(owner) else _kind_of(chain, owner)
    name = str(owner.name) if is_layer else ""
    if kind is None:
        return _unknown(error, chain, owner, name)
    text = f"{_subject(owner)} {kind.text.format(function=_called_function(chain))}."
    remedy, key = pipeline_remedy(owner)
    whole = Finding(Severity.ERROR, text, name, remedy or kind.remedy, key or kind.key, evidence=_where(chain))
    return text, (whole,)


def changing_shapes(model: Any) -> tuple[Finding, ...]:
    """Find the layers that change height, width or length from one call to the next.

    Such a layer may be traced with one random size and compiled into something that is not the user's model, so it is
    refused because of the output shape that Keras reports.
    """
    found = []
    for layer in all_layers(model):
        if _changes_size(layer):
            text = f"{_subject(layer)} {_CHANGING_OUTPUT.text}."
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


def _owner_of(chain: list[BaseException], model: Any) -> Any:
    """Return the innermost layer, loss or metric that was being called, or None."""
    outer = None
    for error in reversed(chain):
        for frame, _ in reversed([*traceback.walk_tb(error.__traceback__)]):
            owner = frame.f_locals.get("self")
            if isinstance(owner, keras.Loss | keras.Metric) and not type(owner).__name__.startswith("Compile"):
                return owner
            is_layer = hasattr(owner, "get_config") and hasattr(owner, "trainable_weights") and hasattr(owner, "name")
            if not is_layer or frame.f_code.co_name not in {"call", "__call__", "build", "compute_output_spec"}:
                continue
            if not hasattr(owner, "layers"):
                return owner
            outer = outer or owner
    return _named(chain, model) or _with_line(chain, model) or outer


def _named(chain: list[BaseException], model: Any) -> Any:
    """Return the layer that Keras's message names by its class or its name, if there is only one."""
    for error in reversed(chain):
        for word in reversed(_CALLED.findall(str(error))):
            same = [] if model is None else [one for one in all_layers(model) if word in (one.name, type(one).__name__)]
            if len(same) == 1:
                return same[0]
    return None


def _with_line(chain: list[BaseException], model: Any) -> Any:
    """Return the layer whose `call` has a line of the traceback, if only one has: JAX rebuilds some without it."""
    places = [(frame.f_code.co_filename, line) for one in chain for frame, line in traceback.walk_tb(one.__traceback__)]
    codes = [] if model is None else [(layer, getattr(layer.call, "__code__", None)) for layer in all_layers(model)]
    own = [(layer, code) for layer, code in codes if code is not None and is_own_file(code.co_filename)]
    found = [layer for layer, code in own if any((code.co_filename, line) in places for *_, line in code.co_lines())]
    return found[0] if len(found) == 1 else None


def _kind_of(chain: list[BaseException], owner: Any) -> _Kind | None:
    if type(owner).__name__ in _PREPROCESSING_LAYERS:
        return _PREPROCESSING
    files = [frame.f_code.co_filename for error in chain for frame, _ in traceback.walk_tb(error.__traceback__)]
    is_foreign = any("/site-packages/tensorflow/" in file or "/tensorflow_hub/" in file for file in files)
    is_foreign &= not any(type(one).__module__.startswith("tensorflow.") for one in chain)  # it ran, and failed
    if (is_foreign or type(owner).__name__ in _TENSORFLOW_LAYERS) and not loaded_framework().runs_tensorflow:
        return _PREPROCESSING if _TEXT_FILES.search("\n".join(files)) else _TENSORFLOW
    kinds = [kind for kind in _KINDS if "{function}" not in kind.text or _called_function(chain)]
    texts = [f"{' '.join(kind.__name__ for kind in type(error).__mro__)} {error}" for error in reversed(chain)]
    for text in texts:
        # JAX's messages go on with remedies for other cases, so only the beginning counts.
        if kind := next((kind for kind in kinds if kind.says.search(text[:600])), None):
            return kind
    return None


def _called_function(chain: list[BaseException]) -> str:
    """Return the function of Keras or JAX that the last line of the user's code called; empty if it called none."""
    import jax.numpy  # it is not installed everywhere

    for error in reversed(chain):
        frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
        own = [number for number, code in enumerate(frames) if is_own_file(code.co_filename)]
        for code in frames[own[-1] + 1 :] if own else ():
            if not code.co_filename.endswith(("traceback_util.py", "traceback_utils.py")):
                name = code.co_name
                is_public = hasattr(keras.ops, name) or hasattr(jax.numpy, name)
                return name if is_public and not name.startswith("_") else ""
    return ""


def _unknown(error: Exception, chain: list[BaseException], layer: Any, name: str) -> tuple[str, tuple[Finding, ...]]:
    """Pass on what was raised, with the layer if it is known."""
    known = next((one for one in chain if isinstance(one, ConsoleError)), None)
    if known is not None and layer is None:
        text = f"{known.what.rstrip('.')}. {known.why}".strip()
        return text, (Finding(Severity.ERROR, text, remedy=known.remedy),)
    first = next(one for one in reversed(chain) if type(one).__name__ != "JaxStackTraceBeforeTransformation")
    words = (one_line(first) or type(first).__name__).replace("dynamic_dimension", "batch")
    if type(error).__name__ in {"JaxRuntimeError", "XlaRuntimeError"}:
        text = f"The TPU compiler refused the step: {words}"
    else:
        text = f"{_subject(layer)} raised {type(first).__name__}: {words}"
    text = f"{text.rstrip('.')}."
    where = _where(chain)
    remedy = "Fix it there and try again." if where else ""
    return text, (Finding(Severity.ERROR, text, name, remedy, evidence=where),)


def _where(chain: list[BaseException]) -> tuple[str, ...]:
    """Quote the line of the user's code where it began; empty if there is none."""
    line = next((line for line in map(own_line, reversed(chain)) if line), "")
    place, colon, code = line.partition(": ")
    return (f"{place}{colon}`{code[:_LONGEST_LINE]}`.",) if line else ()


def _subject(owner: Any) -> str:
    if isinstance(owner, keras.Loss | keras.Metric):
        function = getattr(owner, "fn", None)
        name = getattr(getattr(function, "func", function), "__name__", owner.name)
        return f"The {'loss' if isinstance(owner, keras.Loss) else 'metric'} '{name}'"
    return "The model" if owner is None else subject(owner)
