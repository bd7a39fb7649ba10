"""Shards of images: which image goes into which, the schema, and shards as a dataset, with damage that is named."""

import io
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import replace, small_config
from tests.images import PLANT_CLASSES, write_image_folder, write_plant_pathology
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.examples import Examples, Task
from tpu_console.engine.data.images.check import ImageFacts
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.data.kinds.tfrecord import VERSION, Schema, Shard, read_schema, shard_name, write_schema
from tpu_console.engine.errors import DataError
from tpu_console.engine.jobs.tfrecord import Item, convert_dataset, manifest_of, plan_shards
from tpu_console.engine.messages import Reporter


def convert(source: Path, to: Path) -> Path:
    dataset = "image-csv" if source.suffix == ".csv" else "image-folder"
    convert_dataset(Reporter(io.StringIO()), dataset, {"path": str(source)}, str(to), 0.02)
    return to


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_image_folder(tmp_path_factory.mktemp("images") / "flowers", per_class=40)


@pytest.fixture(scope="module")
def converted(flowers: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convert(flowers, tmp_path_factory.mktemp("converted") / "shards")


@pytest.fixture
def shards(converted: Path, tmp_path: Path) -> Path:
    """Shards that a test may damage."""
    return shutil.copytree(converted, tmp_path / "shards")


def config(shards: Path, **changes: Any) -> RunConfig:
    data = {"options": {"path": str(shards), "image_size": [32, 32]}, **changes.pop("data", {})}
    return small_config(dataset="tfrecord", data=data, **changes)


def load(shards: Path, **changes: Any) -> Examples:
    return load_examples(config(shards, **changes), lambda _: None)


def pairs(dataset: Any) -> list[tuple[bytes, int]]:
    """The pixels and the class of every example, in order."""
    return [(image.tobytes(), int(label)) for image, label in dataset.as_numpy_iterator()]


def test_both_parts_together_are_all_images_with_their_labels_and_the_seed_decides_the_split(
    flowers: Path, shards: Path
) -> None:
    examples = load(shards)
    train, validation = pairs(examples.train), pairs(examples.validation)
    assert (len(train), len(validation)) == (examples.train_count, examples.validation_count) == (96, 24)
    assert (int(examples.train.cardinality()), int(examples.validation.cardinality())) == (96, 24)
    assert Counter(label for _, label in train) == {0: 32, 1: 32, 2: 32}
    assert Counter(label for _, label in validation) == {0: 8, 1: 8, 2: 8}
    files = sorted(flowers.glob("*/*.jpg"))
    decoded = {tf.io.decode_jpeg(path.read_bytes()).numpy().tobytes(): path.parent.name for path in files}
    assert {image: examples.class_names[label] for image, label in train + validation} == decoded
    assert len(decoded) == 120
    assert pairs(load(shards).train) == train  # in the same order
    assert {*pairs(load(shards, seed=1).train)} != {*train}
    assert examples.train.element_spec == (tf.TensorSpec((32, 32, 3), tf.uint8), tf.TensorSpec((), tf.int32))
    assert (examples.signature.task, examples.signature.shape) == (Task.CLASSES, (32, 32, 3))
    assert examples.class_names == ("daisy", "rose", "tulip")
    assert examples.record["class_counts"] == {"train": [32, 32, 32], "validation": [8, 8, 8]}
    assert json.loads(json.dumps(examples.record)) == examples.record


def test_shares_stay_shares_and_are_refused_for_a_loss_that_wants_class_numbers(tmp_path: Path) -> None:
    table = write_plant_pathology(tmp_path / "plants", per_class=5)
    table.write_text(table.read_text().replace("Train_1,0,1,0,0", "Train_1,0.25,0.5,0.25,0"))
    folder = convert(table, tmp_path / "shards")
    with pytest.raises(DataError, match="cannot learn"):
        load(folder)
    examples = load(folder, loss="categorical_crossentropy")
    labels = np.array([label for _, label in examples.train.concatenate(examples.validation).as_numpy_iterator()])
    assert (labels.shape, labels.dtype.name) == ((20, 4), "float32")
    assert (examples.signature.task, examples.class_names) == (Task.PROBABILITIES, PLANT_CLASSES)
    assert min(map(tuple, labels)) == (0, 0, 0, 1)
    assert (labels == [0.25, 0.5, 0.25, 0]).all(axis=1).sum() == 1


def shard(folder: Path, number: int = 1) -> Path:
    return sorted(folder.glob("*.tfrecord"))[number]


def spoil(folder: Path, how: str) -> str:
    """Damage a folder of shards; return what the error says then."""
    path, schema = shard(folder), folder / "schema.json"
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[:-10])
        return f"{len(content) - 10:,} bytes instead of {len(content):,}"
    if how == "one bit":
        path.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
        return "checksum"
    if how == "missing":
        path.unlink()
        return str(path)
    if how == "newer":
        schema.write_text('{"version": 7, "colour": "red"}')
        return "version 7"
    schema.unlink()
    if how == "unfinished":
        return "continues"
    (folder / "manifest.json").unlink()
    return f"no schema.json in {folder}"


