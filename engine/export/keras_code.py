"""Writes Keras objects as the code that makes them, and how a run made its model."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import keras
from msgspec import Struct, field

from ..accelerators.backend import framework_of
from ..accelerators.framework import Framework
from ..compat.keras import automatic_name
from ..config.catalog import is_user_reference
from ..config.run_config import RunConfig
from ..config.values import parse_piece
from ..data.code import Brackets, Code, Imports, call, listed, literal, literals, write
from ..data.examples import Input, Signature, Task
from ..data.kinds.kind import not_exportable
from ..data.places import locate
from ..models.build import build_model
from ..models.compile import BY_CLASS
from ..models.pretrained import Application
from ..models.table import MODELS
from ..runs.events import AcceleratorReady, DataReady, FitStarted

_PACKAGES = ["optimizers", "losses", "metrics", "callbacks", "initializers", "regularizers", "constraints"]
_MODULES = {"layers": keras.layers, **{f"keras.{name}": getattr(keras, name) for name in _PACKAGES}}
_MODULES["keras.optimizers.schedules"] = keras.optimizers.schedules
_SIDES = {"kernel_size", "pool_size", "strides", "dilation_rate", "size"}
"""Arguments that may be one number if all sides are equal."""


class ExportedRun(Struct):
    """What is known about a run, and the imports and differences that the sections of its script collect."""

    config: RunConfig
    accelerator: AcceleratorReady
    data: DataReady
    fit: FitStarted
    is_compiled: bool  # whether the user's function compiled the model
    record: dict[str, Any]  # its ``inputs.json``
    imports: Imports = field(default_factory=Imports)
    differences: list[str] = field(default_factory=list)  # from the run, in sentences

    @property
    def replicas(self) -> int:
        """The number of replicas."""
        return len(self.accelerator.replicas)

    def keeps_batches(self, part: int) -> bool:
        """Return whether the run kept the batches that the dataset function made, for training (0) or validation."""
        return (self.record.get("returned") or [])[part : part + 1] == ["kept"]

    @property
    def framework(self) -> Framework:
        """The framework that trained it."""
        return framework_of(self.accelerator.backend)

    @property
    def by_strategy(self) -> bool:
        """Whether a strategy of TensorFlow distributes the model."""
        return self.framework.uses_scope(self.accelerator.accelerator, self.replicas)

    def in_scope(self, lines: list[str]) -> list[str]:
        """Return lines in the strategy's scope, if there is one."""
        return ["with strategy.scope():", *(f"    {line}" for line in lines)] if self.by_strategy else lines

    @property
    def indent(self) -> int:
        """By how much `in_scope` indents lines."""
        return 4 if self.by_strategy else 0

    @property
    def needs_one_hot(self) -> bool:
        """Whether labels become one-hot, for the loss or for metrics that compare a value per class."""
        config = self.config
        by_class = any(parse_piece(text).name in BY_CLASS for text in config.metrics) and not self.is_compiled
        return config.takes_shares or (by_class and config.effective_loss.startswith("sparse_"))


def object_code(thing: Any) -> Brackets:
    """Return the call that makes a Keras object, with the arguments that differ from the defaults."""
    made = type(thing)
    module = next((name for name, found in _MODULES.items() if vars(found).get(made.__name__) is made), None)
    if module is None:
        raise ValueError(f"{made.__name__} is not a class of Keras")
    config = thing.get_config()
    parameters = [one for one in inspect.signature(made).parameters.values() if one.kind is one.POSITIONAL_OR_KEYWORD]
    required = [one.name for one in parameters if one.default is one.empty and one.name in config]
    usual = made(**{name: config[name] for name in required}).get_config()
    named: dict[str, Code] = {}
    for name in dict.fromkeys([*(one.name for one in parameters), "name", "dtype"]):
        if name not in config or (name not in required and config[name] == usual.get(name)):
            continue
        if name == "name" and re.fullmatch(rf"{automatic_name(made.__name__)}(_\d+)?", str(config[name])):
            continue
        named[name] = _argument(name, config[name])
    first = [named.pop(name) for name in required[:2]]
    return call(f"{module}.{made.__name__}", *first, **named)


def _argument(name: str, value: Any) -> Code:
    if isinstance(value, dict) and "class_name" in value:
        thing = keras.saving.deserialize_keras_object(value)
        if isinstance(thing, keras.DTypePolicy):
            return literal(thing.name)
        code = object_code(thing)
        is_plain = isinstance(thing, keras.initializers.Initializer) and not code.items
        return literal(automatic_name(type(thing).__name__)) if is_plain else code
    if name in _SIDES and isinstance(value, list | tuple) and len(set(value)) == 1:
        return literal(value[0])
    return literal(tuple(value) if isinstance(value, list) and name != "values" else value)


