"""Converts an image dataset into shards, and resumes an interrupted conversion."""

from __future__ import annotations

import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import tensorflow as tf

from ..data.images.check import ImageFacts, check_all, check_image, open_file, pixels
from ..data.images.examples import refuse_bad
from ..data.kinds.table import KINDS
from ..data.places import is_remote, join
from ..data.survey.formats import config_for
from ..data.tfrecord_schema import (
    MANIFEST_NAME,
    SCHEMA_NAME,
    VERSION,
    Schema,
    Shard,
    checksum,
    features_of,
    shard_name,
    write_schema,
)
from ..errors import ConsoleError, DataError, one_line
from ..storage.disk_space import free_bytes
from .shard_files import DamagedShardError, check_records, read_bytes, write_shard, write_text
from .shard_plan import Item, Settings, ShardPlan, plan_shards

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..data.kinds.image_kind import ImageFilesKind
    from ..messages import Reporter


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
