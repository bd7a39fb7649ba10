"""Converts an image dataset into shards, and resumes an interrupted conversion."""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import tensorflow as tf

from ..data.images.check import ImageFacts, check_all, check_image, open_file, pixels
from ..data.images.decode import plain_contents
from ..data.images.examples import refuse_bad
from ..data.kinds.table import KINDS
from ..data.places import is_remote, join
from ..data.survey.formats import config_for
from ..data.tfrecord_schema import (
    MANIFEST_NAME,
    SCHEMA_NAME,
    VERSION,
    Record,
    Schema,
    Shard,
    checksum,
    features_of,
    shard_name,
    write_schema,
)
from ..errors import ConsoleError, DataError, one_line
from ..storage.disk_space import free_bytes
from ..storage.files import sync

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..data.kinds.image_kind import ImageFilesKind
    from ..messages import Reporter


@dataclass(frozen=True, slots=True)
class Item:
    """One image of a source."""

    name: str
    path: str
    bytes: int
    crc32: int
    label: int | tuple[float, ...]  # its class number, or a probability for each class
    format: str = "jpeg"  # the format it is stored in, ``jpeg`` or ``png``
    is_recoded: bool = False  # whether the file has another format, which not every TensorFlow version reads
    orientation: int = 1  # EXIF orientation; 1 is upright

    @property
    def class_number(self) -> int:
        """Its class; with probabilities, that of the most probable class."""
        return self.label if isinstance(self.label, int) else max(range(len(self.label)), key=self.label.__getitem__)


