"""Explains why a step cannot be lowered or compiled, in terms of the user's model: which layer, which line.

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
    text: str  # what is wrong, after the layer's name
    remedy: str
    key: str = ""  # the setting that may help instead


_CHANGING_OUTPUT = "has an output whose shape changes, but a TPU program is compiled for fixed shapes"
_SIZE = _Kind(
    re.compile(
        r"NonConcreteBooleanIndexError|concrete values of integer type|nonzero|jnp\.unique|The size argument of|"
        r"[Ss]lice (?:indices|entries) must|boolean_mask|dynamic shape|DynamicShape|must be (?:a )?static"
    ),
    "needs a shape or size that depends on the values of a batch, but a TPU program is compiled for fixed shapes",
    "Use the largest size that can occur and hide what is too much: keras.ops.where(mask, x, 0) instead of "
    "x[mask], keras.ops.where(keras.ops.arange(LENGTH) < k, x, 0) instead of x[:, :k], a mean as "
    "keras.ops.sum(x * mask) / keras.ops.sum(mask), a fixed size for nonzero, unique and top_k. A window of a fixed "
    "length may begin anywhere: keras.ops.slice(x, start, shape).",
)
_DECISION = _Kind(
    re.compile(r"TracerBoolConversionError|Attempted boolean conversion of traced|truth value of an array with"),
    "makes a Python decision (if, while, assert, and, or) on the values of a batch, which are unknown when the "
    "step is compiled",
    "Write keras.ops.where(condition, a, b), keras.ops.cond for whole branches, keras.ops.fori_loop over a fixed "
    "number of rounds for while, keras.ops.logical_and and logical_or, and keras.ops.sort, min and max for Python's.",
)
_NUMBER = _Kind(
    re.compile(
        r"TracerIntegerConversionError|ConcretizationTypeError|TracerArrayConversionError|"
        r"unsupported format string|has no attribute '?(?:numpy|tolist)\b|unhashable type: '\w*Tracer|"
        r"(?:float|int|bool)\(\) argument must be .*(?:KerasTensor|Tracer)"
    ),
    "needs the values of a batch as Python or NumPy numbers, and they are unknown when the step is compiled",
    "Keep them as tensors: keras.ops instead of np, no float(), int(), item() or print; keras.ops.take for an "
    "index, and instead of range(n) keras.ops.fori_loop over a fixed number of rounds.",
)
_KINDS = (
    _Kind(
        re.compile(r"Reverse-mode differentiation does not work for|requires a fixed tensor list size"),
        "has a loop whose number of rounds depends on values, and training cannot go back through it",
        "Run the largest number of rounds that can occur: keras.ops.fori_loop(0, LARGEST, body, x), with "
        "keras.ops.where(i < n, new, old) in the body. If nothing before the loop is trained, put "
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
    _SIZE,
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
    _DECISION,
    _NUMBER,
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
        # The node's scope names layers, with a number if one is called again.
        parts = {re.sub(r"_\d+$", "", part) for part in found[2].split("/")} | {*found[2].split("/")}
        layer = next((one for one in (all_layers(model) if model is not None else ()) if one.name in parts), None)
        text = f"{_subject(layer)} uses TensorFlow's {found[1]}, which XLA cannot compile."
        remedy = "Do it in the input pipeline, or use operations that XLA supports, such as keras.ops."
        return text, (Finding(Severity.ERROR, text, str(getattr(layer, "name", "")), remedy),)
    owner = _owner_of(chain, model)
    name = str(owner.name) if hasattr(owner, "trainable_weights") else ""
    line = next((line for line in map(own_line, reversed(chain)) if line), "")
    place, colon, code = line.partition(": ")
    where = (f"{place}{colon}`{code[:_LONGEST_LINE]}`.",) if line else ()
    if name and _changes_size(owner):
        text, remedy, key = f"{_subject(owner)} {_CHANGING_OUTPUT}.", "Give its output a fixed size.", ""
    elif (kind := _kind_of(chain, owner)) is not None:
        text, remedy, key = f"{_subject(owner)} {kind.text}.", kind.remedy, kind.key
    else:
        known = next((one for one in chain if isinstance(one, ConsoleError)), None)
        if known is not None and owner is None:
            text = f"{known.what.rstrip('.')}. {known.why}".strip()
            return text, (Finding(Severity.ERROR, text, remedy=known.remedy),)
        first = next(one for one in reversed(chain) if type(one).__name__ != "JaxStackTraceBeforeTransformation")
        words = (one_line(first) or type(first).__name__).replace("dynamic_dimension", "batch")
        raised = f"{_subject(owner)} raised {type(first).__name__}"
        if type(error).__name__ in {"JaxRuntimeError", "XlaRuntimeError"}:
            raised = "The TPU compiler refused the step"
        text, remedy, key = f"{raised}: {words.rstrip('.')}.", "Fix it there and try again." if where else "", ""
    instead, setting = pipeline_remedy(owner)
    return text, (Finding(Severity.ERROR, text, name, instead or remedy, setting or key, evidence=where),)


def changing_shapes(model: Any) -> tuple[Finding, ...]:
    """Find the layers that change height, width or length from one call to the next.

    Such a layer may be traced with one random size and compiled into something that is not the user's model, so it is
    refused because of the output shape that Keras reports.
    """
    remedy = "Remove it from the model; augmentation.zoom and augmentation.crop in the pipeline keep the size."
    return tuple(
        Finding(Severity.ERROR, f"{_subject(layer)} {_CHANGING_OUTPUT}.", layer.name, remedy)
        for layer in all_layers(model)
        if _changes_size(layer)
    )


def _changes_size(layer: Any) -> bool:
    """Whether Keras knows a layer's input, but not the height, width or length of its output."""
    if _CHANGES_SIZE.match(type(layer).__name__):
        return True
    if type(layer).__name__ == "InputLayer":  # of a model for any size; the dataset's is fixed
        return False
    return not has_open_sides(layer, "input") and has_open_sides(layer, "output")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its cause, and so on back to the first."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def _owner_of(chain: list[BaseException], model: Any) -> Any:
    """Return the innermost layer, loss or metric that was being called, or None.

    The exceptions' stack frames show it; else Keras's message, by the layer's class or name, or the line of a layer's
    `call`: JAX rebuilds some exceptions without the frames' variables.
    """
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
    layers = [] if model is None else [*all_layers(model)]
    for word in (word for error in reversed(chain) for word in reversed(_CALLED.findall(str(error)))):
        if len(same := [one for one in layers if word in (one.name, type(one).__name__)]) == 1:
            return same[0]
    lines = {(frame.f_code.co_filename, line) for one in chain for frame, line in traceback.walk_tb(one.__traceback__)}
    codes = [(layer, getattr(layer.call, "__code__", None)) for layer in layers]
    own = [(layer, code) for layer, code in codes if code is not None and is_own_file(code.co_filename)]
    named = [layer for layer, code in own if lines & {(code.co_filename, line) for *_, line in code.co_lines()}]
    return named[0] if len(named) == 1 else outer