@pytest.mark.parametrize("how", ["truncated", "one bit", "missing", "unfinished", "newer", "foreign"])
def test_damage_is_found_before_training_and_named(shards: Path, how: str) -> None:
    expected = spoil(shards, how)
    with pytest.raises(DataError) as caught:
        load(shards)
    assert expected in str(caught.value)
    assert caught.value.remedy


def test_damage_that_was_not_looked_for_ends_the_reading_and_names_the_shard(shards: Path) -> None:
    examples = load(shards)
    path = shard(shards)
    spoil(shards, "one bit")  # as in a bucket, of whose shards only the sizes are compared
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"The shard {path} is damaged"):
        pairs(examples.train)


SETTINGS: dict[str, Any] = {"classes": ("a", "b", "c"), "label": "class", "shard_bytes": 1_000, "seed": 0}


def item(number: int, size: int = 100) -> Item:
    return Item(f"{number}.jpg", ImageFacts(f"/there/{number}.jpg"), size, number, number % 3)


ITEMS = [item(number) for number in range(40)]


@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=60), st.integers(1, 5_000))
def test_every_image_is_in_exactly_one_shard_of_about_the_wanted_size(sizes: list[int], shard_bytes: int) -> None:
    images = [item(number, size) for number, size in enumerate(sizes)]
    plan = plan_shards(images, shard_bytes, 0)
    assert sorted((image for shard in plan for image in shard), key=lambda image: image.crc32) == images
    assert all(plan)
    share = sum(sizes) / max(1, round(sum(sizes) / shard_bytes))
    assert all(sum(image.bytes for image in shard) <= share + max(sizes) for shard in plan)


def test_the_plan_depends_on_the_seed_and_not_on_the_order_of_the_source() -> None:
    plan = plan_shards(ITEMS, 1000, 0)
    assert plan_shards(ITEMS[::-1], 1000, 0) == plan
    assert plan_shards(ITEMS, 1000, 1) != plan
    assert len(plan) == 4


def test_classes_are_mixed_before_they_are_dealt_out() -> None:
    images = [replace(item(number), name=f"{number % 3}/{number:03}.jpg") for number in range(300)]
    plan = plan_shards(images, 3000, 0)
    assert len(plan) == 10
    assert all({image.class_number for image in shard} == {0, 1, 2} for shard in plan)


@pytest.mark.parametrize(
    ("images", "settings"),
    [
        (ITEMS[:-1], {}),
        ([replace(ITEMS[0], crc32=1), *ITEMS[1:]], {}),
        ([replace(ITEMS[0], label=2), *ITEMS[1:]], {}),
        (ITEMS, {"seed": 3}),
        (ITEMS, {"classes": ("a", "b", "d")}),
    ],
)
def test_the_manifest_of_another_source_is_another(images: list[Item], settings: dict[str, Any]) -> None:
    first, turned = (manifest_of(plan_shards(same, 1000, 0), SETTINGS) for same in (ITEMS, ITEMS[::-1]))
    values = SETTINGS | settings
    assert manifest_of(plan_shards(images, 1000, values["seed"]), values) != first == turned


SCHEMA = Schema(
    version=VERSION,
    source="a folder",
    classes=("a", "b", "c"),
    label="class",
    seed=0,
    shards=tuple(
        Shard(file=shard_name(number, 2), bytes=1_000 + number, crc32=number, labels=labels)
        for number, labels in enumerate([(0, 1, 1), (2, 0)])
    ),
)
TEXT = write_schema(SCHEMA)


def test_a_schema_is_read_back_and_has_a_line_for_each_shard() -> None:
    assert read_schema(TEXT, "schema.json") == SCHEMA
    assert SCHEMA.labels == [0, 1, 1, 2, 0]
    assert json.loads(TEXT)["class_counts"] == [2, 2, 1]
    assert sum(line.lstrip().startswith('{"file"') for line in TEXT.splitlines()) == 2


def edited(change: Callable[[dict[str, Any]], object]) -> str:
    values = json.loads(TEXT)
    change(values)
    return json.dumps(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "invalid json"),
        (TEXT[:-30], "invalid json"),
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
