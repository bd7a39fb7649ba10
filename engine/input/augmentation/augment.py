"""Changes batches of training images at random in `tf.data`.

Keras's layers need several passes over each image; here XLA compiles all changes of a batch into a few loops, about 15
times as fast. The changes depend only on the seed and the batch's number, so two runs see the same images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ...errors import DataError
from ...machine.packages import compiles_for_cpu
from .color import recolor
from .draws import draw
from .geometry import affine, sample
from .mixing import erase, mix

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...config.options import Augmentation


def require_images(options: Augmentation, shape: tuple[int | None, ...]) -> None:
    """Raise a `DataError` if examples are not images, or not in colour if colours change."""
    if len(shape) != 3:
        raise DataError(
            f"augmentation needs images of shape (height, width, channels); the examples have shape {shape}.",
            remedy="Remove the [augmentation] table, or set each of its keys to 0.",
        )
    if options.color and shape[2] != 3:
        raise DataError(
            f"augmentation.color needs images with 3 channels, red, green and blue; these have {shape[2]}.",
            remedy="Set augmentation.color=0; brightness and contrast work on any image.",
        )


def augmenter(
    options: Augmentation, shape: tuple[int | None, ...], top: float, scale: float, seed: int
) -> Callable[[Any, Any, tuple[Any, ...]], tuple[Any, tuple[Any, ...]]]:
    """Return a function that changes a batch of images, whose pixels go from 0 to `top`; it scales the result.

    It takes the batch's number, its images of shape ``(batch, height, width, channels)``, bytes or floats, and a tuple
    of their labels and sample weights. It returns floats between 0 and `top · scale`, and the tuple, mixed like the
    images if mixup or CutMix is on.

    Raises:
        DataError: The examples are not images, or not in colour if colours change.
    """
    require_images(options, shape)

    # Three programs instead of one: XLA would compute a pixel again each time the next change reads it.
    @_compiled
    def moved(images: Any, uniform: Any) -> Any:
        _, height, width, _ = images.shape
        where = affine(options, uniform, height, width)
        return tf.cast(images, tf.float32) if where is None else sample(images, where)

    @_compiled
    def recolored(images: Any, uniform: Any) -> Any:
        return erase(recolor(images, options, uniform, top), options, uniform, top) * scale

    @_compiled
    def mixed(images: Any, targets: tuple[Any, ...], uniform: Any, *shares: Any) -> Any:
        return mix(images, tuple(tf.cast(target, tf.float32) for target in targets), options, uniform, shares)

    def change_batch(number: Any, images: Any, targets: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        uniform, *shares = draw(options, seed, number, images.shape[0])
        images = recolored(moved(images, uniform), uniform)
        return mixed(images, targets, uniform, *shares) if options.mixes_labels else (images, targets)

    return change_batch


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    made: Callable[..., Any] = tf.function(function, jit_compile=compiles_for_cpu())
    return made
