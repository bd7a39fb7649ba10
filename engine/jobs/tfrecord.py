"""Converts an image dataset into shards, and resumes an interrupted conversion."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import tensorflow as tf
from msgspec import Struct
from msgspec.structs import replace

from ..data.images.check import ImageFacts, check_all
from ..data.images.examples import as_png, check_whole, refuse_bad
from ..data.kinds.formats import config_for
from ..data.kinds.table import KINDS
from ..data.kinds.tfrecord import MANIFEST_NAME, SCHEMA_NAME, VERSION, Schema, Shard, checksum, shard_name, write_schema
from ..data.places import is_remote, join, open_file, read_whole
from ..errors import ConsoleError, DataError, one_line
from ..storage.files import free_bytes, sync

if TYPE_CHECKING:
    from ..data.images.files import Source
    from ..data.kinds.kind import ImageFilesKind
    from ..messages import Reporter

_OVERHEAD_BYTES = 200  # about what a record, with its lines in the manifest and the schema, takes besides the image
_READERS = 8  # files that are read in parallel: a bucket is slow to answer, but answers many requests at a time
_AHEAD = 4 * _READERS


class Item(Struct, frozen=True):
    """One image of a source."""

    name: str
    facts: ImageFacts
    bytes: int
    crc32: int
    label: int | tuple[float, ...]  # its class number, or a probability for each class

    @property
    def class_number(self) -> int:
        """Its class; with probabilities, that of the most probable class."""
        return self.label if isinstance(self.label, int) else max(range(len(self.label)), key=self.label.__getitem__)


def plan_shards(items: list[Item], shard_bytes: int, seed: int) -> list[list[Item]]:
    """Shuffle images and distribute them over shards of about equal size.

    That depends only on the images, the seed and the size, so an interrupted conversion continues with the same shards.
    """
    mixed = sorted(items, key=lambda item: item.name)
    random.Random(seed).shuffle(mixed)  # noqa: S311  nothing secret
    total = sum(item.bytes for item in mixed)
    wanted = max(1, round(total / shard_bytes))
    starts = accumulate((item.bytes for item in mixed[:-1]), initial=0)
    groups: list[list[Item]] = [[] for _ in range(wanted)]
    for item, start in zip(mixed, starts, strict=True):
        groups[start * wanted // total].append(item)
    return [group for group in groups if group]  # an image larger than a shard leaves the next one empty


def manifest_of(shards: list[list[Item]], settings: dict[str, Any]) -> str:
    """Return what shards were made from, as JSON, so that a changed source is noticed.

    These are the settings, and the name, bytes, checksum and label of each image.
    """
    images = [(item.name, item.bytes, item.crc32, item.label) for shard in shards for item in shard]
    return json.dumps({**settings, "version": VERSION, "images": images}, ensure_ascii=False, separators=(",", ":"))


def convert_dataset(
    reporter: Reporter, dataset: str, options: dict[str, Any], destination: str, shard_mb: float, seed: int = 0
) -> dict[str, Any]:
    """Convert a dataset into TFRecord shards of about `shard_mb` million bytes.

    Returns where the shards are, how many there are and how many were written, images, bytes and class counts. Raises
    `ConsoleError` if the source cannot be used, or the destination cannot be written or belongs to another source.
    """
    with suppress(RuntimeError):  # TensorFlow is initialized already
        tf.config.set_visible_devices([], "GPU")  # not needed here, and a run may be using it
    source, items, label = read_images(dataset, options, reporter)
    shard_bytes, about = round(shard_mb * 1e6), {"classes": source.class_names, "label": label}
    shards = plan_shards(items, shard_bytes, seed)
    _prepare(destination, manifest_of(shards, {**about, "shard_bytes": shard_bytes, "seed": seed}))
    places = {join(destination, shard_name(index, len(shards))): shard for index, shard in enumerate(shards)}
    # A shard gets its name when all of it is on the disk.
    missing = {place: shard for place, shard in places.items() if not tf.io.gfile.exists(place)}
    needed = sum(item.bytes + _OVERHEAD_BYTES for shard in missing.values() for item in shard)
    free = None if is_remote(destination) else free_bytes(Path(destination))
    if free is not None and needed > free:
        what = f"{destination} has {free / 1e9:.1f} GB free, and the shards need {needed / 1e9:.1f} GB."
        raise ConsoleError(what, remedy="Free space, or choose another folder.")
    _write(destination, missing, reporter)
    whole, done, described = sum(tf.io.gfile.stat(place).length for place in places), 0, list[Shard]()
    for place, shard in places.items():
        with open_file(place) as stream:
            size, crc32 = checksum(stream)
        labels = tuple(item.class_number for item in shard)
        described.append(Shard(file=place.rpartition("/")[2], bytes=size, crc32=crc32, labels=labels))
        done += size
        reporter.progress("computing checksums", done // 1_000_000, whole // 1_000_000, "MB")
    schema = Schema(
        version=VERSION,
        source=f"{dataset}: {source.place}",
        classes=source.class_names,
        label=label,
        seed=seed,
        shards=tuple(described),
    )
    write_text(join(destination, SCHEMA_NAME), write_schema(schema))
    return {
        "destination": destination,
        "shards": len(shards),
        "written": len(missing),
        "images": len(schema.labels),
        "bytes": done,
        "classes": list(schema.classes),
        "class_counts": list(schema.class_counts),
        "left_out": len(source.names) - len(items),
    }


def _prepare(destination: str, made_from: str) -> None:
    """Create the destination, or check that it was started with the same images."""
    manifest = join(destination, MANIFEST_NAME)
    try:
        tf.io.gfile.makedirs(destination)
        there = tf.io.gfile.listdir(destination)
    except tf.errors.OpError as error:
        raise ConsoleError(f"{destination} cannot be created or read: {error.message}.") from error
    if MANIFEST_NAME in there:
        if read_bytes(manifest).decode("utf-8", "replace") != made_from:
            what = f"{destination} was started with other images or options."
            raise DataError(what, remedy="Write to another folder, or delete this one and start again.")
        return
    foreign = next((name for name in sorted(there) if name == SCHEMA_NAME or name.endswith(".tfrecord")), None)
    if foreign is not None:
        what = f"{destination} already contains {foreign} but no {MANIFEST_NAME}."
        raise DataError(what, remedy="Write to another folder.")
    write_text(manifest, made_from)


def _write(destination: str, missing: dict[str, list[Item]], reporter: Reporter) -> None:
    """Write shards; some images are read ahead of time."""
    total, done = sum(map(len, missing.values())), 0

    def read(item: Item) -> bytes:
        content, path = read_bytes(item.facts.path), item.facts.path
        if zlib.crc32(content) != item.crc32:
            raise DataError(f"{path} changed while the shards were written.", remedy="Start the conversion again.")
        return content if item.facts.is_plain else as_png(path)  # not every version of TensorFlow reads the others

    with ThreadPoolExecutor(_READERS, "image reader") as pool:
        for place, items in missing.items():
            with _replacing(place) as part, tf.io.TFRecordWriter(part) as writer:
                for few in (items[start : start + _AHEAD] for start in range(0, len(items), _AHEAD)):
                    for item, image in zip(few, pool.map(read, few), strict=True):
                        writer.write(example_of(item, image).SerializeToString(deterministic=True))
                        done += 1
                        reporter.progress("writing shards", done, total, "images")
    # An interrupted conversion may have left partial files that this one did not write again.
    for name in tf.io.gfile.listdir(destination):
        if name.endswith(".tfrecord.part"):
            tf.io.gfile.remove(join(destination, name))


def read_images(
    dataset: str, options: dict[str, Any], reporter: Reporter
) -> tuple[Source, list[Item], Literal["class", "shares"]]:
    """Read a dataset's table or folders, and check every image; return the good ones, and what their labels are.

    Raises `DataError` if the source cannot be read, or has bad images that may not be skipped.
    """
    kind = cast("ImageFilesKind[Any]", KINDS[dataset])
    source = kind.read_source(config_for(dataset, options), lambda _: None)
    if options.get("validation_path"):
        reporter.note("Images in data.options.validation_path are not converted: training splits the shards itself.")
    for notice in source.notices:
        reporter.note(notice)

    def look_at(path: str) -> tuple[ImageFacts, int, int]:
        """Check an image file, so that everything in a shard can be read; return its size and checksum as well."""
        facts, contents = check_whole(path)
        return facts, len(contents), zlib.crc32(contents)

    looks = check_all(look_at, source.paths, reporter)
    source = replace(source, facts=tuple(facts for facts, *_ in looks))
    if source.bad:
        remedy = "Replace them, or leave them out with --skip-bad."
        reporter.note(refuse_bad(source, remedy, skip_bad=bool(options.get("skip_bad"))))
    # Class numbers if each image has exactly one class, which works with every loss; else shares.
    is_shares = source.labels.ndim == 2 and not np.isin(source.labels, (0.0, 1.0)).all()
    labels = source.labels if is_shares else source.numbers
    items = [
        Item(name, facts, size, crc32, tuple(label.tolist()) if is_shares else int(label))
        for name, (facts, size, crc32), label in zip(source.names, looks, labels, strict=True)
        if not facts.problem
    ]
    return source, items, "shares" if is_shares else "class"


def read_bytes(path: str) -> bytes:
    """Read a whole file; raise `DataError` if it cannot be read."""
    try:
        return read_whole(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or one_line(error)}.") from error


def write_text(path: str, text: str) -> None:
    """Write a file completely or not at all; raise `ConsoleError` if it cannot be written."""
    with _replacing(path) as part, tf.io.gfile.GFile(part, "w") as file:
        file.write(text)


def example_of(item: Item, image: bytes) -> Any:
    """Return an image and its label as a `tf.train.Example`."""
    name = item.name.encode("utf-8", "surrogateescape")  # it may be no UTF-8
    features = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "orientation": tf.train.Feature(int64_list=tf.train.Int64List(value=[item.facts.orientation])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[item.label]))
        if isinstance(item.label, int)
        else tf.train.Feature(float_list=tf.train.FloatList(value=item.label)),
        "name": tf.train.Feature(bytes_list=tf.train.BytesList(value=[name])),
    }
    return tf.train.Example(features=tf.train.Features(feature=features))


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
            is_full = isinstance(error, tf.errors.ResourceExhaustedError)
            reason = "the disk is full" if is_full else one_line(error, 200).rpartition("; ")[2].rstrip(".")
            remedy = "Free space or check the folder, then start again: complete shards are kept."
            raise ConsoleError(f"{path} cannot be written: {reason}.", remedy=remedy) from error
        raise
