"""Draws the random numbers for augmentation, from the seed and the batch's number only."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from ...config.options import Augmentation


class Draw(IntEnum):
    """What a random number is for; each image gets all of them, whatever is switched on."""

    FLIP_X = 0
    FLIP_Y = 1
    ANGLE = 2
    SHIFT_X = 3
    SHIFT_Y = 4
    ZOOM = 5
    CROP = 6
    CROP_X = 7
    CROP_Y = 8
    CONTRAST = 9
    BRIGHTNESS = 10
    SATURATION = 11
    HUE = 12
    ERASE = 13
    ERASE_X = 14
    ERASE_Y = 15
    ERASE_WIDTH = 16
    ERASE_HEIGHT = 17
    MIX = 18
    PATCH_X = 19
    PATCH_Y = 20


def draw(options: Augmentation, seed: int, number: Any, batch: int) -> tuple[Any, Any, Any]:
    """Draw the random numbers for the batch of this number over all epochs.

    Returns numbers between 0 and 1, shape ``(len(Draw), batch)``, one row per `Draw`; and the fraction of each image
    that mixup and CutMix keep, shape ``(batch,)``.
    """
    # The default algorithm depends on the device.
    pair = tf.stack([tf.constant(seed % 2**63, tf.int64), tf.cast(number, tf.int64)])
    uniform = tf.random.stateless_uniform((len(Draw), batch), pair, alg="philox")
    return uniform, _shares(options.mixup, pair, 1, batch), _shares(options.cutmix, pair, 2, batch)


def _shares(alpha: float, pair: Any, stream: int, batch: int) -> Any:
    """Draw from Beta(alpha, alpha), as the ratio of two gamma variables; ones if alpha is 0."""
    if not alpha:
        return tf.ones((batch,))
    parts = tf.random.stateless_gamma((2, batch), tf.random.fold_in(pair, stream, alg="philox"), alpha)
    return tf.math.divide_no_nan(parts[0], parts[0] + parts[1])


def per_image(values: Any) -> Any:
    """Reshape one value per image so that it applies to all of the image's pixels."""
    return values[:, None, None, None]


def between(low: float, high: float, values: Any) -> Any:
    """Scale numbers between 0 and 1 to another range."""
    return low + (high - low) * values
