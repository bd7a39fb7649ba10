"""Flips, rotates, translates, zooms and crops images in one affine map, so that each pixel is read once.

Directions and meanings are those of Keras's layers `RandomFlip`, `RandomRotation`, `RandomTranslation` and
`RandomZoom`, applied one after the other with ``fill_mode="reflect"`` and bilinear interpolation.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from .draws import Draw, between

if TYPE_CHECKING:
    from ...config.options import Augmentation


class Affine(NamedTuple):
    """Where each pixel of the result comes from: ``x' = a·x + b·y + c``, ``y' = d·x + e·y + f``, for each image."""

    a: Any
    b: Any
    c: Any
    d: Any
    e: Any
    f: Any

    def of(self, inner: Affine) -> Affine:
        """Return the map that applies `inner` first."""
        return Affine(
            self.a * inner.a + self.b * inner.d,
            self.a * inner.b + self.b * inner.e,
            self.a * inner.c + self.b * inner.f + self.c,
            self.d * inner.a + self.e * inner.d,
            self.d * inner.b + self.e * inner.e,
            self.d * inner.c + self.e * inner.f + self.f,
        )


def affine(options: Augmentation, uniform: Any, height: int, width: int) -> Affine | None:
    """Return the map of each image from its row of `Draw`, or None if the geometry does not change."""
    parts = []
    if options.flip != "none":
        parts.append(_flip(options.flip, uniform, height, width))
    if options.rotation:
        angle = between(-1, 1, uniform[Draw.ANGLE]) * math.radians(options.rotation)
        cos, sin = tf.cos(angle), tf.sin(angle)
        parts.append(_about_centre(cos, -sin, sin, cos, height, width))
    if options.translation:
        reach = options.translation
        shift_x, shift_y = (between(-reach, reach, uniform[row]) for row in (Draw.SHIFT_X, Draw.SHIFT_Y))
        parts.append(_scaled(tf.ones_like(shift_x), -shift_x * width, -shift_y * height))
    if options.zoom:
        zoom = between(1 - options.zoom, 1 + options.zoom, uniform[Draw.ZOOM])
        zero = tf.zeros_like(zoom)
        parts.append(_about_centre(zoom, zero, zero, zoom, height, width))
    if options.crop:
        left_out = options.crop * uniform[Draw.CROP]
        # The corner of the first pixel is half a pixel before its centre.
        starts = (size * left_out * uniform[row] for size, row in ((width, Draw.CROP_X), (height, Draw.CROP_Y)))
        parts.append(_scaled(1 - left_out, *(start - 0.5 * left_out for start in starts)))
    if not parts:
        return None
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.of(part)
    return whole


def _flip(mode: str, uniform: Any, height: int, width: int) -> Affine:
    one = tf.ones_like(uniform[0])
    zero = tf.zeros_like(one)
    mirrored_x = tf.where(uniform[Draw.FLIP_X] < 0.5, one, zero) if mode in {"horizontal", "both"} else zero
    mirrored_y = tf.where(uniform[Draw.FLIP_Y] < 0.5, one, zero) if mode in {"vertical", "both"} else zero
    return Affine(
        1 - 2 * mirrored_x, zero, mirrored_x * (width - 1), zero, 1 - 2 * mirrored_y, mirrored_y * (height - 1)
    )


def _scaled(scale: Any, shift_x: Any, shift_y: Any) -> Affine:
    zero = tf.zeros_like(scale)
    return Affine(scale, zero, shift_x, zero, scale, shift_y)


def _about_centre(a: Any, b: Any, d: Any, e: Any, height: int, width: int) -> Affine:
    x, y = (width - 1) / 2, (height - 1) / 2
    return Affine(a, b, x - x * a - y * b, d, e, y - x * d - y * e)


def sample(images: Any, where: Affine) -> Any:
    """Sample images bilinearly at other places, mirrored at the edges; floats of the same shape.

    Written so that XLA makes one loop of it; the result is that of TensorFlow's `ImageProjectiveTransformV3`.
    """
    batch, height, width, channels = images.shape
    columns, rows = tf.range(width, dtype=tf.float32)[None, None, :], tf.range(height, dtype=tf.float32)[None, :, None]
    a, b, c, d, e, f = (value[:, None, None] for value in where)
    x, y = a * columns + b * rows + c, d * columns + e * rows + f
    left, top = tf.floor(x), tf.floor(y)
    share_x, share_y = (x - left)[..., None], (y - top)[..., None]
    left, top = tf.cast(left, tf.int32), tf.cast(top, tf.int32)
    first = tf.range(batch)[:, None, None] * (height * width)
    lefts, rights = _mirrored(left, width), _mirrored(left + 1, width)
    tops, bottoms = (first + _mirrored(row, height) * width for row in (top, top + 1))
    pixels = tf.reshape(images, (-1, channels))

    def read(index: Any) -> Any:
        found = tf.gather(pixels, tf.reshape(index, (-1,)))
        return tf.reshape(tf.cast(found, tf.float32), images.shape)

    def across(row: Any) -> Any:
        start = read(row + lefts)
        return start + (read(row + rights) - start) * share_x

    upper = across(tops)
    return upper + (across(bottoms) - upper) * share_y


def _mirrored(index: Any, size: int) -> Any:
    """Mirror indices at the edges: ``… 1 0 | 0 1 2 | 2 1 …``."""
    index = tf.math.floormod(index, 2 * size)
    return tf.minimum(index, 2 * size - 1 - index)
