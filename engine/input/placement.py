"""Decides where images are augmented: in the input pipeline, or in the model by Keras's layers."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import DataError
from .augment import ERASED_AREA, HUE_SHARE

if TYPE_CHECKING:
    from ..config.options import Augmentation


@dataclass(frozen=True, slots=True)
class Placement:
    """Where images are augmented."""

    in_model: bool  # whether by layers at the start of the model instead of in the input pipeline
    reason: str  # where and why, in one phrase; empty without augmentation


def choose_placement(options: Augmentation, accelerator: str) -> Placement:
    """Decide where images are augmented; raise `DataError` if the placement is the model, and a TPU cannot do it there.

    In the model it takes the accelerator's time instead of the host's, which pays only on a GPU. On a TPU, XLA rejects
    Keras's layers that move pixels, or makes them read each image a thousand times.
    """
    if not options.is_active:
        return Placement(False, "")
    if options.placement == "pipeline":
        return Placement(False, "in the input pipeline (augmentation.placement=pipeline)")
    if options.placement == "model":
        if options.moving and accelerator == "tpu":
            raise DataError(
                f"augmentation.{options.moving[0]} cannot be placed in the model on a TPU.",
                why="Its compiler rejects Keras's layer, or makes it read each image a thousand times.",
                remedy="Set augmentation.placement to pipeline or auto.",
            )
        return Placement(True, "in the model (augmentation.placement=model)")
    if accelerator != "gpu":
        return Placement(False, "in the input pipeline, where it is fastest")
    if left := [*options.without_layer, *options.moving]:
        return Placement(False, f"in the input pipeline: {left[0]} would keep XLA from compiling the model")
    return Placement(True, "in the model: the GPU does it faster than the host")


def augmentation_layers(options: Augmentation, top: float, seed: int) -> list[Any]:
    """Return the Keras layers that change images with pixels from 0 to `top`."""
    import keras

    ranged = {"value_range": (0.0, top)}
    # Keras's layer scales the saturation by f / (1 − f) for a factor f, within the value range.
    saturation = tuple((1 + change) / (2 + change) for change in (-options.color, options.color))
    erasing = {"scale": ERASED_AREA, "fill_value": 0.5 * top, **ranged}
    known: list[tuple[Any, str, tuple[Any, ...], dict[str, Any]]] = [
        # Two layers for both directions: Keras's "horizontal_and_vertical" flips both ways or not at all.
        *((options.flip in {mode, "both"}, "RandomFlip", (mode,), {}) for mode in ("horizontal", "vertical")),
        (options.rotation, "RandomRotation", (options.rotation / 360.0,), {}),
        (options.translation, "RandomTranslation", (options.translation, options.translation), {}),
        (options.zoom, "RandomZoom", (options.zoom,), {}),
        # With one number, Keras 3.15 only increases the contrast; with two, it does what it documents.
        (options.contrast, "RandomContrast", ((options.contrast, options.contrast),), ranged),
        (options.brightness, "RandomBrightness", (options.brightness,), ranged),
        (options.color, "RandomSaturation", (saturation,), {"value_range": (0.0, 1.0)}),
        (options.color, "RandomHue", (2 * HUE_SHARE * options.color,), ranged),
        (options.erasing, "RandomErasing", ((options.erasing, options.erasing),), erasing),
    ]
    layers: list[Any] = []
    for _, name, arguments, named in (one for one in known if one[0]):
        layer = getattr(keras.layers, name, None)
        if layer is None:
            remedy = "Set augmentation.placement to pipeline, or install a newer Keras."
            raise DataError(f"Keras {keras.__version__} has no layer {name}.", remedy=remedy)
        # RandomContrast takes no value_range in Keras 3.7: it clips to 0 and 255.
        taken = {key: value for key, value in named.items() if key in inspect.signature(layer).parameters}
        # One seed per layer: with the same seed, all layers would draw the same numbers. Always float32: 16 bits cannot
        # hold 256 shades and the values between them.
        layers.append(layer(*arguments, **taken, seed=seed + len(layers), dtype="float32"))
    return layers


def with_augmentation(model: Any, options: Augmentation, top: float, seed: int) -> Any:
    """Add the augmentation layers to the start of a model; they act only in training and are saved with it."""
    import keras

    layers = augmentation_layers(options, top, seed)
    images = keras.Input(model.input_shape[1:], name="image")
    if isinstance(model, keras.Sequential):
        return keras.Sequential([images, *layers, *model.layers], name=model.name)
    changed = images
    for layer in (*layers, model):
        changed = layer(changed)
    return keras.Model(images, changed, name=model.name)
