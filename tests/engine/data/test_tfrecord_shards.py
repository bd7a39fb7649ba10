"""Which image goes into which shard, and the files that say so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import replace
from tpu_console.engine.data.images.check import ImageFacts
from tpu_console.engine.data.kinds.tfrecord import VERSION, Schema, Shard, read_schema, shard_name, write_schema
from tpu_console.engine.errors import DataError
from tpu_console.engine.jobs.tfrecord import Item, manifest_of, plan_shards

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS: dict[str, Any] = {"classes": ("a", "b", "c"), "label": "class", "shard_bytes": 1_000, "seed": 0}


def item(number: int, size: int = 100) -> Item:
    return Item(f"{number}.jpg", ImageFacts(f"/there/{number}.jpg"), size, number, number % 3)


def items(count: int = 40) -> list[Item]:
    return [item(number) for number in range(count)]


def planned(images: list[Item], **settings: Any) -> list[list[Item]]:
    values = SETTINGS | settings
    return plan_shards(images, values["shard_bytes"], values["seed"])


@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=60), st.integers(1, 5_000))
def test_every_image_is_in_exactly_one_shard_of_about_the_wanted_size(sizes: list[int], shard_bytes: int) -> None:
    images = [item(number, size) for number, size in enumerate(sizes)]
    plan = planned(images, shard_bytes=shard_bytes)
    assert sorted(image.name for shard in plan for image in shard) == sorted(image.name for image in images)
    assert all(plan)
    written = [item.bytes for shard in plan for item in shard]
    assert sorted(written) == sorted(sizes)
    share = sum(sizes) / max(1, round(sum(sizes) / shard_bytes))
    assert all(sum(image.bytes for image in shard) <= share + max(sizes) for shard in plan)


def test_the_plan_depends_on_the_seed_and_not_on_the_order_of_the_source() -> None:
    plan = planned(items())
    assert planned(items()[::-1]) == plan
    assert planned(items(), seed=1) != plan
    assert len(plan) == 4


def test_classes_are_mixed_before_they_are_dealt_out() -> None:
    images = [replace(item(number), name=f"{number % 3}/{number:03}.jpg") for number in range(300)]
    plan = planned(images, shard_bytes=3_000)
    assert len(plan) == 10
    assert all({image.class_number for image in shard} == {0, 1, 2} for shard in plan)


def changed(images: list[Item], number: int, **values: Any) -> list[Item]:
    return [replace(image, **values) if image.name == f"{number}.jpg" else image for image in images]


@pytest.mark.parametrize(
    ("images", "settings"),
    [
        (items()[:-1], SETTINGS),
        (changed(items(), 7, crc32=1), SETTINGS),
        (changed(items(), 7, label=2), SETTINGS),
        (items(), SETTINGS | {"seed": 3}),
        (items(), SETTINGS | {"classes": ("a", "b", "d")}),
    ],
)
def test_the_manifest_of_another_source_is_another(images: list[Item], settings: dict[str, Any]) -> None:
    other = manifest_of(plan_shards(images, settings["shard_bytes"], settings["seed"]), settings)
    first, turned = (manifest_of(planned(images), SETTINGS) for images in (items(), items()[::-1]))
    assert other != first == turned


def schema() -> Schema:
    labels = ((0, 1, 1), (2, 0))
    shards = tuple(
        Shard(file=shard_name(number, 2), bytes=1_000 + number, crc32=number, labels=own)
        for number, own in enumerate(labels)
    )
    return Schema(version=VERSION, source="a folder", classes=("a", "b", "c"), label="class", seed=0, shards=shards)


def test_a_schema_is_read_back_and_has_a_line_for_each_shard() -> None:
    text = write_schema(schema())
    assert read_schema(text, "schema.json") == schema()
    assert read_schema(text, "schema.json").labels == [0, 1, 1, 2, 0]
    assert json.loads(text)["class_counts"] == [2, 2, 1]
    assert sum(line.lstrip().startswith('{"file"') for line in text.splitlines()) == 2


def edited(change: Callable[[dict[str, Any]], object]) -> str:
    values = json.loads(write_schema(schema()))
    change(values)
    return json.dumps(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "invalid json"),
        (write_schema(schema())[:-30], "invalid json"),
        (edited(lambda values: values.update(version=2)), "version 2"),
        (edited(lambda values: values.pop("classes")), "classes: field required"),
        (edited(lambda values: values.update(label="words")), "label: "),
        (edited(lambda values: values["shards"][1].pop("file")), "shards.1.file: "),
        (edited(lambda values: values["shards"][1].update(labels=[2, 3])), "train-00001-of-00002.tfrecord has a label"),
    ],
)
def test_an_unusable_schema_is_explained(text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        read_schema(text, "/there/schema.json")
    assert message in str(caught.value)
    assert caught.value.what.startswith("/there/schema.json ")
    assert caught.value.remedy
