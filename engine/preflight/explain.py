"""Explains why a step cannot be lowered or compiled, in terms of the user's model: which layer, which line.

Keras wraps what a layer raises, and fails on some of JAX's exceptions while it does so. The cause is therefore searched
for in the whole chain of exceptions, and the layer in their stack frames.
"""

from __future__ import annotations

import re
import tomllib
import traceback
from dataclasses import dataclass
from pathlib import Path
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
    """A kind of error, as ``refusals.toml`` describes it."""

    text: str  # what is wrong, after the layer's name
    remedy: str
    key: str = ""  # the setting that may help instead
    says: tuple[str, ...] = ()  # patterns of an exception's class or message


_REFUSALS = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text("utf-8"))
_KINDS = {name: _Kind(**values) for name, values in _REFUSALS.items()}


def explain_refusal(error: Exception, model: Any) -> tuple[str, tuple[Finding, ...]]:
    """Explain in one sentence and in findings why a step could not be built, lowered or compiled.

    `model` is None if it could not be built.
    """
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
    if (kind := _kind_of(chain, owner)) is not None:
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
    kind = _KINDS["changing_output"]
    return tuple(
        Finding(Severity.ERROR, f"{_subject(layer)} {kind.text}.", layer.name, kind.remedy)
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
    if hasattr(owner, "trainable_weights") and _changes_size(owner):
        return _KINDS["changing_output"]
    if type(owner).__name__ in _PREPROCESSING_LAYERS:
        return _KINDS["preprocessing"]
    files = [frame.f_code.co_filename for error in chain for frame, _ in traceback.walk_tb(error.__traceback__)]
    is_foreign = any("/site-packages/tensorflow/" in file or "/tensorflow_hub/" in file for file in files)
    is_foreign &= not any(type(one).__module__.startswith("tensorflow.") for one in chain)  # it ran, and failed
    if (is_foreign or type(owner).__name__ in _TENSORFLOW_LAYERS) and not loaded_framework().runs_tensorflow:
        return _KINDS["preprocessing" if _TEXT_FILES.search("\n".join(files)) else "tensorflow"]
    for error in reversed(chain):
        # JAX's messages go on with remedies for other cases, so only the beginning counts.
        text = f"{' '.join(kind.__name__ for kind in type(error).__mro__)} {error}"[:600]
        if name := next((name for name, kind in _KINDS.items() if any(re.search(one, text) for one in kind.says)), ""):
            called = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
            own = max((number for number, file in enumerate(called) if is_own_file(file)), default=len(called))
            # Keras's own code needs the value of a number that it was given, such as the k of top_k.
            in_keras = name in {"decision", "number"} and any("/keras/src/ops/" in file for file in called[own:])
            return _KINDS["size" if in_keras else name]
    return None


def _subject(owner: Any) -> str:
    if isinstance(owner, keras.Loss | keras.Metric):
        function = getattr(owner, "fn", None)
        name = getattr(getattr(function, "func", function), "__name__", owner.name)
        return f"The {'loss' if isinstance(owner, keras.Loss) else 'metric'} '{name}'"
    return "The model" if owner is None else subject(owner)
