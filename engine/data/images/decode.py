"""Decodes image files into tensors of one size, as part of a `tf.data` pipeline.

Each file is turned upright, made RGB and brought to the size that was asked for; the result stays in bytes, so that
the cache behind it is small. JPEGs much larger than that are decoded at a half, a quarter or an eighth of their size,
which costs a fraction of decoding and shrinking them.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import tensorflow as tf

from .check import open_file, pixels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from .check import Facts

_RATIOS = (1, 2, 4, 8)
"""The shares of their size that JPEGs can be decoded at."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """How images are brought to one size.

    Args:
        image_size: Height and width.
        resize: ``stretch`` changes the proportions, ``crop`` cuts the edges off, ``pad`` adds black ones.
    """

    image_size: tuple[int, int]
    resize: Literal["stretch", "crop", "pad"] = "stretch"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of a decoded image: height, width, and the three colours."""
        return (*self.image_size, 3)

    def ratio(self, height: int, width: int) -> int:
        """Return the largest of 1, 2, 4 and 8 that a JPEG can be divided by and still not be too small."""
        scales = (height / self.image_size[0], width / self.image_size[1])
        most = max(scales) if self.resize == "pad" else min(scales)
        return max((ratio for ratio in _RATIOS if ratio <= most), default=1)


class Reader:
    """Makes datasets that read and decode image files, several at a time and in order.

    Args:
        facts: All files that will be read, as `check_images` found them; none with a problem.
        decoding: How they are brought to one size.
    """

    def __init__(self, facts: Sequence[Facts], decoding: Decoding) -> None:
        branches = self._branches = _branches(facts, decoding)
        turned = any(fact.orientation != 1 for fact in facts)

        def read(path: Any, way: Any, orientation: Any) -> Any:
            decoders = [_decoder(path, *branch) for branch in branches]
            image = decoders[0]() if len(decoders) == 1 else tf.switch_case(way, decoders)
            return resized(_upright(image, orientation) if turned else image, decoding)

        # Traced once, however many datasets are made with it.
        kinds = [tf.TensorSpec((), kind) for kind in (tf.string, tf.int32, tf.int32)]
        self._read = tf.function(read, input_signature=kinds)
        self._decoding = decoding

    def decoded(self, facts: Sequence[Facts], labels: NDArray[Any] | None = None) -> Any:
        """Return a dataset whose iteration a damaged file ends with an error that names it.

        Args:
            facts: The files.
            labels: The label of each, shape ``(images, …)``.

        Returns:
            A `tf.data.Dataset` of uint8 images, shape ``(height, width, 3)``, or of (image, label) pairs.
        """

        def read(index: Any, *file: Any) -> Any:
            return index, self._read(*file)

        paths = tf.constant([fact.path for fact in facts], tf.string)
        images = _naming_failures(self._mapped(facts, read), paths, self._decoding)
        if labels is None:
            return images
        return tf.data.Dataset.zip(images, tf.data.Dataset.from_tensor_slices(labels))

    def sifted(self, facts: Sequence[Facts], labels: NDArray[Any]) -> tuple[Any, Callable[[], NDArray[np.bool_]]]:
        """Return a dataset that leaves out damaged files.

        Args:
            facts: The files.
            labels: The label of each, shape ``(images, …)``.

        Returns:
            A `tf.data.Dataset` of (image, label) pairs, and what tells of each file whether it has been decoded so far.
        """
        # Beside the examples and not among them: to take a number off each again costs more than to read a cache.
        with tf.device("CPU:0"):
            marks = tf.Variable(np.zeros(len(facts), np.bool_), trainable=False)
            known = tf.constant(labels)

        def read(index: Any, *file: Any) -> Any:
            # To wait for the call alone would not do: once it is inlined, that means its side effects, not its result.
            image = tf.identity(self._read(*file))
            with tf.control_dependencies([image]):
                marked = marks.scatter_update(tf.IndexedSlices(True, index))
            with tf.control_dependencies([marked]):
                return tf.identity(image), tf.gather(known, index)

        return self._mapped(facts, read), marks.numpy

    def _mapped(self, facts: Sequence[Facts], read: Callable[..., Any]) -> Any:
        """Return what a function makes of the index, path, way and orientation of each file, where it does not fail."""
        numbers, paths = np.arange(len(facts), dtype=np.int64), [fact.path for fact in facts]
        ways = np.array([self._branches.index(_way(fact, self._decoding)) for fact in facts], np.int32)
        orientations = np.array([fact.orientation for fact in facts], np.int32)
        files = tf.data.Dataset.from_tensor_slices((numbers, paths, ways, orientations))
        return files.map(read, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors(log_warning=True)


def decoded(facts: Sequence[Facts], decoding: Decoding, labels: NDArray[Any] | None = None) -> Any:
    """Return what `Reader.decoded` does, of files that are read in no other way."""
    return Reader(facts, decoding).decoded(facts, labels)


def decode_bytes(contents: Any, decoding: Decoding, orientation: Any = 1) -> Any:
    """Decode the contents of an image file inside a dataset's map.

    Args:
        contents: A scalar string tensor: a JPEG, a PNG, or what else `tf.io.decode_image` reads.
        decoding: How it is brought to its size.
        orientation: How it has to be turned, as EXIF counts; a tensor where it differs from image to image.

    Returns:
        A uint8 image, shape ``(height, width, 3)``.
    """
    is_jpeg = tf.equal(tf.strings.substr(contents, 0, 2), b"\xff\xd8")
    way = tf.cond(is_jpeg, lambda: _jpeg_way(contents, decoding, orientation), lambda: tf.constant(len(_RATIOS)))
    branches = [*(_native(contents, "jpeg", ratio) for ratio in _RATIOS), lambda: _decode_other(contents)]
    image = tf.switch_case(way, branches)
    needs_no_turn = isinstance(orientation, int) and orientation == 1
    return resized(image if needs_no_turn else _upright(image, orientation), decoding)


def plain_contents(facts: Facts) -> bytes:
    """Return the contents of an image file for `decode_bytes`: a JPEG or PNG as it is, anything else as a PNG."""
    if facts.decoder != "pillow":
        with open_file(facts.path) as stream:
            return stream.read()
    buffer = io.BytesIO()
    pixels(facts.path).save(buffer, "PNG")
    return buffer.getvalue()


def resized(image: Any, decoding: Decoding) -> Any:
    """Bring an image to a decoding's size.

    Args:
        image: Any size, shape ``(height, width, 3)``.
        decoding: The size, and what becomes of other proportions.

    Returns:
        A uint8 image of that size.
    """
    size = tf.shape(image)[:2]
    target = tf.constant(decoding.image_size)
    image = tf.cond(tf.reduce_all(size == target), lambda: image, lambda: _fitted(image, size, target, decoding))
    return tf.ensure_shape(image, decoding.shape)


def _fitted(image: Any, size: Any, target: Any, decoding: Decoding) -> Any:
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


def _scaled(image: Any, size: Any) -> Any:
    """Resize bilinearly; what is more than halved is averaged as well, or single pixels would stand for many."""
    halved = tf.reduce_any(tf.shape(image)[:2] > 2 * size)
    scaled = tf.cond(
        halved,
        lambda: tf.image.resize(image, size, antialias=True),
        lambda: tf.image.resize(image, size),
    )
    return tf.saturate_cast(tf.round(scaled), tf.uint8)


def _upright(image: Any, orientation: Any) -> Any:
    """Turn an image as EXIF's orientation says: from 5 on it lies on its side, the others are mirrored."""
    orientation = tf.cast(orientation, tf.int32)
    image = tf.cond(orientation > 4, lambda: tf.transpose(image, (1, 0, 2)), lambda: image)
    mirrored = tf.reduce_any(orientation == (2, 3, 6, 7))
    image = tf.cond(mirrored, lambda: tf.reverse(image, [1]), lambda: image)
    upside_down = tf.reduce_any(orientation == (3, 4, 7, 8))
    return tf.cond(upside_down, lambda: tf.reverse(image, [0]), lambda: image)


def _way(fact: Facts, decoding: Decoding) -> tuple[str, int]:
    """Return how a file is decoded: the decoder, and the ratio."""
    return fact.decoder, decoding.ratio(fact.height, fact.width) if fact.decoder == "jpeg" else 1


def _branches(facts: Sequence[Facts], decoding: Decoding) -> list[tuple[str, int]]:
    """List the ways that occur, so that a dataset of plain JPEGs pays for no others."""
    return sorted({_way(fact, decoding) for fact in facts})


def _decoder(path: Any, decoder: str, ratio: int) -> Callable[[], Any]:
    """Return a function that reads and decodes a file; a branch of the graph, so nothing happens before its call."""
    if decoder == "pillow":
        return lambda: tf.ensure_shape(tf.numpy_function(_with_pillow, [path], tf.uint8), (None, None, 3))

    def read() -> Any:
        return _native(tf.io.read_file(path), decoder, ratio)()

    return read


def _native(contents: Any, decoder: str, ratio: int) -> Callable[[], Any]:
    if decoder == "jpeg":
        return lambda: tf.io.decode_jpeg(contents, channels=3, ratio=ratio)
    if decoder == "png":
        return lambda: tf.io.decode_png(contents, channels=3)
    return lambda: _on_white(tf.io.decode_png(contents, channels=4))


def _decode_other(contents: Any) -> Any:
    is_png = tf.equal(tf.strings.substr(contents, 0, 4), b"\x89PNG")
    image = tf.cond(
        is_png,
        _native(contents, "png-alpha", 1),
        lambda: tf.io.decode_image(contents, channels=3, expand_animations=False),
    )
    return tf.ensure_shape(image, (None, None, 3))


def _on_white(image: Any) -> Any:
    """Lay an RGBA image over white, as a viewer does; what is hidden has any colour."""
    color, alpha = tf.cast(image[..., :3], tf.int32), tf.cast(image[..., 3:], tf.int32)
    return tf.cast((color * alpha + 255 * (255 - alpha) + 127) // 255, tf.uint8)


def _with_pillow(path: bytes) -> NDArray[np.uint8]:
    return np.asarray(pixels(path.decode()))


def _jpeg_way(contents: Any, decoding: Decoding, orientation: Any) -> Any:
    """Return the place in `_RATIOS` that a JPEG is decoded with, like `Decoding.ratio`."""
    size = tf.io.extract_jpeg_shape(contents)[:2]
    size = tf.cond(tf.cast(orientation, tf.int32) > 4, lambda: tf.reverse(size, [0]), lambda: size)
    scales = tf.cast(size, tf.float64) / tf.constant(decoding.image_size, tf.float64)
    most = tf.reduce_max(scales) if decoding.resize == "pad" else tf.reduce_min(scales)
    return tf.maximum(tf.reduce_sum(tf.cast(tf.constant(_RATIOS, tf.float64) <= most, tf.int32)) - 1, 0)


def _naming_failures(images: Any, paths: Any, decoding: Decoding) -> Any:
    """Make a dataset of (index, image) pairs fail with the name of the first file that is missing.

    TensorFlow's own error says that a JPEG is invalid but not which; a gap in the indices does, also before the one
    beyond the last.
    """
    count = int(paths.shape[0])
    beyond = tf.data.Dataset.from_tensors((np.int64(count), np.zeros(decoding.shape, np.uint8)))

    def check(expected: Any, index: Any, image: Any) -> Any:
        path = paths[tf.minimum(expected, count - 1)]
        told = tf.strings.join(["The image file ", path, " is damaged: its header is right, but it cannot be decoded."])
        with tf.control_dependencies([tf.debugging.Assert(tf.equal(expected, index), [told])]):
            return expected + 1, tf.identity(image)

    checked = images.concatenate(beyond).scan(np.int64(0), lambda expected, pair: check(expected, *pair)).take(count)
    return checked.apply(tf.data.experimental.assert_cardinality(count))
