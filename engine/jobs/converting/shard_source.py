"""Reads the images and labels to convert, and checks every file."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ...data.images.check import ImageFacts, check_image, pixels
from ...data.images.parts import refuse_bad
from ...data.tfrecord.sharding import Item
from ...errors import DataError, one_line
from ..image_source import check_all, read_image_source
from .shard_files import read_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...data.images.examples import Source
    from ...messages import Reporter

_ANY_LABELS = "categorical_crossentropy"  # a loss that accepts both class numbers and shares


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
    source = read_image_source(dataset, options, _ANY_LABELS)
    if options.get("validation_path"):
        reporter.note("Images in data.options.validation_path are not converted: training splits the shards itself.")
    for notice in source.notices:
        reporter.note(notice)
    looks = check_all(look_at, source.paths, reporter)
    bad = [(name, look.facts.problem) for name, look in zip(source.names, looks, strict=True) if look.facts.problem]
    if bad:
        remedy = "Replace them, or leave them out with --skip-bad."
        reporter.note(refuse_bad(bad, len(looks), source.place, skip_bad=bool(options.get("skip_bad")), remedy=remedy))
    labels = _labels(source)
    items = [
        _item(name, look, label)
        for name, look, label in zip(source.names, looks, labels, strict=True)
        if not look.facts.problem
    ]
    return Images(source.place, items, source.class_names, "class" if labels.ndim == 1 else "shares", len(bad))


def _labels(source: Source) -> NDArray[Any]:
    """Return class numbers if each image has exactly one class, which works with every loss; else shares."""
    is_shares = source.labels.ndim == 2 and not np.isin(source.labels, (0.0, 1.0)).all()
    return source.labels if is_shares else source.numbers


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
