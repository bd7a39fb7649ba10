"""Changes contrast, brightness, saturation and hue as Keras's layers of those names do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from .draws import Draw, between, per_image

if TYPE_CHECKING:
    from ...config.options import Augmentation

HUE_SHARE = 0.1  # largest change of hue for ``color = 1``, in turns of the colour circle


def recolor(images: Any, options: Augmentation, uniform: Any, top: float) -> Any:
    """Change the colours of images, floats between 0 and `top`, each by its own row of `Draw`."""

    def factor(reach: float, row: Draw) -> Any:
        return per_image(between(-reach, reach, uniform[row]))

    if options.contrast:
        mean = tf.reduce_mean(images, axis=(1, 2), keepdims=True)
        images = (images - mean) * (1 + factor(options.contrast, Draw.CONTRAST)) + mean
        images = tf.clip_by_value(images, 0.0, top)
    if options.brightness:
        images = tf.clip_by_value(images + factor(options.brightness, Draw.BRIGHTNESS) * top, 0.0, top)
    if options.color:
        turn = factor(HUE_SHARE * options.color, Draw.HUE)
        images = _turn_and_saturate(images, turn, 1 + factor(options.color, Draw.SATURATION))
    return images


def _turn_and_saturate(images: Any, turn: Any, saturation: Any) -> Any:
    """Turn the hue and scale the saturation as in HSV; the largest channel of a pixel keeps its value."""
    red, green, blue = (images[..., channel : channel + 1] for channel in range(3))
    value = tf.maximum(tf.maximum(red, green), blue)
    spread = value - tf.minimum(tf.minimum(red, green), blue)
    inverse = tf.where(spread > 0, 1 / spread, 0.0)
    beyond_red = tf.where(value == green, 2 + (blue - red) * inverse, 4 + (red - green) * inverse)
    sextant = tf.where(value == red, (green - blue) * inverse, beyond_red)
    spread = tf.minimum(spread * saturation, value)
    # Each channel by one formula: value − spread · clip(min(k, 4 − k), 0, 1), k = (n + 6·hue) mod 6, n = 5, 3, 1.
    places = tf.constant([5.0, 3.0, 1.0]) + sextant + 6 * turn
    places -= 6 * tf.floor(places / 6)  # `tf.math.floormod` takes 20 times as long
    return value - spread * tf.clip_by_value(tf.minimum(places, 4 - places), 0.0, 1.0)
