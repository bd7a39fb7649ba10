"""Reads image shards, in parallel and always in the same order, and decodes only the records that are wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..errors import DataError, one_line
from .images.check import open_file
from .images.decode import Decoding, as_written, decode_bytes, without_gaps
from .places import is_remote, join
from .tfrecord_schema import MANIFEST_NAME, SCHEMA_NAME, Schema, checksum, read_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


_SIDE_BY_SIDE = 16  # most shards that are read in parallel
_READ_BYTES = 4 << 20
_LARGEST_CHECKED = 4_000_000_000
"""Above this total, only the sizes of shards are checked; a damaged shard then ends the training with its name."""


def open_schema(folder: str) -> Schema:
    """Read the schema of a folder of shards; raise `DataError` if it is missing or cannot be used."""
    place = join(folder, SCHEMA_NAME)
    try:
        with open_file(place) as stream:
            text = stream.read().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError, tf.errors.NotFoundError) as error:
        raise _unfinished(folder) from error
    except (OSError, tf.errors.OpError) as error:
        raise DataError(f"{place} cannot be read: {getattr(error, 'strerror', '') or one_line(error)}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{place} is damaged: it is not UTF-8 text.") from error
    return read_schema(text, place)


def _unfinished(folder: str) -> DataError:
    if tf.io.gfile.exists(join(folder, MANIFEST_NAME)):
        return DataError(
            f"The shards in {folder} are not finished: there is no {SCHEMA_NAME}.",
            remedy="Run the same `tpu-console tfrecord` command again; it continues where it stopped.",
        )
    if not tf.io.gfile.exists(folder):
        return DataError(f"There is no folder {folder}.", remedy="Set data.options.path to a folder of shards.")
    return DataError(
        f"There is no {SCHEMA_NAME} in {folder}.",
        remedy="Set data.options.path to a folder written by `tpu-console tfrecord`.",
    )


def check_shards(folder: str, schema: Schema, on_fetch: Callable[[str], None]) -> None:
    """Compare the sizes of the shards with the schema, and their checksums if that takes only seconds."""
    for shard in schema.shards:
        place = join(folder, shard.file)
        try:
            size = tf.io.gfile.stat(place).length
        except tf.errors.NotFoundError as error:
            raise _changed(folder, f"The shard {place} is missing.") from error
        except tf.errors.OpError as error:
            raise DataError(f"{place} cannot be read: {one_line(error)}.") from error
        if size != shard.bytes:
            how = "truncated" if size < shard.bytes else "changed"
            raise _changed(folder, f"{place} is {how}: it has {size:,} bytes instead of {shard.bytes:,}.")
    total = sum(shard.bytes for shard in schema.shards)
    if is_remote(folder) or total > _LARGEST_CHECKED:
        return
    on_fetch(f"checking {len(schema.shards):,} shards, {total / 1e6:,.0f} MB")
    for shard in schema.shards:
        place = join(folder, shard.file)
        with open_file(place) as stream:
            if checksum(stream)[1] != shard.crc32:
                what = f"{place} was changed: its checksum differs from the one in {SCHEMA_NAME}."
                raise _changed(folder, what)


def _changed(folder: str, what: str) -> DataError:
    return DataError(what, remedy=f"Copy it again, or write it again with `tpu-console tfrecord SOURCE {folder}`.")


def records(folder: str, schema: Schema, decoding: Decoding, wanted: NDArray[np.intp]) -> Any:
    """Return a dataset of (image, label) pairs, with the records of these indices over all shards.

    Images are uint8, shape ``(height, width, 3)``.
    """
    starts = np.cumsum([0, *(len(shard.labels) for shard in schema.shards)], dtype=np.int64)
    is_wanted = np.zeros(starts[-1], np.bool_)
    is_wanted[wanted] = True
    used = [number for number in range(len(schema.shards)) if is_wanted[starts[number] : starts[number + 1]].any()]
    paths = [join(folder, schema.shards[number].file) for number in used]
    counts = np.array([len(schema.shards[number].labels) for number in used], np.int64)
    mask = tf.constant(is_wanted)
    read = tf.data.Dataset.from_tensor_slices((paths, starts[used], counts)).interleave(
        _numbered, cycle_length=min(len(used), _SIDE_BY_SIDE), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True
    )
    own = read.filter(lambda index, _: tf.gather(mask, index))
    parsed = own.map(_parser(schema, decoding), num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return parsed.apply(tf.data.experimental.assert_cardinality(len(wanted)))


def _numbered(path: Any, start: Any, count: Any) -> Any:
    """Return a shard's records with their indices; a damaged shard raises an error that names it."""
    own = tf.data.TFRecordDataset(path, buffer_size=_READ_BYTES).ignore_errors(log_warning=True).enumerate(start)
    message = tf.strings.join(["The shard ", path, " is damaged: its records end too early."])
    return without_gaps(own, start, count, tf.constant(b""), lambda _: message)


def _parser(schema: Schema, decoding: Decoding) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Return a function from an index and a record to an (image, label) pair."""
    is_class = schema.label == "class"
    shape, dtype = ([], tf.int64) if is_class else ([len(schema.classes)], tf.float32)
    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "orientation": tf.io.FixedLenFeature([], tf.int64, 1),
        "label": tf.io.FixedLenFeature(shape, dtype),
    }

    @as_written
    def parse(_index: Any, serialized: Any) -> tuple[Any, Any]:
        values = tf.io.parse_single_example(serialized, features)
        image = decode_bytes(values["image"], decoding, values["orientation"])
        return image, tf.cast(values["label"], tf.int32) if is_class else values["label"]

    return parse
