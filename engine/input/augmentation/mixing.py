"""Applies random erasing, mixup and CutMix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from .draws import Draw, between, per_image

if TYPE_CHECKING:
    from ...config.options import Augmentation

ERASED_AREA = (0.02, 0.33)  # fraction of the image that is erased (random erasing, Zhong et al. 2017)


def erase(images: Any, options: Augmentation, uniform: Any, top: float) -> Any:
    """Fill a random rectangle of some images, floats between 0 and `top`, with medium grey."""
    if not options.erasing:
        return images
    _, height, width, _ = images.shape
    wide, high = (tf.sqrt(between(*ERASED_AREA, uniform[row])) for row in (Draw.ERASE_WIDTH, Draw.ERASE_HEIGHT))
    left, upper = uniform[Draw.ERASE_X] * (1 - wide), uniform[Draw.ERASE_Y] * (1 - high)
    inside = _rectangle(height, width, left, upper, left + wide, upper + high)
    chosen = per_image(uniform[Draw.ERASE] < options.erasing)
    return tf.where(inside & chosen, 0.5 * top, images)


def mix(images: Any, targets: tuple[Any, ...], options: Augmentation, uniform: Any, shares: tuple[Any, ...]) -> Any:
    """Mix each image and its targets, labels and sample weights as floats, with another one of the batch.

    If mixup and CutMix are both on, each image gets one of them. `shares` are the fractions of each image that they
    keep.
    """
    by_mixup, by_patch = shares
    if options.mixup and options.cutmix:
        mixed = uniform[Draw.MIX] < 0.5
        by_mixup, by_patch = tf.where(mixed, by_mixup, 1.0), tf.where(mixed, 1.0, by_patch)
    # The batch is shuffled, so the next image is a random one.
    if options.mixup:
        kept = per_image(by_mixup)
        images = kept * images + (1 - kept) * tf.roll(images, 1, axis=0)
    kept = by_mixup
    if options.cutmix:
        _, height, width, _ = images.shape
        side = tf.sqrt(1 - by_patch)
        x, y = uniform[Draw.PATCH_X], uniform[Draw.PATCH_Y]
        inside = _rectangle(height, width, x - side / 2, y - side / 2, x + side / 2, y + side / 2)
        images = tf.where(inside, tf.roll(images, 1, axis=0), images)
        # By the pasted area, which the edge may have cut, not the drawn one.
        kept = kept * (1 - tf.reduce_mean(tf.cast(inside, tf.float32), axis=(1, 2, 3)))
    return images, tuple(_mixed(target, kept) for target in targets)


def _mixed(target: Any, kept: Any) -> Any:
    kept = tf.reshape(kept, (-1,) + (1,) * (target.shape.rank - 1))
    return kept * target + (1 - kept) * tf.roll(target, 1, axis=0)


def _rectangle(height: int, width: int, left: Any, upper: Any, right: Any, lower: Any) -> Any:
    """Return which pixels have their centre in each image's rectangle, given as fractions of the sides."""
    x = ((tf.range(width, dtype=tf.float32) + 0.5) / width)[None, None, :, None]
    y = ((tf.range(height, dtype=tf.float32) + 0.5) / height)[None, :, None, None]
    return (x >= per_image(left)) & (x < per_image(right)) & (y >= per_image(upper)) & (y < per_image(lower))
