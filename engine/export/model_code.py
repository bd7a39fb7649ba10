"""Writes how a run made its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from ..config.catalog import is_user_reference
from ..config.model_options import ApplicationOptions
from ..data.examples import Input, Signature, Task
from ..data.places import locate
from ..models.build import build_model
from .code import call, literal, literals, write
from .data_code import not_exportable
from .keras_code import functional_lines, sequential_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .exported_run import ExportedRun


def model_lines(run: ExportedRun, augmentation: list[Any]) -> list[str]:
    """Return the lines that make the model, which begins with the layers that augment images."""
    config, shape = run.config, tuple(run.data.input_shape)
    if is_user_reference(config.model):
        if not shape:
            raise not_exportable(f"dataset={config.dataset} gives several inputs, which")
        if augmentation:
            raise not_exportable("For a custom model, augmentation.placement=model")
        made = call(
            run.imports.own(config.model),
            literal(shape),
            literal(run.data.classes),
            **literals(config.model_options),
        )
        lines = [write(made, run.indent, "model = ")]
        if config.weights:
            lines += [
                "if not model.built:  # a subclass of keras.Model",
                f"    model.build({write(literal((None, *shape)))})",
            ]
    else:
        if config.model not in {"cnn", "vgg", "mlp", "text", "application"}:
            raise not_exportable(f"model={config.model}")
        lines = [*_built_in(run, augmentation)]
    if config.weights:
        lines.append(write(call("model.load_weights", literal(locate(config.weights))), run.indent))
    return run.in_scope(lines)


def _built_in(run: ExportedRun, augmentation: list[Any]) -> Iterator[str]:
    config, shape = run.config, tuple(run.data.input_shape)
    run.imports.add("layers", "keras")
    words = len(run.record.get("words", ()))
    kind = Input(shape, "int32") if words else Input(shape)
    signature = Signature(Task.CLASSES, {"example": kind}, run.data.classes, sizes={"vocabulary": words})
    if config.model == "application":
        options = {**config.model_options, "weights": "none"}
        config = config.model_copy(update={"model_options": options})
    model = build_model(config, signature)
    if isinstance(model, keras.Sequential):
        yield write(sequential_code(model, augmentation), run.indent, "model = ")
        return
    yield from _base(run)
    base = next(layer for layer in model.layers if isinstance(layer, keras.Model))
    yield from functional_lines(model, {base.name: "base"}, augmentation, run.indent)


def _base(run: ExportedRun) -> Iterator[str]:
    options = ApplicationOptions.model_validate(run.config.model_options)
    height, width = run.data.input_shape[:2]
    given = {
        "include_top": False,
        "weights": "imagenet" if options.weights == "imagenet" else None,
        "input_shape": (height, width, 3),
        "pooling": options.pooling,
    }
    yield write(call(f"keras.applications.{options.name}", **literals(given)), run.indent, "base = ")
    if options.weights not in {"imagenet", "none"}:
        yield write(call("base.load_weights", literal(locate(options.weights))), run.indent)
    if options.trainable == "none":
        yield "base.trainable = False"
    elif isinstance(options.trainable, int):
        yield from unfrozen(options.trainable)


def unfrozen(first: int) -> list[str]:
    """Return the lines that train the layers of a base from one on; batch normalisation keeps its statistics."""
    frozen = [f"for layer in base.layers[:{first}]:", "    layer.trainable = False"] if first else []
    return [
        "base.trainable = True",
        *frozen,
        "for layer in base.layers:",
        "    if isinstance(layer, keras.layers.BatchNormalization):",
        "        layer.trainable = False",
    ]