def functional_lines(model: Any, bases: dict[str, str], first: list[Any], indent: int = 0) -> Iterator[str]:
    """Yield the lines that make a functional model without branches, called `model`; raise `ValueError` if it has some.

    `bases` are variables of models inside it that exist already, by the model's name. The layers in `first` are applied
    to its input before its own.
    """
    yield write(_input(model.inputs[0]), indent, "inputs = ")
    given = "inputs"
    for change in map(object_code, first):
        yield write(_called(change, given), indent, "x = ")
        given = "x"
    entries = model.get_config()["layers"]
    for number, layer in enumerate(model.operations[1:], 1):
        (node,) = entries[number]["inbound_nodes"]
        (tensors,) = node["args"]
        sources = [one["config"]["keras_history"][0] for one in (tensors if isinstance(tensors, list) else [tensors])]
        if {*sources} != {entries[number - 1]["name"]}:
            raise ValueError(f"{layer.name} does not take the output of the layer before")
        argument = listed([given] * len(sources)) if isinstance(tensors, list) else given
        settings = {key: literal(value) for key, value in node["kwargs"].items() if value is not None}
        if layer.name in bases:
            code: Code = call(bases[layer.name], argument, **settings)
        elif isinstance(layer, keras.Layer):
            code = _called(object_code(layer), argument)
        else:
            settings |= {key: literal(value) for key, value in vars(layer).items() if key == "axis"}
            code = call(f"keras.ops.{automatic_name(type(layer).__name__)}", argument, **settings)
        given = "x" if layer is not model.operations[-1] else "outputs"
        yield write(code, indent, f"{given} = ")
    yield write(call("keras.Model", "inputs", "outputs"), indent, "model = ")


def _called(layer: Brackets, argument: Code) -> Code:
    return Brackets(layer.opening, layer.items, f"{layer.closing}({write(argument)})")


def _input(tensor: Any) -> Code:
    kind = {} if tensor.dtype == keras.config.floatx() else {"dtype": literal(tensor.dtype)}
    return call("keras.Input", shape=literal(tuple(tensor.shape[1:])), **kind)


def model_lines(run: ExportedRun, augmentation: list[Any]) -> list[str]:
    """Return the lines that make the model, which begins with the layers that augment images."""
    config, shape = run.config, tuple(run.data.input_shape)
    if is_user_reference(config.model):
        if not shape:
            raise not_exportable(f"dataset={config.dataset} gives several inputs, which")
        if augmentation:
            raise not_exportable("For a custom model, augmentation.placement=model")
        given = [literal(shape), literal(run.data.classes)]
        made = call(run.imports.own(config.model), *given, **literals(config.model_options))
        lines = [write(made, run.indent, "model = ")]
        if config.weights:
            lines += ["if not model.built:  # a subclass of keras.Model"]
            lines += [f"    model.build({write(literal((None, *shape)))})"]
    elif MODELS[config.model].has_code:
        run.imports.add("layers", "keras")
        lines = [*_built_in(run, shape, augmentation)]
    else:
        raise not_exportable(f"model={config.model}")
    if config.weights:
        lines.append(write(call("model.load_weights", literal(locate(config.weights))), run.indent))
    return run.in_scope(lines)


def _built_in(run: ExportedRun, shape: tuple[int | None, ...], augmentation: list[Any]) -> Iterator[str]:
    words = len(run.record.get("words", ()))
    kind = Input(shape, "int32") if words else Input(shape)
    task, scale = Task.CLASSES, {}
    if label := run.record.get("label"):
        task, scale = Task.NUMBER, {"label_mean": label["mean"], "label_deviation": label["deviation"]}
    signature = Signature(task, {"example": kind}, run.data.classes, {"vocabulary": words} if words else {}, **scale)
    model = build_model(run.config, signature, loads_weights=False)
    if isinstance(model, keras.Sequential):
        layers = map(object_code, [*augmentation, *model.layers])
        yield write(call("keras.Sequential", listed([_input(model.inputs[0]), *layers])), run.indent, "model = ")
        return
    bases = {layer.name: "base" for layer in model.layers if isinstance(layer, keras.Model)}
    if bases:
        options = Application.model_validate(run.config.model_options)
        weights = "imagenet" if options.weights == "imagenet" else None
        given = {"include_top": False, "weights": weights, "input_shape": (*shape[:2], 3), "pooling": "avg"}
        yield write(call(f"keras.applications.{options.name}", **literals(given)), run.indent, "base = ")
        if options.weights not in {"imagenet", "none"}:
            yield write(call("base.load_weights", literal(locate(options.weights))), run.indent)
        if options.trainable == "none":
            yield "base.trainable = False"
        elif isinstance(options.trainable, int):
            yield from unfrozen(options.trainable)
    yield from functional_lines(model, bases, augmentation, run.indent)


def unfrozen(first: int) -> list[str]:
    """Return the lines that train the layers of a base from one on; batch normalization keeps its statistics."""
    frozen = [f"for layer in base.layers[:{first}]:", "    layer.trainable = False"] if first else []
    normalization = "    if isinstance(layer, keras.layers.BatchNormalization):"
    kept = ["for layer in base.layers:", normalization, "        layer.trainable = False"]
    return ["base.trainable = True", *frozen, *kept]
