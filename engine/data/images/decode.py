"""Decodes image files into tensors of one size, as part of a `tf.data` pipeline.

Each image is turned upright, converted to RGB and brought to the configured size. It stays uint8, so that the cache is
small. Much larger JPEGs are decoded at half, a quarter or an eighth of their size, which is far cheaper.
"""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import tensorflow as tf

from .check import ImageFacts, check_all, check_image, open_file, pixels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ...messages import Reporter
    from .files import Source

DAMAGED = "is damaged: its header is valid, but it cannot be decoded"
_REPORTED = 16  # decoded images after which progress is reported to Python, to save time
_REPORT_EVERY_S = 2.0
_MOST_READ = 4000  # files to measure how fast they are decoded
_RATIOS = (1, 2, 4, 8)  # the factors that JPEGs can be shrunk by while they are decoded

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


@dataclass(frozen=True, slots=True)
class Decoding:
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


class Reader:
    """Makes datasets of image files that passed the check, which are read and decoded in parallel and in order."""

    def __init__(self, facts: Sequence[ImageFacts], decoding: Decoding) -> None:
        # Only branches that are needed: a dataset of plain JPEGs has just one.
        branches = self._branches = sorted({_way(fact, decoding) for fact in facts})
        turned = any(fact.orientation != 1 for fact in facts)

        def read(path: Any, way: Any, orientation: Any) -> Any:
            decoders = [_decoder(path, *branch) for branch in branches]
            image = decoders[0]() if len(decoders) == 1 else tf.switch_case(way, decoders)
            return resized(_upright(image, orientation) if turned else image, decoding)

        # Traced once for all datasets.
        kinds = [tf.TensorSpec((), kind) for kind in (tf.string, tf.int32, tf.int32)]
        self._read = tf.function(read, input_signature=kinds, autograph=False)
        self._decoding = decoding

    def decoded(self, facts: Sequence[ImageFacts], labels: NDArray[Any] | None = None) -> Any:
        """Return a dataset that raises an error naming the file when a file is damaged.

        Its elements are uint8 images, shape ``(height, width, 3)``, with labels as pairs.
        """

        @as_written
        def read(index: Any, *file: Any) -> Any:
            return index, self._read(*file)

        paths, *others = self._columns(facts)
        files = tf.data.Dataset.from_tensor_slices((np.arange(len(facts), dtype=np.int64), paths, *others))
        images = files.map(read, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors(log_warning=True)
        count, named = len(facts), tf.constant(paths)

        def message(index: Any) -> Any:
            return tf.strings.join(["The image file ", named[tf.minimum(index, count - 1)], f" {DAMAGED}."])

        nothing = np.zeros(self._decoding.shape, np.uint8)
        images = without_gaps(images, np.int64(0), np.int64(count), nothing, message)
        images = images.map(as_written(lambda _, image: image))
        images = images.apply(tf.data.experimental.assert_cardinality(count))
        if labels is None:
            return images
        return tf.data.Dataset.zip(images, tf.data.Dataset.from_tensor_slices(labels))

    def decodable(self, facts: Sequence[ImageFacts], on_progress: Callable[[str], None]) -> set[str]:
        """Decode all files, and return the paths of those that can be decoded.

        `on_progress` is called with a sentence every few seconds, and often with an empty string in between; an
        exception from it ends the pass.
        """

        @as_written
        def read(path: Any, *others: Any) -> Any:
            return path, self._read(path, *others)[0, 0, 0]  # what is not used is not decoded

        on_progress(f"decoding {len(facts):,} images")
        files = tf.data.Dataset.from_tensor_slices(tuple(self._columns(facts)))
        paths = files.map(read, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False).ignore_errors(
            log_warning=True
        )
        good: set[str] = set()
        reported_s = time.monotonic()
        for decoded, _ in paths.batch(_REPORTED).with_options(untuned()):
            good |= {path.decode() for path in decoded.numpy()}
            is_due = time.monotonic() - reported_s > _REPORT_EVERY_S
            reported_s = time.monotonic() if is_due else reported_s
            on_progress(f"decoding: {len(good):,} of {len(facts):,} images" if is_due else "")
        return good

    def _columns(self, facts: Sequence[ImageFacts]) -> tuple[list[str], NDArray[np.int32], NDArray[np.int32]]:
        """Return the path, way and orientation of each file."""
        ways = np.array([self._branches.index(_way(fact, self._decoding)) for fact in facts], np.int32)
        return [fact.path for fact in facts], ways, np.array([fact.orientation for fact in facts], np.int32)


def decode_bytes(contents: Any, decoding: Decoding, orientation: Any = 1) -> Any:
    """Decode an image file inside a dataset's map: uint8, shape ``(height, width, 3)``.

    `contents` is a scalar string tensor: a JPEG, a PNG or another format that `tf.io.decode_image` reads. `orientation`
    is that of EXIF, a tensor if it differs between images.
    """
    is_jpeg = tf.equal(tf.strings.substr(contents, 0, 2), b"\xff\xd8")
    way = tf.cond(is_jpeg, lambda: _jpeg_way(contents, decoding, orientation), lambda: tf.constant(len(_RATIOS)))
    branches = [*(_native(contents, "jpeg", ratio) for ratio in _RATIOS), lambda: _decode_other(contents)]
    image = tf.switch_case(way, branches)
    needs_no_turn = isinstance(orientation, int) and orientation == 1
    return resized(image if needs_no_turn else _upright(image, orientation), decoding)


def plain_contents(facts: ImageFacts) -> bytes:
    """Return the contents of an image file for `decode_bytes`: a JPEG or PNG as it is, anything else as a PNG."""
    if facts.decoder != "pillow":
        with open_file(facts.path) as stream:
            return stream.read()
    buffer = io.BytesIO()
    pixels(facts.path).save(buffer, "PNG")
    return buffer.getvalue()


def resized(image: Any, decoding: Decoding) -> Any:
    """Bring an image of shape ``(height, width, 3)`` to the configured size, as uint8."""
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


def _way(fact: ImageFacts, decoding: Decoding) -> tuple[str, int]:
    """Return the decoder and the ratio for a file."""
    return fact.decoder, decoding.ratio(fact.height, fact.width) if fact.decoder == "jpeg" else 1


def _decoder(path: Any, decoder: str, ratio: int) -> Callable[[], Any]:
    """Return a function that reads and decodes a file, for use as a branch of the graph."""
    if decoder == "pillow":
        read = partial(tf.numpy_function, lambda name: np.asarray(pixels(name.decode())), [path], tf.uint8)
        return lambda: tf.ensure_shape(read(), (None, None, 3))

    def read_and_decode() -> Any:
        return _native(tf.io.read_file(path), decoder, ratio)()  # the branch reads the file

    return read_and_decode


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
    """Lay an RGBA image over white, as a viewer does; transparent pixels can have any colour."""
    color, alpha = tf.cast(image[..., :3], tf.int32), tf.cast(image[..., 3:], tf.int32)
    return tf.cast((color * alpha + 255 * (255 - alpha) + 127) // 255, tf.uint8)


def _jpeg_way(contents: Any, decoding: Decoding, orientation: Any) -> Any:
    """Return the index in `_RATIOS` for a JPEG, like `Decoding.ratio`."""
    size = tf.io.extract_jpeg_shape(contents)[:2]
    size = tf.cond(tf.cast(orientation, tf.int32) > 4, lambda: tf.reverse(size, [0]), lambda: size)
    scales = tf.cast(size, tf.float64) / tf.constant(decoding.image_size, tf.float64)
    most = tf.reduce_max(scales) if decoding.resize == "pad" else tf.reduce_min(scales)
    return tf.maximum(tf.reduce_sum(tf.cast(tf.constant(_RATIOS, tf.float64) <= most, tf.int32)) - 1, 0)


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


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded images, as stored on the disk."""

    paths: tuple[str, ...]
    contents: Any  # a `tf.data.Dataset` of (the bytes of an encoded image, its EXIF orientation)


def encoded_files(source: Source, reporter: Reporter) -> Encoded | None:
    """Return some encoded images of files; None if all of them are decoded with Pillow."""
    facts = check_all(check_image, source.paths[:_MOST_READ], reporter)
    plain = [fact for fact in facts if not fact.problem and fact.decoder != "pillow"]
    if not plain:
        return None
    paths, orientations = [fact.path for fact in plain], [fact.orientation for fact in plain]
    contents = tf.data.Dataset.from_tensor_slices((paths, orientations)).map(
        lambda path, orientation: (tf.io.read_file(path), orientation), num_parallel_calls=tf.data.AUTOTUNE
    )
    return Encoded(tuple(paths), contents)