def _kind_of(chain: list[BaseException], owner: Any) -> _Kind | None:
    if type(owner).__name__ in _PREPROCESSING_LAYERS:
        return _PREPROCESSING
    files = [frame.f_code.co_filename for error in chain for frame, _ in traceback.walk_tb(error.__traceback__)]
    is_foreign = any("/site-packages/tensorflow/" in file or "/tensorflow_hub/" in file for file in files)
    is_foreign &= not any(type(one).__module__.startswith("tensorflow.") for one in chain)  # it ran, and failed
    if (is_foreign or type(owner).__name__ in _TENSORFLOW_LAYERS) and not loaded_framework().runs_tensorflow:
        return _PREPROCESSING if _TEXT_FILES.search("\n".join(files)) else _TENSORFLOW
    for error in reversed(chain):
        # JAX's messages go on with remedies for other cases, so only the beginning counts.
        text = f"{' '.join(kind.__name__ for kind in type(error).__mro__)} {error}"[:600]
        if kind := next((kind for kind in _KINDS if kind.says.search(text)), None):
            called = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
            own = max((number for number, file in enumerate(called) if is_own_file(file)), default=len(called))
            # Keras's own code needs the value of a number that it was given, such as the k of top_k.
            in_keras = kind in (_DECISION, _NUMBER) and any("/keras/src/ops/" in file for file in called[own:])
            return _SIZE if in_keras else kind
    return None


def _subject(owner: Any) -> str:
    if isinstance(owner, keras.Loss | keras.Metric):
        function = getattr(owner, "fn", None)
        name = getattr(getattr(function, "func", function), "__name__", owner.name)
        return f"The {'loss' if isinstance(owner, keras.Loss) else 'metric'} '{name}'"
    return "The model" if owner is None else subject(owner)
