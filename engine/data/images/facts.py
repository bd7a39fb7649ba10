"""Image files: their sizes and formats, what is wrong with them, and their encoded bytes."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..describing import spread
from ..places import join
from ..tfrecord_reading import open_schema
from .check import check_all, check_image

if TYPE_CHECKING:
    from ...messages import Reporter
    from .files import Source

_NAMED = 10  # bad files that are named at most
_MOST_READ = 4000


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded images, as stored on the disk."""

    paths: tuple[str, ...]
    contents: Any  # a `tf.data.Dataset` of (the bytes of an encoded image, its EXIF orientation)


def describe_images(source: Source, reporter: Reporter) -> dict[str, Any]:
    """Check every image file.

    Returns:
        ``images``: how many are ``usable``, their total ``bytes``, the spread of ``height`` and ``width``, the count of
        each of the ``formats``, and how many are ``turned`` upright; ``bad``: the ``count`` of files that cannot be
        used, and ``file`` and ``problem`` of the ``first`` ones.
    """
    facts = check_all(check_image, source.paths, reporter)
    bad = [(name, fact.problem) for name, fact in zip(source.names, facts, strict=True) if fact.problem]
    good = [fact for fact in facts if not fact.problem]
    sides = {side: spread(np.array([getattr(fact, side) for fact in good])) for side in ("height", "width") if good}
    size = 0
    for fact in good:
        with suppress(OSError):  # a remote file
            size += Path(fact.path).stat().st_size
    return {
        "images": {
            "usable": len(good),
            "bytes": size,
            "formats": dict(Counter(fact.format for fact in good).most_common()),
            "turned": sum(fact.orientation != 1 for fact in good),
            **sides,
        },
        "bad": {"count": len(bad), "first": [{"file": name, "problem": problem} for name, problem in bad[:_NAMED]]},
    }


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


def encoded_records(folder: str) -> Encoded:
    """Return the encoded images of shards."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "orientation": tf.io.FixedLenFeature([], tf.int64, 1)}

    def parse(record: Any) -> Any:
        values = tf.io.parse_single_example(record, features)
        return values["image"], tf.cast(values["orientation"], tf.int32)

    paths = [join(folder, shard.file) for shard in open_schema(folder).shards]
    records = tf.data.TFRecordDataset(paths, num_parallel_reads=tf.data.AUTOTUNE)
    return Encoded(tuple(paths), records.map(parse, num_parallel_calls=tf.data.AUTOTUNE))
