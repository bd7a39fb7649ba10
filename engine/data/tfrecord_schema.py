"""Plans image shards, and reads and writes the ``schema.json`` of a folder of them.

A shard is a TFRecord file of `tf.train.Example`: ``image``, the bytes of a JPEG or PNG; ``orientation``, as in EXIF;
``label``, a class number (int64) or a probability for each class (floats); ``name``, the file of the image. The schema
is written last, so a folder without one is unfinished. It has the class of every record, so that records can be counted
and split without reading them.
"""

from __future__ import annotations

import json
import random
import zlib
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import accumulate
from typing import BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import DataError
from .tables import first_of

VERSION = 1
LARGEST_SCHEMA = 1 << 30  # most bytes of a schema that are read; enough for ten million images
SCHEMA_NAME = "schema.json"

_CHUNK_BYTES = 1 << 20
_WRITE_AGAIN = "Write the shards again with `tpu-console tfrecord`."


class _Record(BaseModel):
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
    counts = Counter(labels)
    return tuple(counts[number] for number in range(classes))


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
    try:
        values = json.loads(text)
    except ValueError as error:
        raise DataError(f"{place} is damaged: it is not JSON ({error}).", remedy=_WRITE_AGAIN) from error
    if not isinstance(values, dict):
        raise DataError(f"{place} is damaged: it is not a JSON object.", remedy=_WRITE_AGAIN)
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


MANIFEST_NAME = "manifest.json"


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


@dataclass(frozen=True, slots=True)
class Settings:
    """What the shards depend on besides the images."""

    classes: tuple[str, ...]  # names of the classes in the order of their numbers
    label: str  # ``class`` or ``shares``
    shard_bytes: int  # intended size of a shard
    seed: int  # seed of the order of the images


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The images of each shard, in the order they are written.

    It depends only on the images, the seed and the shard size, and is saved beside the shards. So an interrupted
    conversion continues with the same shards, and a changed source is noticed.
    """

    settings: Settings
    shards: tuple[tuple[Item, ...], ...]


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


def write_manifest(plan: ShardPlan) -> str:
    """Return what a plan was made from as JSON, one image per line."""
    head = json.dumps({"version": VERSION, **asdict(plan.settings)}, indent=2).removesuffix("}").rstrip()
    items = [item for shard in plan.shards for item in shard]
    lines = (f"    {json.dumps([item.name, item.bytes, item.crc32, item.label])}" for item in items)
    return head + ',\n  "images": [\n' + ",\n".join(lines) + "\n  ]\n}\n"


def differences(manifest: str, place: str, plan: ShardPlan) -> list[str]:
    """Return how a source differs from the one in a manifest; empty if it does not.

    Raises:
        DataError: The manifest is damaged or of another version.
    """
    try:
        values = json.loads(manifest)
        if values["version"] != VERSION:
            raise DataError(
                f"{place} has version {values['version']}, not {VERSION}.", remedy="Write to another folder."
            )
        classes = tuple(str(name) for name in values["classes"])
        settings = Settings(classes, values["label"], values["shard_bytes"], values["seed"])
        images = {
            name: (size, crc, tuple(label) if isinstance(label, list) else label)
            for name, size, crc, label in values["images"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{place} is damaged.", why=f"{type(error).__name__}: {error}.", remedy="Delete the folder and start again."
        ) from error
    return [*_changed_settings(settings, plan.settings), *_changed_images(images, plan)]


def _changed_settings(then: Settings, now: Settings) -> list[str]:
    found = []
    if then.classes != now.classes:
        found.append(f"the classes were {', '.join(then.classes)} and are {', '.join(now.classes)}")
    if then.label != now.label:
        found.append(f"a label was a {then.label} and is a {now.label}")
    if then.shard_bytes != now.shard_bytes:
        found.append(f"the shard size was {then.shard_bytes / 1e6:g} MB and is {now.shard_bytes / 1e6:g} MB")
    if then.seed != now.seed:
        found.append(f"the seed was {then.seed} and is {now.seed}")
    return found


def _changed_images(then: dict[str, tuple[int, int, object]], plan: ShardPlan) -> list[str]:
    now = {item.name: (item.bytes, item.crc32, item.label) for shard in plan.shards for item in shard}
    both = [name for name in now if name in then]
    groups = {
        "new": [name for name in now if name not in then],
        "gone": [name for name in then if name not in now],
        "changed": [name for name in both if now[name][:2] != then[name][:2]],
        "labelled differently": [name for name in both if now[name][2] != then[name][2]],
    }
    return [
        f"{first_of(sorted(names), 3)} {'is' if len(names) == 1 else 'are'} {how}"
        for how, names in groups.items()
        if names
    ]
