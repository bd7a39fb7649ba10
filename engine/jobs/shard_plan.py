"""Plans image shards: which image goes into which, so that an interrupted conversion can go on."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from ..data.tfrecord_schema import VERSION, Record


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
