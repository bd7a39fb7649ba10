"""Converting images into shards: what is written, interrupts, full disks, sources that change, bad images."""

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.images import BAD_FILES, ODD_FILES, write_bad, write_image_folder, write_odd, write_plant_pathology
from tests.small_disk import small_disk
from tpu_console.engine.data.images.check import check_image
from tpu_console.engine.data.images.examples import Decoding, decode_bytes, decoded
from tpu_console.engine.data.kinds.tfrecord import open_schema, shard_name
from tpu_console.engine.errors import ConsoleError, DataError
from tpu_console.engine.jobs.tfrecord import convert_dataset
from tpu_console.engine.messages import Reporter

SHARD_MB = 0.02
DECODING = Decoding((40, 60))


class Listener(Reporter):
    """Records what a job reports, and interrupts it when it is so far with something."""

    def __init__(self, until: tuple[str, int] | None = None) -> None:
        super().__init__(io.StringIO())
        self.notes: list[str] = []
        self.steps: list[tuple[str, int, int | None]] = []
        self._until = until

    def progress(self, what: str, done: int, total: int | None, unit: str) -> None:
        self.steps.append((what, done, total))
        if self._until == (what, done):
            raise KeyboardInterrupt

    def note(self, text: str) -> None:
        self.notes.append(text)


def convert(
    source: Path, to: Path | str, reporter: Reporter | None = None, shard_mb: float = SHARD_MB, **options: Any
) -> dict[str, Any]:
    dataset = "image-csv" if source.suffix == ".csv" else "image-folder"
    return convert_dataset(reporter or Listener(), dataset, {"path": str(source), **options}, str(to), shard_mb)


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def records(folder: Path) -> Iterator[Any]:
    """Every record of a folder's shards, in their order."""
    for shard in open_schema(str(folder)).shards:
        for raw in tf.data.TFRecordDataset(str(folder / shard.file)).as_numpy_iterator():
            yield tf.train.Example.FromString(raw).features.feature


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    return write_image_folder(tmp_path / "flowers", per_class=20)


@pytest.fixture
def once(flowers: Path, tmp_path: Path) -> dict[str, bytes]:
    """What converting without interruption writes."""
    convert(flowers, tmp_path / "once")
    return content(tmp_path / "once")


def test_shards_hold_the_files_own_bytes_and_the_schema_says_what_there_is(flowers: Path, tmp_path: Path) -> None:
    listener = Listener()
    result = convert(flowers, tmp_path / "shards", listener)
    schema = open_schema(str(tmp_path / "shards"))
    files = sorted(path.name for path in (tmp_path / "shards").iterdir())
    assert len(schema.shards) == 3
    assert files == ["manifest.json", "schema.json", *(shard_name(number, 3) for number in range(3))]
    assert (schema.classes, schema.class_counts, len(schema.labels)) == (("daisy", "rose", "tulip"), (20, 20, 20), 60)
    assert (schema.label, schema.version) == ("class", 1)
    assert schema.source == f"image-folder: {flowers}"
    assert all((tmp_path / "shards" / shard.file).stat().st_size == shard.bytes for shard in schema.shards)
    counts = {"shards": 3, "written": 3, "images": 60, "left_out": 0, "class_counts": [20, 20, 20]}
    counts["bytes"] = sum(shard.bytes for shard in schema.shards)
    assert result == counts | {"destination": str(tmp_path / "shards"), "classes": ["daisy", "rose", "tulip"]}
    names = []
    for features, label in zip(records(tmp_path / "shards"), schema.labels, strict=True):
        name = features["name"].bytes_list.value[0].decode()
        names.append(name)
        assert features["image"].bytes_list.value[0] == (flowers / name).read_bytes()
        assert list(features["label"].int64_list.value) == [label]
        assert schema.classes[label] == name.partition("/")[0]
    assert len(set(names)) == 60
    assert names != sorted(names)  # mixed
    assert {what for what, *_ in listener.steps} == {"checking images", "writing shards", "computing checksums"}


def test_a_share_for_each_class_stays_one(tmp_path: Path) -> None:
    table = write_plant_pathology(tmp_path / "plants", per_class=3)
    table.write_text(table.read_text().replace("Train_1,0,1,0,0", "Train_1,0.1,0.7,0.2,0"))
    convert(table, tmp_path / "shards")
    schema = open_schema(str(tmp_path / "shards"))
    assert (schema.label, schema.class_counts) == ("shares", (3, 3, 3, 3))
    found = list(records(tmp_path / "shards"))
    labels = {one["name"].bytes_list.value[0]: list(one["label"].float_list.value) for one in found}
    assert labels[b"Train_0"] == [1, 0, 0, 0]
    assert labels[b"Train_1"] == pytest.approx([0.1, 0.7, 0.2, 0])
    assert convert(table, tmp_path / "shards")["written"] == 0


