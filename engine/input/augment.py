"""Changes batches of training images at random: in `tf.data`, or in the model by Keras's layers.

Keras's layers need several passes over each image; in `tf.data` XLA compiles all changes of a batch into a few loops,
about 15 times as fast. They depend only on the seed and the batch's number, so two runs see the same images.
"""

import inspect
import math
from collections.abc import Callable
from enum import IntEnum
from functools import reduce
from typing import Any

import tensorflow as tf
from msgspec import Struct

from ..config.options import Augmentation
from ..errors import DataError
from ..machine.install import compiles_for_cpu

HUE_SHARE = 0.1  # largest change of hue for ``color = 1``, in turns of the color circle
ERASED_AREA = (0.02, 0.33)  # fraction of the image that is erased (random erasing, Zhong et al. 2017)


def augmenter(
    options: Augmentation, shape: tuple[int | None, ...], top: float, scale: float, seed: int
) -> Callable[[Any, Any, tuple[Any, ...]], tuple[Any, tuple[Any, ...]]]:
    """Return a function that changes a batch of images, whose pixels go from 0 to `top`; it scales the result.

    It takes the batch's number, its images of shape ``(batch, height, width, channels)``, bytes or floats, and a tuple
    of their labels and sample weights. It returns floats between 0 and `top · scale`, and the tuple, mixed like the
    images if mixup or CutMix is on. Raises `DataError` if images of this `shape` cannot be augmented.
    """
    if len(shape) != 3:
        what = f"augmentation needs images of shape (height, width, channels); the examples have shape {shape}."
        raise DataError(what, remedy="Remove the [augmentation] table, or set each of its keys to 0.")
    if options.color and shape[2] != 3:
        what = f"augmentation.color needs images with 3 channels, red, green and blue; these have {shape[2]}."
        raise DataError(what, remedy="Set augmentation.color=0; brightness and contrast work on any image.")

    # Three programs instead of one: XLA would compute a pixel again each time the next change reads it.
    @compiled
    def moved(images: Any, uniform: Any) -> Any:
        _, height, width, _ = images.shape
        where = affine(options, uniform, height, width)
        return tf.cast(images, tf.float32) if where is None else sample(images, where)

    @compiled
    def recolored(images: Any, uniform: Any) -> Any:
        return erase(recolor(images, options, uniform, top), options, uniform, top) * scale

    @compiled
    def mixed(images: Any, targets: tuple[Any, ...], uniform: Any, *shares: Any) -> Any:
        return mix(images, tuple(tf.cast(target, tf.float32) for target in targets), options, uniform, shares)

    def change_batch(number: Any, images: Any, targets: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
        uniform, *shares = draw(options, seed, number, images.shape[0])
        images = recolored(moved(images, uniform), uniform)
        return mixed(images, targets, uniform, *shares) if options.mixes_labels else (images, targets)

    return change_batch


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of TensorFlow, compiled with XLA if that compiles for the CPU."""
    made: Callable[..., Any] = tf.function(function, jit_compile=compiles_for_cpu(), autograph=False)
    return made


def recolor(images: Any, options: Augmentation, uniform: Any, top: float) -> Any:
    """Change the colors of images, floats between 0 and `top`, each by its own row of `Draw`."""

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


def erase(images: Any, options: Augmentation, uniform: Any, top: float) -> Any:
    """Fill a random rectangle of some images, floats between 0 and `top`, with medium gray."""
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

    With both mixup and CutMix, each image gets one of them; `shares` are the fractions of it that they keep.
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

    def blended(target: Any) -> Any:
        part = tf.reshape(kept, (-1,) + (1,) * (target.shape.rank - 1))
        return part * target + (1 - part) * tf.roll(target, 1, axis=0)

    return images, tuple(map(blended, targets))


def _rectangle(height: int, width: int, left: Any, upper: Any, right: Any, lower: Any) -> Any:
    """Return which pixels have their center in each image's rectangle, given as fractions of the sides."""
    x = ((tf.range(width, dtype=tf.float32) + 0.5) / width)[None, None, :, None]
    y = ((tf.range(height, dtype=tf.float32) + 0.5) / height)[None, :, None, None]
    return (x >= per_image(left)) & (x < per_image(right)) & (y >= per_image(upper)) & (y < per_image(lower))


def affine(options: Augmentation, uniform: Any, height: int, width: int) -> Any:
    """Return where each image's pixels come from by its row of `Draw`, or None if the geometry does not change.

    The pixel at x and y is read at the first two elements of ``map @ (x, y, 1)``; maps have shape ``(batch, 3, 3)``.
    Flips, rotation, translation, zoom and crop are one map, so that each pixel is read once. Directions and meanings
    are those of Keras's layers `RandomFlip`, `RandomRotation`, `RandomTranslation` and `RandomZoom`, applied one after
    the other with ``fill_mode="reflect"`` and bilinear interpolation.
    """
    one, zero, parts = tf.ones_like(uniform[0]), tf.zeros_like(uniform[0]), []

    def add(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> None:
        parts.append(tf.reshape(tf.stack([a, b, c, d, e, f, zero, zero, one], axis=1), (-1, 3, 3)))

    def add_about_center(a: Any, b: Any, d: Any, e: Any) -> None:
        x, y = (width - 1) / 2, (height - 1) / 2
        add(a, b, x - x * a - y * b, d, e, y - x * d - y * e)

    if options.flip != "none":
        x, y = (tf.where((uniform[row] < 0.5) & (options.flip in {mode, "both"}), -one, one)
                for row, mode in ((Draw.FLIP_X, "horizontal"), (Draw.FLIP_Y, "vertical")))  # fmt: skip
        add_about_center(x, zero, zero, y)
    if options.rotation:
        angle = between(-1, 1, uniform[Draw.ANGLE]) * math.radians(options.rotation)
        cos, sin = tf.cos(angle), tf.sin(angle)
        add_about_center(cos, -sin, sin, cos)
    if options.translation:
        reach = options.translation
        shift_x, shift_y = (between(-reach, reach, uniform[row]) for row in (Draw.SHIFT_X, Draw.SHIFT_Y))
        add(one, zero, -shift_x * width, zero, one, -shift_y * height)
    if options.zoom:
        zoom = between(1 - options.zoom, 1 + options.zoom, uniform[Draw.ZOOM])
        add_about_center(zoom, zero, zero, zoom)
    if options.crop:
        left_out = options.crop * uniform[Draw.CROP]
        # The corner of the first pixel is half a pixel before its center.
        x, y = (size * left_out * uniform[row] - 0.5 * left_out
                for size, row in ((width, Draw.CROP_X), (height, Draw.CROP_Y)))  # fmt: skip
        add(1 - left_out, zero, x, zero, 1 - left_out, y)
    return reduce(tf.matmul, parts) if parts else None


def sample(images: Any, where: Any) -> Any:
    """Sample images bilinearly at the places that `affine` returned, mirrored at the edges; floats of the same shape.

    Written so that XLA makes one loop of it; the result is that of TensorFlow's `ImageProjectiveTransformV3`.
    """
    batch, height, width, channels = images.shape
    columns, rows = tf.range(width, dtype=tf.float32)[None, None, :], tf.range(height, dtype=tf.float32)[None, :, None]
    a, b, c, d, e, f = (where[:, row, column, None, None] for row in range(2) for column in range(3))
    x, y = a * columns + b * rows + c, d * columns + e * rows + f
    left, top = tf.floor(x), tf.floor(y)
    share_x, share_y = (x - left)[..., None], (y - top)[..., None]
    left, top = tf.cast(left, tf.int32), tf.cast(top, tf.int32)
    first = tf.range(batch)[:, None, None] * (height * width)
    lefts, rights = _mirrored(left, width), _mirrored(left + 1, width)
    tops, bottoms = (first + _mirrored(row, height) * width for row in (top, top + 1))
    pixels = tf.reshape(images, (-1, channels))

    def across(row: Any) -> Any:
        start, end = (
            tf.cast(tf.reshape(tf.gather(pixels, tf.reshape(row + side, (-1,))), images.shape), tf.float32)
            for side in (lefts, rights)
        )
        return start + (end - start) * share_x

    upper = across(tops)
    return upper + (across(bottoms) - upper) * share_y


def _mirrored(index: Any, size: int) -> Any:
    """Mirror indices at the edges: ``… 1 0 | 0 1 2 | 2 1 …``."""
    index = tf.math.floormod(index, 2 * size)
    return tf.minimum(index, 2 * size - 1 - index)


Draw = IntEnum(
    "Draw",
    "FLIP_X FLIP_Y ANGLE SHIFT_X SHIFT_Y ZOOM CROP CROP_X CROP_Y CONTRAST BRIGHTNESS SATURATION HUE "
    "ERASE ERASE_X ERASE_Y ERASE_WIDTH ERASE_HEIGHT MIX PATCH_X PATCH_Y",
    start=0,
)
"""What a random number is for; each image gets all of them, whatever is switched on."""


def draw(options: Augmentation, seed: int, number: Any, batch: int) -> tuple[Any, Any, Any]:
    """Draw the random numbers for the batch of this number over all epochs.

    Returns numbers between 0 and 1, shape ``(len(Draw), batch)``, one row per `Draw`; and the fraction of each image
    that mixup and CutMix keep, shape ``(batch,)``.
    """
    # The default algorithm depends on the device.
    pair = tf.stack([tf.constant(seed % 2**63, tf.int64), tf.cast(number, tf.int64)])
    uniform = tf.random.stateless_uniform((len(Draw), batch), pair, alg="philox")

    def kept(alpha: float, stream: int) -> Any:
        """Draw from Beta(alpha, alpha), as the ratio of two gamma variables; ones if alpha is 0."""
        if not alpha:
            return tf.ones((batch,))
        parts = tf.random.stateless_gamma((2, batch), tf.random.fold_in(pair, stream, alg="philox"), alpha)
        return tf.math.divide_no_nan(parts[0], parts[0] + parts[1])

    return uniform, kept(options.mixup, 1), kept(options.cutmix, 2)


def per_image(values: Any) -> Any:
    """Reshape one value per image so that it applies to all of the image's pixels."""
    return values[:, None, None, None]


def between(low: float, high: float, values: Any) -> Any:
    """Scale numbers between 0 and 1 to another range."""
    return low + (high - low) * values


class Placement(Struct, frozen=True):
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
