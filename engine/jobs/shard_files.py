"""Writes shard files and reads them back; the paths may be remote.

A file is written under a temporary name, read back and then renamed, so a file with its own name is complete.
"""

from __future__ import annotations

import zlib
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ..data.images.check import ImageFacts, open_file
from ..data.images.decode import plain_contents
from ..data.places import is_remote
from ..errors import ConsoleError, DataError, one_line
from ..storage.files import sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .shard_plan import Item

_READERS = 8  # files that are read in parallel: a bucket is slow to answer, but answers many requests at a time
_AHEAD = 4 * _READERS


class DamagedShardError(Exception):
    """A shard file does not contain what it should; the message says why."""


def read_bytes(path: str) -> bytes:
    """Read a whole file; raise `DataError` if it cannot be read."""
    try:
        with open_file(path) as file:
            return file.read()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or one_line(error)}.") from error
    except tf.errors.OpError as error:
        raise DataError(f"{path} cannot be read: {_reason(error)}.") from error


def write_text(path: str, text: str) -> None:
    """Write a file completely or not at all; raise `ConsoleError` if it cannot be written."""
    with _replacing(path) as part, tf.io.gfile.GFile(part, "w") as file:
        file.write(text)


def write_shard(path: str, items: Sequence[Item], on_image: Callable[[], None]) -> None:
    """Write a shard and read it back before renaming it; `on_image` is called for each image written or read.

    Raises:
        DataError: A source file has changed since it was checked.
        ConsoleError: The shard cannot be written, for example because the disk is full; there is no partial shard then.
    """
    with _replacing(path) as part:
        with tf.io.TFRecordWriter(part) as writer:
            for item, image in zip(items, _images(items), strict=True):
                writer.write(example_of(item, image).SerializeToString(deterministic=True))
                on_image()
        try:
            check_records(part, items, on_image)
        except DamagedShardError as error:
            raise ConsoleError(
                f"{path} was not written: reading it back gave different data.",
                why=f"{error}.",
                remedy="The disk or its driver may be faulty; write to another disk.",
            ) from error


def example_of(item: Item, image: bytes) -> Any:
    """Return an image and its label as a `tf.train.Example`."""
    if isinstance(item.label, int):
        label = tf.train.Feature(int64_list=tf.train.Int64List(value=[item.label]))
    else:
        label = tf.train.Feature(float_list=tf.train.FloatList(value=item.label))
    features = {
        "image": _bytes_feature(image),
        "orientation": tf.train.Feature(int64_list=tf.train.Int64List(value=[item.orientation])),
        "label": label,
        "name": _bytes_feature(_encoded(item.name)),
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


def check_records(path: str, items: Sequence[Item], on_image: Callable[[], None]) -> None:
    """Check that a shard has one record for each image, in order; each record has a checksum, which TensorFlow checks.

    Raises:
        DamagedShardError: It has not.
    """
    names = []
    try:
        for raw in tf.data.TFRecordDataset(path).as_numpy_iterator():
            try:
                features = tf.train.Example.FromString(raw).features.feature
                names.append(features["name"].bytes_list.value[0])
            except Exception as error:  # protobuf's decoding error has no public name that all versions share
                raise DamagedShardError("a record cannot be read") from error
            on_image()
    except tf.errors.OpError as error:
        raise DamagedShardError(one_line(error, 200)) from error
    if names != [_encoded(item.name) for item in items]:
        raise DamagedShardError(f"its {len(names):,} records are not those of its {len(items):,} images")


def _images(items: Sequence[Item]) -> Iterator[bytes]:
    """Read the images to store, some of them ahead of time."""
    with ThreadPoolExecutor(_READERS, "image reader") as pool:
        ahead: deque[Future[bytes]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(_image, item))
                if len(ahead) > _AHEAD:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def _image(item: Item) -> bytes:
    """Read the image to store; refuse it if its file has changed."""
    content = read_bytes(item.path)
    if zlib.crc32(content) != item.crc32:
        raise DataError(f"{item.path} changed while the shards were written.", remedy="Start the conversion again.")
    return plain_contents(ImageFacts(item.path, decoder="pillow")) if item.is_recoded else content


@contextmanager
def _replacing(path: str) -> Iterator[str]:
    """Yield a temporary name to write to; rename the file if nothing went wrong, else raise a `ConsoleError`."""
    part = f"{path}.part"
    try:
        yield part
        if not is_remote(path):
            sync(part)  # so that after a power failure a file with this name is complete
        tf.io.gfile.rename(part, path, overwrite=True)
    except BaseException as error:
        with suppress(tf.errors.OpError):  # the first error counts, not that there is nothing to remove
            tf.io.gfile.remove(part)
        if isinstance(error, tf.errors.OpError | OSError) and not isinstance(error, BrokenPipeError):
            raise ConsoleError(
                f"{path} cannot be written: {_reason(error)}.",
                remedy="Free space or check the folder, then start again: complete shards are kept.",
            ) from error
        raise


def _reason(error: Any) -> str:
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return "the disk is full"
    return one_line(error, 200).rpartition("; ")[2].rstrip(".")


def _encoded(name: str) -> bytes:
    """Return the bytes of a file's name, even if it is not UTF-8."""
    return name.encode("utf-8", "surrogateescape")


def _bytes_feature(value: bytes) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
