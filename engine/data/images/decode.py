"""Decodes image files into tensors of one size, as part of a `tf.data` pipeline.

Each image is turned upright, converted to RGB and brought to the configured size. It stays uint8, so that the cache is
small. Much larger JPEGs are decoded at half, a quarter or an eighth of their size, which is far cheaper.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import tensorflow as tf
from msgspec import Struct
from msgspec.structs import replace

from ..places import open_file
from .check import ImageFacts, check_image, pixels

if TYPE_CHECKING:
    from numpy.typing import NDArray

DAMAGED = "is damaged: its header is valid, but it cannot be decoded"
_RATIOS = (1, 2, 4, 8)  # the factors that JPEGs can be shrunk by while they are decoded
_PNG, _OTHER = len(_RATIOS), len(_RATIOS) + 1  # the ways to decode other files
_F = TypeVar("_F", bound="Callable[..., Any]")


def as_written(function: _F) -> _F:
    """Return a function for `tf.data` that has no `if` or loop on tensors: AutoGraph need not convert it.

    Converting those that decode and augment images takes a second of CPU.
    """
    kept: _F = tf.autograph.experimental.do_not_convert(function)
    return kept


def untuned() -> Any:
    """Return options that turn off the autotune thread; prefetching still tunes itself.

    That thread sleeps up to a minute, and the end of an iterator waits for it: `fit` returned 8 s late after a 35 s
    run on TensorFlow 2.21, and would hold a TPU that long.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


