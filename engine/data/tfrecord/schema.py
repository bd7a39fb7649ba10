"""Reads and writes the ``schema.json`` of a folder of image shards.

A shard is a TFRecord file of `tf.train.Example`: ``image``, the bytes of a JPEG or PNG; ``orientation``, as in EXIF;
``label``, a class number (int64) or a probability for each class (floats); ``name``, the file of the image. The schema
is written last, so a folder without one is unfinished. It has the class of every record, so that records can be counted
and split without reading them.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, BinaryIO, Literal

from pydantic import ConfigDict, ValidationError

from ...config.values import LazyModel
from ...errors import DataError

VERSION = 1
LARGEST_SCHEMA = 1 << 30  # most bytes of a schema that are read; enough for ten million images
SCHEMA_NAME = "schema.json"

_CHUNK_BYTES = 1 << 20
_WRITE_AGAIN = "Write the shards again with `tpu-console tfrecord`."


class _Record(LazyModel):
    model_config = ConfigDict(frozen=True)


class Shard(_Record):
    """One shard file."""

    file: str  # its name in the folder
    examples: int
    bytes: int
    crc32: int  # checksum of the whole file, as `zlib.crc32` computes it
    class_counts: tuple[int, ...]  # number of records of each class
    labels: tuple[int, ...]  # the class number of each record; with probabilities, that of the most probable class


class Schema(_Record):
    """The contents of a folder of shards."""

    version: int
    source: str  # a description of where the images come from
    classes: tuple[str, ...]  # names of the classes in the order of their numbers
    label: Literal["class", "shares"]  # whether a label is a class number or a probability for each class
    total: int
    class_counts: tuple[int, ...]
    image_formats: dict[str, int]  # number of images by format, such as ``jpeg``
    features: dict[str, str]  # type of each feature of a record
    seed: int  # seed of the order of the images
    shards: tuple[Shard, ...]

    @property
    def labels(self) -> list[int]:
        """The class number of every record, in the order of the shards."""
        return [label for shard in self.shards for label in shard.labels]


def shard_name(index: int, shards: int) -> str:
    """Return the name of a shard, such as ``train-00003-of-00012.tfrecord``."""
    return f"train-{index:05d}-of-{shards:05d}.tfrecord"


def checksum(stream: BinaryIO) -> tuple[int, int]:
    """Return the size and the `zlib.crc32` of the rest of an open file."""
    size = crc = 0
    while chunk := stream.read(_CHUNK_BYTES):
        size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return size, crc


def count_classes(labels: list[int] | tuple[int, ...], classes: int) -> tuple[int, ...]:
    """Count the records of each class."""
    counts = [0] * classes
    for label in labels:
        counts[label] += 1
    return tuple(counts)


def features_of(label: str, classes: int) -> dict[str, str]:
    """Return the types of a record's features, given the form of its label."""
    label_type = "int64" if label == "class" else f"float[{classes}]"
    return {"image": "bytes", "orientation": "int64", "label": label_type, "name": "bytes"}


def write_schema(schema: Schema) -> str:
    """Write a schema as JSON: indented, but each shard on one line."""
    values = schema.model_dump(mode="json")
    shards = ",\n".join(f"    {json.dumps(shard)}" for shard in values.pop("shards"))
    return f'{json.dumps(values, indent=2).removesuffix("}").rstrip()},\n  "shards": [\n{shards}\n  ]\n}}\n'


def read_schema(text: str, place: str) -> Schema:
    """Read a schema; raise `DataError` if it is damaged, inconsistent, or of a newer version."""
    values = _json_object(text, place)
    version = values.get("version")
    if isinstance(version, int) and version > VERSION:
        raise DataError(
            f"{place} has version {version}; this tpu-console reads versions up to {VERSION}.",
            remedy="Use the tpu-console that wrote the shards, or write them again with this one.",
        )
    try:
        schema = Schema.model_validate(values)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in detail["loc"])
        raise DataError(f"{place} is damaged: {field}: {detail['msg'].lower()}.", remedy=_WRITE_AGAIN) from error
    _check_sums(schema, place)
    return schema


def _json_object(text: str, place: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise DataError(f"{place} is damaged: it is not JSON ({error}).", remedy=_WRITE_AGAIN) from error
    if not isinstance(values, dict):
        raise DataError(f"{place} is damaged: it is not a JSON object.", remedy=_WRITE_AGAIN)
    return values


def _check_sums(schema: Schema, place: str) -> None:
    """Check that the counts in a schema agree, which may not be so after an edit."""
    classes = len(schema.classes)
    for shard in schema.shards:
        known = all(0 <= label < classes for label in shard.labels)
        if len(shard.labels) != shard.examples or not known:
            raise DataError(
                f"{place} is damaged: the labels of {shard.file} do not match its records.", remedy=_WRITE_AGAIN
            )
        if count_classes(shard.labels, classes) != shard.class_counts:
            raise DataError(
                f"{place} is damaged: the class counts of {shard.file} do not match its labels.", remedy=_WRITE_AGAIN
            )
    if count_classes(schema.labels, classes) != schema.class_counts or sum(schema.class_counts) != schema.total:
        raise DataError(f"{place} is damaged: its counts do not add up.", remedy=_WRITE_AGAIN)
