"""Shards as a dataset: counts, the split, the order, damage that is found before training, training itself."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import small_config
from tests.images import PLANT_CLASSES, write_image_folder, write_plant_pathology
from tpu_console.engine.data.examples import Examples, Task
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.errors import DataError
from tpu_console.engine.jobs.tfrecord import convert_dataset
from tpu_console.engine.messages import Reporter

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.config.run_config import RunConfig

PER_CLASS = 40


def convert(source: Path, to: Path) -> Path:
    dataset = "image-csv" if source.suffix == ".csv" else "image-folder"
    convert_dataset(Reporter(io.StringIO()), dataset, {"path": str(source)}, str(to), 0.02)
    return to


@pytest.fixture(scope="module")
def flowers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_image_folder(tmp_path_factory.mktemp("images") / "flowers", per_class=PER_CLASS)


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


def test_both_parts_together_are_all_images_and_each_has_its_share_of_every_class(shards: Path) -> None:
    examples = load(shards)
    train, validation = pairs(examples.train), pairs(examples.validation)
    assert (len(train), len(validation)) == (examples.train_count, examples.validation_count) == (96, 24)
    assert (int(examples.train.cardinality()), int(examples.validation.cardinality())) == (96, 24)
    assert Counter(label for _, label in train) == {0: 32, 1: 32, 2: 32}
    assert Counter(label for _, label in validation) == {0: 8, 1: 8, 2: 8}
    assert len({image for image, _ in train + validation}) == 120
    assert examples.train.element_spec == (tf.TensorSpec((32, 32, 3), tf.uint8), tf.TensorSpec((), tf.int32))
    assert examples.signature.task is Task.CLASSES
    assert examples.signature.shape == (32, 32, 3)
    assert examples.class_names == ("daisy", "rose", "tulip")
    assert examples.record["class_counts"] == {"train": [32, 32, 32], "validation": [8, 8, 8]}
    assert json.loads(json.dumps(examples.record)) == examples.record


def test_the_order_never_changes_and_the_seed_decides_the_split(shards: Path) -> None:
    first = load(shards)
    assert pairs(first.train) == pairs(first.train) == pairs(load(shards).train)
    assert set(pairs(load(shards, seed=1).train)) != set(pairs(first.train))


def test_labels_belong_to_their_images(flowers: Path, shards: Path) -> None:
    files = sorted(flowers.glob("*/*.jpg"))
    decoded = {tf.io.decode_jpeg(path.read_bytes()).numpy().tobytes(): path.parent.name for path in files}
    examples = load(shards)
    found = pairs(examples.train) + pairs(examples.validation)
    assert {image: examples.class_names[label] for image, label in found} == decoded


def shares(tmp_path: Path) -> Path:
    table = write_plant_pathology(tmp_path / "plants", per_class=5)
    table.write_text(table.read_text().replace("Train_1,0,1,0,0", "Train_1,0.25,0.5,0.25,0"))
    return convert(table, tmp_path / "shards")


def test_shares_stay_shares_and_are_refused_for_a_loss_that_wants_class_numbers(tmp_path: Path) -> None:
    folder = shares(tmp_path)
    with pytest.raises(DataError, match="cannot learn"):
        load(folder)
    examples = load(folder, loss="categorical_crossentropy")
    labels = np.array([label for _, label in examples.train.concatenate(examples.validation).as_numpy_iterator()])
    assert labels.shape == (20, 4)
    assert labels.dtype == np.float32
    assert examples.signature.task is Task.PROBABILITIES
    assert examples.class_names == PLANT_CLASSES
    assert sorted(map(tuple, labels))[0:1] == [(0, 0, 0, 1)]
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