def test_every_kind_of_image_is_the_same_in_a_shard_and_in_its_file(tmp_path: Path) -> None:
    kinds = [kind for kind in ODD_FILES if kind != "moving gif"]
    paths = {str(write_odd(tmp_path / "photos" / ("a", "b")[number % 2], kind)) for number, kind in enumerate(kinds)}
    convert(tmp_path / "photos", tmp_path / "shards")
    facts = [check_image(path) for path in sorted(paths)]
    expected = dict(zip(sorted(paths), decoded(facts, DECODING).as_numpy_iterator(), strict=True))
    found = 0
    for features in records(tmp_path / "shards"):
        path = str(tmp_path / "photos" / features["name"].bytes_list.value[0].decode())
        orientation = features["orientation"].int64_list.value[0]
        image = decode_bytes(tf.constant(features["image"].bytes_list.value[0]), DECODING, tf.constant(orientation))
        np.testing.assert_array_equal(image, expected[path], err_msg=path)
        found += 1
    assert found == len(kinds)


@pytest.mark.parametrize(
    "until", [("checking images", 30), ("writing shards", 7), ("writing shards", 33), ("computing checksums", 0)]
)
def test_interrupted_and_started_again_it_writes_the_same_bytes(
    flowers: Path, tmp_path: Path, once: dict[str, bytes], until: tuple[str, int]
) -> None:
    folder = tmp_path / "shards"
    with pytest.raises(KeyboardInterrupt):
        convert(flowers, folder, Listener(until))
    left = content(folder) if folder.exists() else {}
    assert "schema.json" not in left
    assert {name: once[name] for name in left} == left  # whatever is there is whole
    folder.mkdir(exist_ok=True)
    for name in (*(shard_name(number, 3) for number in range(3)), "schema.json"):  # as a power cut leaves them
        (folder / f"{name}.part").write_bytes(b"{")
    result = convert(flowers, folder)
    assert content(folder) == once
    assert result["written"] == 3 - sum(name.endswith(".tfrecord") for name in left)


def test_a_source_that_changed_another_size_and_shards_of_unknown_origin_are_refused(
    flowers: Path, tmp_path: Path, once: dict[str, bytes]
) -> None:
    with pytest.raises(DataError, match="other images or options"):
        convert(flowers, tmp_path / "once", shard_mb=0.03)
    shutil.copy(flowers / "rose" / "rose_1.jpg", flowers / "rose" / "rose_2.jpg")
    with pytest.raises(DataError, match="other images or options"):
        convert(flowers, tmp_path / "once")
    assert content(tmp_path / "once") == once
    for name in ("schema.json", "train-00000-of-00001.tfrecord"):
        (folder := tmp_path / f"with {name}").mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(DataError, match=f"already contains {name}"):
            convert(flowers, folder)
        assert content(folder) == {name: b"mine"}


def test_a_device_without_room_is_reported_as_full(flowers: Path, tmp_path: Path, once: dict[str, bytes]) -> None:
    folder = tmp_path / "shards"
    folder.mkdir()
    (folder / f"{shard_name(1, 3)}.part").symlink_to("/dev/full")
    with pytest.raises(ConsoleError) as caught:
        convert(flowers, folder)
    assert caught.value.what.startswith(f"{folder}/{shard_name(1, 3)} ")
    assert "disk is full" in caught.value.what
    assert "complete shards" in caught.value.remedy
    assert sorted(content(folder)) == ["manifest.json", shard_name(0, 3)]
    convert(flowers, folder)
    assert content(folder) == once


def test_a_folder_that_cannot_be_made_and_too_little_room_are_found_before_anything_is_written(
    flowers: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConsoleError, match=f"^{tmp_path}/file/shards cannot be created"):
        convert(flowers, tmp_path / "file" / "shards")
    (tmp_path / "disk").mkdir()
    with small_disk(tmp_path / "disk", "32k") as disk:
        with pytest.raises(ConsoleError, match=r"has 0\.0 GB free"):
            convert(flowers, disk.path / "shards")
        assert sorted(content(disk.path / "shards")) == ["manifest.json"]


def test_bad_images_are_named_and_refused_or_left_out(flowers: Path, tmp_path: Path) -> None:
    for kind in BAD_FILES:
        write_bad(flowers / "rose", kind)
    photo = flowers / "rose" / "rose_3.jpg"
    whole = photo.read_bytes()
    photo.write_bytes(whole[: len(whole) // 2] + whole[-2:])  # its end looks right
    with pytest.raises(DataError) as caught:
        convert(flowers, tmp_path / "shards")
    assert f"{len(BAD_FILES) + 1} of {61 + len(BAD_FILES) - 1} images" in caught.value.what
    assert not (tmp_path / "shards").exists()
    listener = Listener()
    result = convert(flowers, tmp_path / "shards", listener, skip_bad=True)
    assert (result["left_out"], result["class_counts"]) == (len(BAD_FILES) + 1, [20, 19, 20])
    assert any(": rose/" in note for note in listener.notes)
    assert json.loads((tmp_path / "shards" / "schema.json").read_text())["total"] == 59


def test_a_remote_folder_is_written_and_gone_on_with(flowers: Path) -> None:
    place = "ram://bucket/shards"  # of TensorFlow's file systems the one that needs no network
    with pytest.raises(KeyboardInterrupt):
        convert(flowers, place, Listener(("writing shards", 33)))
    assert convert(flowers, place)["written"] == 2
    schema = open_schema(place)
    assert len(schema.labels) == 60
    assert sorted(tf.io.gfile.listdir(place)) == ["manifest.json", "schema.json", *(s.file for s in schema.shards)]
