"""Reads and writes the ``schema.json`` of a folder of image shards.

A shard is a TFRecord file of `tf.train.Example`: ``image``, the bytes of a JPEG or PNG; ``orientation``, as in EXIF;
``label``, a class number (int64) or a probability for each class (floats); ``name``, the file of the image. The schema
is written last, so a folder without one is unfinished. It has the class of every record, so that records can be counted
and split without reading them.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from typing import BinaryIO, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..errors import DataError

VERSION = 1
LARGEST_SCHEMA = 1 << 30  # most bytes of a schema that are read; enough for ten million images
SCHEMA_NAME, MANIFEST_NAME = "schema.json", "manifest.json"

_CHUNK_BYTES = 1 << 20
_WRITE_AGAIN = "Write the shards again with `tpu-console tfrecord`."


class Shard(BaseModel):
    """One shard file."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    file: str  # its name in the folder
    bytes: int
    crc32: int  # checksum of the whole file, as `zlib.crc32` computes it
    labels: tuple[int, ...]  # the class number of each record; with probabilities, that of the most probable class


class Schema(BaseModel):
    """The contents of a folder of shards."""

    model_config = ConfigDict(frozen=True)

    version: int = Field(le=VERSION)
    source: str  # a description of where the images come from
    classes: tuple[str, ...]  # names of the classes in the order of their numbers
    label: Literal["class", "shares"]  # whether a label is a class number or a probability for each class
    seed: int  # seed of the order of the images
    shards: tuple[Shard, ...]

    @property
    def labels(self) -> list[int]:
        """The class number of every record, in the order of the shards."""
        return [label for shard in self.shards for label in shard.labels]

    @property
    def class_counts(self) -> tuple[int, ...]:
        """The number of records of each class."""
        counts = Counter(self.labels)
        return tuple(counts[number] for number in range(len(self.classes)))

    @model_validator(mode="after")
    def _labels_are_classes(self) -> Self:
        for shard in self.shards:
            if not {*shard.labels} <= {*range(len(self.classes))}:
                raise ValueError(f"{shard.file} has a label that is none of its classes")
        return self


def shard_name(index: int, shards: int) -> str:
    """Return the name of a shard, such as ``train-00003-of-00012.tfrecord``."""
    return f"train-{index:05d}-of-{shards:05d}.tfrecord"


def checksum(stream: BinaryIO) -> tuple[int, int]:
    """Return the size and the `zlib.crc32` of the rest of an open file."""
    size = crc = 0
    while chunk := stream.read(_CHUNK_BYTES):
        size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return size, crc


def write_schema(schema: Schema) -> str:
    """Write a schema as JSON, with its counts: indented, but each shard on one line."""
    values = {**schema.model_dump(mode="json"), "total": len(schema.labels), "class_counts": schema.class_counts}
    shards = ",\n".join(f"    {json.dumps(shard)}" for shard in values.pop("shards"))
    return f'{json.dumps(values, indent=2).removesuffix("}").rstrip()},\n  "shards": [\n{shards}\n  ]\n}}\n'


def read_schema(text: str, place: str) -> Schema:
    """Read a schema; raise `DataError` if it is damaged or of a newer version."""
    try:
        return Schema.model_validate_json(text)
    except ValidationError as error:
        raise damaged(error, place, _WRITE_AGAIN) from error


def damaged(error: ValidationError, place: str, remedy: str) -> DataError:
    """Return the error that such a file is damaged, or of a newer version."""
    detail = error.errors(include_url=False)[0]
    field = ".".join(map(str, detail["loc"]))
    if field == "version" and isinstance(detail["input"], int):
        what = f"{place} has version {detail['input']}; this tpu-console reads versions up to {VERSION}."
        return DataError(what, remedy="Use the tpu-console that wrote it, or write the shards again with this one.")
    return DataError(f"{place} is damaged: {field}: {detail['msg'].lower()}.".replace(": : ", ": "), remedy=remedy)