class Settings(Record):
    """What the shards depend on besides the images."""

    classes: tuple[str, ...]  # names of the classes in the order of their numbers
    label: Literal["class", "shares"]
    shard_bytes: int  # intended size of a shard
    seed: int  # seed of the order of the images


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The images of each shard, in the order they are written.

    It depends only on the images, the seed and the shard size. What it was made from is saved beside the shards. So an
    interrupted conversion continues with the same shards, and a changed source is noticed.
    """

    settings: Settings
    shards: tuple[tuple[Item, ...], ...]

    @property
    def manifest(self) -> str:
        """What it was made from, as JSON: the settings, and the name, bytes, checksum and label of each image."""
        images = [(item.name, item.bytes, item.crc32, item.label) for shard in self.shards for item in shard]
        values = {**self.settings.model_dump(), "version": VERSION, "images": images}
        return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def plan_shards(items: list[Item], settings: Settings) -> ShardPlan:
    """Shuffle images and distribute them over shards of about equal size."""
    mixed = sorted(items, key=lambda item: item.name)
    random.Random(settings.seed).shuffle(mixed)  # noqa: S311  nothing secret
    total = sum(item.bytes for item in mixed)
    wanted = max(1, round(total / settings.shard_bytes))
    starts = accumulate((item.bytes for item in mixed[:-1]), initial=0)
    groups: list[list[Item]] = [[] for _ in range(wanted)]
    for item, start in zip(mixed, starts, strict=True):
        groups[start * wanted // total].append(item)
    # An image larger than a shard leaves the next one empty.
    return ShardPlan(settings, tuple(tuple(group) for group in groups if group))


_OVERHEAD_BYTES = 200  # about what a record, with its lines in the manifest and the schema, takes besides the image


def convert_dataset(
    reporter: Reporter, dataset: str, options: dict[str, Any], destination: str, shard_mb: float, seed: int = 0
) -> dict[str, Any]:
    """Convert a dataset into TFRecord shards of about `shard_mb` million bytes.

    Returns where the shards are, how many there are and how many were written, images, bytes and class counts.

    Raises:
        DataError: The source cannot be read, has bad images, or the destination belongs to another source.
        ConsoleError: The destination cannot be written.
    """
    with suppress(RuntimeError):  # TensorFlow is initialised already
        tf.config.set_visible_devices([], "GPU")  # not needed here, and a run may be using it
    images = read_images(dataset, options, reporter)
    shard_bytes = round(shard_mb * 1e6)
    settings = Settings(classes=images.class_names, label=images.label, shard_bytes=shard_bytes, seed=seed)
    plan = plan_shards(images.items, settings)
    _prepare(destination, plan)
    kept = _kept(destination, plan, reporter)
    missing = [index for index in range(len(plan.shards)) if index not in kept]
    _check_room(destination, plan, missing)
    _write(destination, plan, missing, reporter)
    schema = _schema(destination, plan, f"{dataset}: {images.place}", reporter)
    write_text(join(destination, SCHEMA_NAME), write_schema(schema))
    return {
        "destination": destination,
        "shards": len(plan.shards),
        "written": len(missing),
        "images": len(schema.labels),
        "bytes": sum(shard.bytes for shard in schema.shards),
        "classes": list(schema.classes),
        "class_counts": list(schema.class_counts),
        "left_out": images.left_out,
    }


def _prepare(destination: str, plan: ShardPlan) -> None:
    """Create the destination, or check that it was started with the same images."""
    manifest = join(destination, MANIFEST_NAME)
    try:
        tf.io.gfile.makedirs(destination)
        there = tf.io.gfile.listdir(destination)
    except tf.errors.OpError as error:
        raise ConsoleError(f"{destination} cannot be created or read: {error.message}.") from error
    if MANIFEST_NAME in there:
        if read_bytes(manifest).decode("utf-8", "replace") != plan.manifest:
            raise DataError(
                f"{destination} was started with other images or options.",
                remedy="Write to another folder, or delete this one and start again.",
            )
        return
    foreign = next((name for name in sorted(there) if name == SCHEMA_NAME or name.endswith(".tfrecord")), None)
    if foreign is not None:
        raise DataError(
            f"{destination} already contains {foreign} but no {MANIFEST_NAME}.", remedy="Write to another folder."
        )
    write_text(manifest, plan.manifest)


def _path(destination: str, plan: ShardPlan, index: int) -> str:
    return join(destination, shard_name(index, len(plan.shards)))


def _kept(destination: str, plan: ShardPlan, reporter: Reporter) -> set[int]:
    """Return the existing shards that are intact."""
    there = [index for index in range(len(plan.shards)) if tf.io.gfile.exists(_path(destination, plan, index))]
    on_image = _counter(reporter, "checking existing shards", sum(len(plan.shards[index]) for index in there))
    kept = set()
    for index in there:
        try:
            check_records(_path(destination, plan, index), plan.shards[index], on_image)
            kept.add(index)
        except DamagedShardError as error:
            reporter.note(f"{_path(destination, plan, index)} is damaged and will be written again: {error}.")
    return kept


def _check_room(destination: str, plan: ShardPlan, missing: list[int]) -> None:
    """Raise a `ConsoleError` if the disk has too little room; for a remote folder that is unknown."""
    if is_remote(destination):
        return
    needed = sum(item.bytes + _OVERHEAD_BYTES for index in missing for item in plan.shards[index])
    free = free_bytes(Path(destination))
    if free is not None and needed > free:
        raise ConsoleError(
            f"{destination} has {free / 1e9:.1f} GB free, and the shards need {needed / 1e9:.1f} GB.",
            remedy="Free space, or choose another folder.",
        )


def _write(destination: str, plan: ShardPlan, missing: list[int], reporter: Reporter) -> None:
    """Write the missing shards; an image counts half when it is written and half when it is read back."""
    total = sum(len(plan.shards[index]) for index in missing)
    on_image = _counter(reporter, "writing and reading back", total, share=2)
    for index in missing:
        write_shard(_path(destination, plan, index), plan.shards[index], on_image)
    # An interrupted conversion may have left partial files that this one did not write again.
    for name in tf.io.gfile.listdir(destination):
        if name.endswith(".tfrecord.part"):
            tf.io.gfile.remove(join(destination, name))


def _schema(destination: str, plan: ShardPlan, source: str, reporter: Reporter) -> Schema:
    settings = plan.settings
    shards: list[Shard] = []
    whole = sum(tf.io.gfile.stat(_path(destination, plan, index)).length for index in range(len(plan.shards)))
    for index, items in enumerate(plan.shards):
        with open_file(_path(destination, plan, index)) as stream:
            size, crc32 = checksum(stream)
        labels = tuple(item.class_number for item in items)
        shards.append(Shard(file=shard_name(index, len(plan.shards)), bytes=size, crc32=crc32, labels=labels))
        done = sum(shard.bytes for shard in shards)
        reporter.progress("computing checksums", done // 1_000_000, whole // 1_000_000, "MB")
    return Schema(
        version=VERSION,
        source=source,
        classes=settings.classes,
        label=settings.label,
        image_formats=dict(sorted(Counter(item.format for group in plan.shards for item in group).items())),
        features=features_of(settings.label, len(settings.classes)),
        seed=settings.seed,
        shards=tuple(shards),
    )


def _counter(reporter: Reporter, what: str, total: int, share: int = 1) -> Callable[[], None]:
    """Return a function that reports one more image; each of them calls it `share` times."""
    calls = count(1)
    return lambda: reporter.progress(what, next(calls) // share, total, "images")


@dataclass(frozen=True, slots=True)
class Look:
    """What the check of an image file found."""

    facts: ImageFacts
    bytes: int = 0
    crc32: int = 0


@dataclass(frozen=True, slots=True)
class Images:
    """The images to convert."""

    place: str
    items: list[Item]
    class_names: tuple[str, ...]  # names of the classes, by number
    label: str  # what their labels are: ``class`` or ``shares``
    left_out: int  # how many bad images there were


def read_images(dataset: str, options: dict[str, Any], reporter: Reporter) -> Images:
    """Read a dataset's table or folders, and check every image.

    Raises:
        DataError: The source cannot be read, or has bad images that may not be skipped.
    """
    kind = cast("ImageFilesKind[Any]", KINDS[dataset])
    source = kind.read_source(config_for(dataset, options), lambda _: None)
    if options.get("validation_path"):
        reporter.note("Images in data.options.validation_path are not converted: training splits the shards itself.")
    for notice in source.notices:
        reporter.note(notice)
    looks = check_all(look_at, source.paths, reporter)
    bad = [(name, look.facts.problem) for name, look in zip(source.names, looks, strict=True) if look.facts.problem]
    if bad:
        remedy = "Replace them, or leave them out with --skip-bad."
        reporter.note(refuse_bad(bad, len(looks), source.place, skip_bad=bool(options.get("skip_bad")), remedy=remedy))
    # Class numbers if each image has exactly one class, which works with every loss; else shares.
    is_shares = source.labels.ndim == 2 and not np.isin(source.labels, (0.0, 1.0)).all()
    labels = source.labels if is_shares else source.numbers
    items = [
        _item(name, look, label)
        for name, look, label in zip(source.names, looks, labels, strict=True)
        if not look.facts.problem
    ]
    return Images(source.place, items, source.class_names, "class" if labels.ndim == 1 else "shares", len(bad))


def look_at(path: str) -> Look:
    """Check an image file and decode it, so that everything in a shard can be read."""
    facts = check_image(path)
    if facts.problem:
        return Look(facts)
    try:
        content = read_bytes(path)
        if facts.decoder == "jpeg":
            tf.io.decode_jpeg(content, channels=3, ratio=8)  # reads all of it, with a fraction of the memory
        else:
            pixels(path)
    except (DataError, OSError, tf.errors.OpError) as error:
        return Look(replace(facts, problem=f"cannot be decoded: {one_line(error, 100)}"))
    return Look(facts, len(content), zlib.crc32(content))


def _item(name: str, look: Look, label: Any) -> Item:
    facts = look.facts
    return Item(
        name,
        facts.path,
        look.bytes,
        look.crc32,
        tuple(label.tolist()) if label.ndim else int(label),
        format="jpeg" if facts.decoder == "jpeg" else "png",
        is_recoded=facts.decoder == "pillow",
        orientation=facts.orientation,
    )


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