class Decoding(Struct, frozen=True):
    """The size of decoded images."""

    image_size: tuple[int, int]
    # ``stretch`` changes the proportions, ``crop`` cuts off the edges, ``pad`` adds black borders.
    resize: Literal["stretch", "crop", "pad"] = "stretch"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of a decoded image: ``(height, width, 3)``."""
        return (*self.image_size, 3)

    def ratio(self, height: int, width: int) -> int:
        """Return the largest factor a JPEG can be shrunk by and still be large enough."""
        scales = (height / self.image_size[0], width / self.image_size[1])
        most = max(scales) if self.resize == "pad" else min(scales)
        return max((ratio for ratio in _RATIOS if ratio <= most), default=1)


def decoded(facts: Sequence[ImageFacts], decoding: Decoding, labels: NDArray[Any] | None = None) -> Any:
    """Return a dataset of files that passed the check, which are read and decoded in parallel and in order.

    Its elements are uint8 images, shape ``(height, width, 3)``, with labels as pairs. An error names a damaged file.
    """
    is_turned = any(fact.orientation != 1 for fact in facts)
    ways = [_OTHER if not f.is_plain else _PNG if f.format == "PNG" else
            _RATIOS.index(decoding.ratio(f.height, f.width)) for f in facts]  # fmt: skip

    @as_written
    def read(index: Any, path: Any, way: Any, orientation: Any) -> Any:
        def by_pillow() -> Any:
            return tf.numpy_function(lambda name: np.asarray(pixels(name.decode())), [path], tf.uint8)

        only = ways[0] if len({*ways}) == 1 else None
        contents = b"" if only == _OTHER else tf.io.read_file(path)
        image = _decode(contents, way if only is None else only, by_pillow)
        return index, resized(_upright(image, orientation) if is_turned else image, decoding)

    paths, count = [fact.path for fact in facts], len(facts)
    files = tf.data.Dataset.from_tensor_slices((np.arange(count), paths, ways, [fact.orientation for fact in facts]))
    images = files.map(read, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors(log_warning=True)
    named = tf.constant(paths)

    def message(index: Any) -> Any:
        return tf.strings.join(["The image file ", named[tf.minimum(index, count - 1)], f" {DAMAGED}."])

    nothing = np.zeros(decoding.shape, np.uint8)
    images = without_gaps(images, np.int64(0), np.int64(count), nothing, message)
    images = images.map(as_written(lambda _, image: image))
    images = images.apply(tf.data.experimental.assert_cardinality(count))
    return images if labels is None else tf.data.Dataset.zip(images, tf.data.Dataset.from_tensor_slices(labels))


def check_whole(path: str) -> tuple[ImageFacts, bytes]:
    """Check an image file and decode all of it; return its contents as well, which are empty if it cannot be used."""
    facts = check_image(path)
    if facts.problem:
        return facts, b""
    try:
        with open_file(path) as stream:
            contents = stream.read()
        if facts.format == "JPEG":
            tf.io.decode_jpeg(contents, channels=3, ratio=_RATIOS[-1])  # reads all of it, with a fraction of the memory
        elif facts.format == "PNG":
            tf.io.decode_png(contents)
        else:
            pixels(path)
    except (OSError, tf.errors.OpError):
        return replace(facts, problem=DAMAGED), b""
    return facts, contents


def decode_bytes(contents: Any, decoding: Decoding, orientation: Any = 1) -> Any:
    """Decode an image file inside a dataset's map: uint8, shape ``(height, width, 3)``.

    `contents` is a scalar string tensor: a JPEG, a PNG or another format that `tf.io.decode_image` reads. `orientation`
    is that of EXIF, a tensor if it differs between images.
    """
    start = tf.strings.substr(contents, 0, 4)

    def jpeg_way() -> Any:
        """Return the index in `_RATIOS` for a JPEG, like `Decoding.ratio`."""
        size = tf.io.extract_jpeg_shape(contents)[:2]
        size = tf.cond(tf.cast(orientation, tf.int32) > 4, lambda: tf.reverse(size, [0]), lambda: size)
        scales = tf.cast(size, tf.float64) / tf.constant(decoding.image_size, tf.float64)
        most = tf.reduce_max(scales) if decoding.resize == "pad" else tf.reduce_min(scales)
        return tf.maximum(tf.reduce_sum(tf.cast(tf.constant(_RATIOS, tf.float64) <= most, tf.int32)) - 1, 0)

    other = tf.where(tf.equal(start, b"\x89PNG"), _PNG, _OTHER)
    way = tf.cond(tf.equal(tf.strings.substr(start, 0, 2), b"\xff\xd8"), jpeg_way, lambda: other)
    image = _decode(contents, way, lambda: tf.io.decode_image(contents, channels=3, expand_animations=False))
    needs_no_turn = isinstance(orientation, int) and orientation == 1
    return resized(image if needs_no_turn else _upright(image, orientation), decoding)


def as_png(path: str) -> bytes:
    """Return an image file in a format that is neither JPEG nor PNG as a PNG."""
    buffer = io.BytesIO()
    pixels(path).save(buffer, "PNG")
    return buffer.getvalue()


def resized(image: Any, decoding: Decoding) -> Any:
    """Bring an image of shape ``(height, width, 3)`` to the configured size, as uint8."""
    size = tf.shape(image)[:2]
    target = tf.constant(decoding.image_size)

    def fitted() -> Any:
        scales = tf.cast(size, tf.float64) / tf.cast(target, tf.float64)
        if decoding.resize == "crop":
            kept = tf.cast(tf.round(tf.cast(target, tf.float64) * tf.reduce_min(scales)), tf.int32)
            kept = tf.clip_by_value(kept, 1, size)
            top = (size - kept) // 2
            return _scaled(image[top[0] : top[0] + kept[0], top[1] : top[1] + kept[1]], target)
        if decoding.resize == "pad":
            inner = tf.cast(tf.round(tf.cast(size, tf.float64) / tf.reduce_max(scales)), tf.int32)
            inner = tf.clip_by_value(inner, 1, target)
            top = (target - inner) // 2
            return tf.image.pad_to_bounding_box(_scaled(image, inner), top[0], top[1], *decoding.image_size)
        return _scaled(image, target)

    image = tf.cond(tf.reduce_all(size == target), lambda: image, fitted)
    return tf.ensure_shape(image, decoding.shape)


def _scaled(image: Any, size: Any) -> Any:
    """Resize bilinearly, with antialiasing if the size is more than halved."""
    halved = tf.reduce_any(tf.shape(image)[:2] > 2 * size)
    scaled = tf.cond(halved, lambda: tf.image.resize(image, size, antialias=True), lambda: tf.image.resize(image, size))
    return tf.saturate_cast(tf.round(scaled), tf.uint8)


def _upright(image: Any, orientation: Any) -> Any:
    """Turn an image upright according to its EXIF orientation, which is above 4 if it lies on its side."""
    orientation = tf.cast(orientation, tf.int32)
    image = tf.cond(orientation > 4, lambda: tf.transpose(image, (1, 0, 2)), lambda: image)
    mirrored = tf.reduce_any(orientation == (2, 3, 6, 7))
    image = tf.cond(mirrored, lambda: tf.reverse(image, [1]), lambda: image)
    upside_down = tf.reduce_any(orientation == (3, 4, 7, 8))
    return tf.cond(upside_down, lambda: tf.reverse(image, [0]), lambda: image)


def _decode(contents: Any, way: Any, other: Callable[[], Any]) -> Any:
    """Decode an image file as RGB: a JPEG by the index in `_RATIOS`, a PNG, or any other by a function."""
    ways: list[Callable[[], Any]] = [
        *(partial(tf.io.decode_jpeg, contents, channels=3, ratio=ratio) for ratio in _RATIOS),
        lambda: _on_white(tf.io.decode_png(contents, channels=4)),
        other,
    ]
    return tf.ensure_shape(ways[way]() if isinstance(way, int) else tf.switch_case(way, ways), (None, None, 3))


def _on_white(image: Any) -> Any:
    """Lay an RGBA image over white, as a viewer does; transparent pixels can have any color."""

    def mixed() -> Any:
        color, alpha = tf.cast(image[..., :3], tf.int32), tf.cast(image[..., 3:], tf.int32)
        return tf.cast((color * alpha + 255 * (255 - alpha) + 127) // 255, tf.uint8)

    return tf.cond(tf.reduce_all(image[..., 3] == 255), lambda: image[..., :3], mixed)


def without_gaps(pairs: Any, start: Any, count: Any, nothing: Any, message: Callable[[Any], Any]) -> Any:
    """Make a dataset of (index, value) pairs fail with a message about the first missing index.

    TensorFlow's own error does not say which file is damaged. So errors are ignored, and a gap in the indices shows it;
    an extra last element, with `nothing` as its value, catches a gap at the end.
    """
    beyond = tf.data.Dataset.from_tensors((start + count, nothing))

    @as_written
    def check(expected: Any, pair: Any) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(tf.equal(expected, pair[0]), [message(expected)])]):
            return expected + 1, (tf.identity(pair[0]), tf.identity(pair[1]))

    return pairs.concatenate(beyond).scan(start, check).take(count)
