"""Random changes to training images, made by Keras's own layers inside `tf.data`, one image at a time."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from engine.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.examples import Examples
    from engine.options import Augmentation

# Two layers for both: Keras's own "horizontal_and_vertical" mirrors both ways at once or not at all.
_FLIPS = {"none": (), "horizontal": ("horizontal",), "vertical": ("vertical",), "both": ("horizontal", "vertical")}


def augmentation_layers(options: Augmentation, value_range: tuple[float, float], seed: int) -> list[Any]:
    """Return the Keras layers that make the changes.

    Args:
        options: The changes.
        value_range: Smallest and largest pixel value.
        seed: Seed of the random changes.
    """
    layers = keras.layers
    # A seed a layer: with one for all, the draws of all are the same, and a turn always comes with the same shift.
    seeds = itertools.count(seed)
    made: list[Any] = [layers.RandomFlip(mode, seed=next(seeds)) for mode in _FLIPS[options.flip]]
    if options.rotation:
        made.append(layers.RandomRotation(options.rotation / 360.0, seed=next(seeds)))
    if options.translation:
        made.append(layers.RandomTranslation(options.translation, options.translation, seed=next(seeds)))
    if options.zoom:
        made.append(layers.RandomZoom(options.zoom, seed=next(seeds)))
    if options.contrast:
        made.append(layers.RandomContrast(options.contrast, value_range=value_range, seed=next(seeds)))
    if options.brightness:
        made.append(layers.RandomBrightness(options.brightness, value_range=value_range, seed=next(seeds)))
    return made


def augmenter(options: Augmentation, examples: Examples, seed: int) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return a function for `tf.data.Dataset.map` that changes the example of an (example, label) pair.

    Raises:
        DataError: The examples are not images.
    """
    if len(examples.signature.shape) != 3:
        raise DataError(
            "augmentation needs images of shape (height, width, channels); "
            f"the examples have shape {examples.signature.shape}.",
            remedy="Remove the [augmentation] table, or set each of its keys to 0.",
        )
    made = augmentation_layers(options, (0.0, examples.pixel_range or 1.0), seed)

    def change(image: Any, label: Any) -> tuple[Any, Any]:
        image = tf.cast(image, tf.float32)
        for layer in made:
            image = layer(image, training=True)
        return image, label

    return change
