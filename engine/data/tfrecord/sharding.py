"""Decides which image goes into which shard, before anything is written.

The plan depends only on the images, the seed and the shard size, and is saved beside the shards. So an interrupted
conversion continues with the same shards, and a changed source is noticed.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from itertools import accumulate

from ...errors import DataError
from ..plain_text import first_of
from .schema import VERSION

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
    """The images of each shard, in the order they are written."""

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
