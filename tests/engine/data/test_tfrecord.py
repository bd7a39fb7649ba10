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

from tests.helpers import all_of, run_host, small_config, the
from tests.images import PLANT_CLASSES, write_image_folder, write_plant_pathology
from tpu_console.engine.data.examples import Examples, Task
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.errors import DataError
from tpu_console.engine.jobs.tfrecord import convert_dataset
from tpu_console.engine.messages import Reporter
from tpu_console.engine.runs.events import DataReady, EpochEnded

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
    assert examples.train.element_spec == (
        tf.TensorSpec((32, 32, 3), tf.uint8),
        tf.TensorSpec((), tf.int32),
    )
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


def test_a_limit_on_training_examples_does_not_change_the_validation(shards: Path) -> None:
    limited = load(shards, data={"train_limit": 10})
    assert (len(pairs(limited.train)), limited.train_count) == (10, 10)
    assert pairs(limited.validation) == pairs(load(shards).validation)


def test_a_class_too_small_to_split_is_named(tmp_path: Path) -> None:
    flowers = write_image_folder(tmp_path / "flowers", per_class=6)
    for number in range(1, 6):
        (flowers / "rose" / f"rose_{number}.jpg").unlink()
    examples = load(convert(flowers, tmp_path / "shards"))
    assert [notice for notice in examples.notices if "'rose' has one example" in notice]
    assert [label for _, label in pairs(examples.train)].count(1) == 1


def test_images_are_resized_to_the_configured_size(shards: Path) -> None:
    options = {"path": str(shards), "image_size": [20, 40], "resize": "pad"}
    examples = load(shards, data={"options": options})
    image, _ = next(iter(examples.train))
    assert image.shape == (20, 40, 3)
    assert np.all(image.numpy()[:, :10] == 0)  # the black edge


def shares(tmp_path: Path) -> Path:
    table = write_plant_pathology(tmp_path / "plants", per_class=5)
    table.write_text(table.read_text().replace("Train_1,0,1,0,0", "Train_1,0.25,0.5,0.25,0"))
    return convert(table, tmp_path / "shards")


def test_shares_stay_shares(tmp_path: Path) -> None:
    examples = load(shares(tmp_path), loss="categorical_crossentropy")
    labels = np.array([label for _, label in examples.train.concatenate(examples.validation).as_numpy_iterator()])
    assert labels.shape == (20, 4)
    assert labels.dtype == np.float32
    assert examples.signature.task is Task.PROBABILITIES
    assert examples.class_names == PLANT_CLASSES
    assert sorted(map(tuple, labels))[0:1] == [(0, 0, 0, 1)]
    assert (labels == [0.25, 0.5, 0.25, 0]).all(axis=1).sum() == 1


def test_shares_are_refused_for_a_loss_that_wants_class_numbers(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"sparse_categorical_crossentropy' cannot learn") as caught:
        load(shares(tmp_path))
    assert caught.value.remedy == "Set loss = 'categorical_crossentropy'."


def shard(folder: Path, number: int = 1) -> Path:
    return sorted(folder.glob("*.tfrecord"))[number]


def spoil(folder: Path, how: str) -> str:
    """Damage a folder of shards; return what the error says then."""
    path = shard(folder)
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[:-10])
        return f"{path} is truncated: it has {len(content) - 10:,} bytes instead of {len(content):,}."
    if how == "longer":
        path.write_bytes(content + content)
        return f"{path} is changed: it has {2 * len(content):,} bytes instead of {len(content):,}."
    if how == "one bit":
        path.write_bytes(content[:500] + bytes([content[500] ^ 1]) + content[501:])
        return f"{path} was changed: its checksum differs from the one in schema.json."
    if how == "missing":
        path.unlink()
        return f"The shard {path} is missing."
    if how == "no schema":
        (folder / "schema.json").unlink()
        return f"The shards in {folder} are not finished: there is no schema.json."
    if how == "newer":
        (folder / "schema.json").write_text('{"version": 7, "colour": "red"}')
        return f"{folder}/schema.json has version 7; this tpu-console reads versions up to 1."
    if how == "not text":
        (folder / "schema.json").write_bytes(b"\xff\xfe")
        return f"{folder}/schema.json is damaged: it is not UTF-8 text."
    if how == "foreign":
        (folder / "schema.json").unlink()
        (folder / "manifest.json").unlink()
        return f"There is no schema.json in {folder}."
    folder.rename(folder.with_name("elsewhere"))
    return f"There is no folder {folder}."


@pytest.mark.parametrize(
    "how",
    ["truncated", "longer", "one bit", "missing", "no schema", "newer", "not text", "foreign", "moved"],
)
def test_damage_is_found_before_training_and_named(shards: Path, how: str) -> None:
    expected = spoil(shards, how)
    with pytest.raises(DataError) as caught:
        load(shards)
    assert caught.value.what == expected
    assert caught.value.remedy or how == "not text"


def test_damage_that_was_not_looked_for_ends_the_reading_and_names_the_shard(shards: Path) -> None:
    examples = load(shards)
    path = shard(shards)
    spoil(shards, "one bit")  # as in a bucket, of whose shards only the sizes are compared
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"The shard {path} is damaged"):
        pairs(examples.train)


@pytest.mark.slow
def test_a_small_model_learns_from_shards(shards: Path, tmp_path: Path) -> None:
    run = run_host(
        config(
            shards,
            model="cnn",
            model_options={"filters": [8]},
            batch_size=12,
            epochs=2,
            optimizer={"learning_rate": 0.01},
        ),
        tmp_path / "runs",
    )
    ready = the(run, DataReady)
    assert (ready.train_examples, ready.validation_examples, ready.classes) == (96, 24, 3)
    last = all_of(run, EpochEnded)[-1]
    assert last.logs["val_accuracy"] >= 0.9  # chance is a third
