"""Images in one folder a class or in a table: what is a class, what cannot be used, and bad images left out."""

import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.helpers import all_of, has, run_host, small_config, the
from tests.images import (
    BAD_FILES,
    PLANT_CLASSES,
    damage_inside,
    smooth,
    write_bad,
    write_image_folder,
    write_odd,
    write_plant_pathology,
)
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.examples import Examples, Task
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.errors import DataError
from tpu_console.engine.input.pipeline import Pipeline, build_pipeline
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.runs.control import Control
from tpu_console.engine.runs.events import DataReady, Event, FitStarted, Noticed, PhaseStarted, RunFinished, RunSource
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.training.train import train_and_report

DAMAGED = "is damaged: its header is valid, but it cannot be decoded"


def config(folder: Path | str, cache: str = "memory", **changes: Any) -> RunConfig:
    options = {"path": str(folder), "image_size": [16, 16], **changes.pop("options", {})}
    return small_config(dataset="image-folder", batch_size=4, data={"cache": cache, "options": options}, **changes)


def load(path: Path | str, **options: Any) -> Examples:
    return load_examples(config(path, options=options), print)


def refusal(path: Path | str, read: Callable[..., Examples] = load, **options: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        read(path, **options)
    return caught.value


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_each_folder_is_a_class(tmp_path: Path, scheme: str) -> None:
    examples = load(f"{scheme}{write_image_folder(tmp_path, per_class=5)}")
    assert (examples.train_count, examples.validation_count) == (12, 3)
    assert examples.signature.task is Task.CLASSES
    assert (examples.signature.shape, examples.signature.classes) == ((16, 16, 3), 3)
    assert examples.class_names == ("daisy", "rose", "tulip")
    assert examples.record["class_counts"] == {"train": [4, 4, 4], "validation": [1, 1, 1]}
    assert sorted(int(label) for _, label in examples.train) == [0] * 4 + [1] * 4 + [2] * 4


def test_images_of_all_formats_and_depths_are_read_and_other_files_ignored(tmp_path: Path) -> None:
    write_image_folder(tmp_path, ("a",), per_class=4)
    write_image_folder(tmp_path / "b", ("one", "two"), per_class=3, suffix=".png")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".cache").mkdir()
    smooth().save(tmp_path / ".cache" / "x.jpg")
    (tmp_path / "a" / "notes.txt").write_text("taken in May")
    (tmp_path / "a" / ".DS_Store").write_text("")
    (tmp_path / "labels.csv").write_text("")
    examples = load(tmp_path)
    assert examples.class_names == ("a", "b")
    assert examples.record["class_counts"] == {"train": [3, 5], "validation": [1, 1]}
    ignored, unused = examples.notices
    assert ignored.endswith(": a/notes.txt.")
    assert unused.endswith(": empty.")


def test_validation_images_can_have_a_separate_folder_of_the_same_classes(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "train", per_class=4)
    folder = write_image_folder(tmp_path / "val", ("daisy", "tulip"), per_class=2, seed=1)
    examples = load(tmp_path / "train", validation_path=str(folder))
    assert (examples.train_count, examples.validation_count) == (12, 4)
    assert examples.record["class_counts"] == {"train": [4, 4, 4], "validation": [2, 0, 2]}
    assert [int(label) for _, label in examples.validation] == [0, 0, 2, 2]
    (folder / "daisy").rename(folder / "daisies")
    error = refusal(tmp_path / "train", validation_path=str(folder))
    assert "'daisies'" in error.what
    assert "'daisy'?" in error.what


@pytest.mark.parametrize(
    ("content", "says", "remedy"),
    [
        (["a.jpg"], "no folders with images", "a folder for each class"),
        (["rose/a.jpg", "rose/b.jpg"], "one folder with images, 'rose'", "a folder for each class"),
        (["train/a.jpg", "Validation/a.jpg", "test/a.jpg"], "Validation, test, train", "validation_path"),
    ],
)
def test_a_folder_that_is_laid_out_otherwise_is_refused(
    tmp_path: Path, content: list[str], says: str, remedy: str
) -> None:
    for name in content:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        smooth().save(tmp_path / name)
    error = refusal(tmp_path)
    assert str(tmp_path) in error.what
    assert says in error.what
    assert remedy in error.remedy


def test_a_missing_folder_is_reported_with_its_option(tmp_path: Path) -> None:
    assert f"file://{tmp_path}/none" in refusal(f"file://{tmp_path}/none").what
    folder = write_image_folder(tmp_path / "here", per_class=2)
    assert "data.options.validation_path" in refusal(folder, validation_path="there").remedy


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_bad_file_is_named_or_left_out(tmp_path: Path, part: str) -> None:
    for place in ("train", "val"):
        write_image_folder(tmp_path / place, per_class=3)
    write_bad(tmp_path / part / "rose", "cut jpeg")
    options: dict[str, Any] = {"validation_path": str(tmp_path / "val")}
    assert refusal(tmp_path / "train", **options).what.startswith(f"1 of 10 images in {tmp_path}/{part} ")
    examples = load(tmp_path / "train", skip_bad=True, **options)
    assert (examples.train_count, examples.validation_count) == (9, 9)
    assert "rose/cut_jpeg.jpg" in examples.notices[0]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """24 images of three classes, two of them damaged inside."""
    folder = write_image_folder(tmp_path / "photos", per_class=8)
    for name in ("tulip/tulip_0.jpg", "rose/rose_3.jpg"):
        damage_inside(folder / name)
    return folder


def build(settings: RunConfig, folder: Path) -> Pipeline:
    """Build a pipeline as a run does."""
    examples = load_examples(settings, lambda _: None)
    if settings.data.options.get("skip_bad"):
        assert examples.without_damaged is not None
        examples = examples.without_damaged(lambda _: None)
    return build_pipeline(examples, settings, 1, cache_folder=folder / "cache")


def error_of_reading(pipeline: Pipeline) -> DataError:
    """Return the error of reading all batches as training does."""
    with pytest.raises(DataError) as caught, pipeline.reading(lambda _: None):
        list(pipeline.train.take(pipeline.steps_per_epoch + 1).concatenate(pipeline.validation))
    return caught.value


@pytest.mark.parametrize("cache", ["memory", "disk", "off"])
def test_damaged_images_are_counted_and_the_first_ten_named(tmp_path: Path, cache: str) -> None:
    folder = write_image_folder(tmp_path / "photos", per_class=14, suffix=".png" if cache == "disk" else ".jpg")
    for path in sorted((folder / "rose").iterdir())[:13]:
        damage_inside(path)
    error = error_of_reading(build(config(folder, cache), tmp_path))
    assert error.what.startswith(f"13 of 42 images in {folder} ")
    assert error.what.count(DAMAGED) == 10
    assert error.what.endswith("; and 3 more.")
    assert "data.options.skip_bad=true" in error.remedy


def test_damaged_images_are_left_out_if_allowed_and_all_counts_are_right(photos: Path) -> None:
    pipeline = build(config(photos, options={"skip_bad": True}), photos.parent)
    examples = pipeline.examples
    parts = [[int(label) for _, label in part] for part in (examples.train, examples.validation)]
    sizes = [len(labels) for labels in parts]
    assert sizes == [examples.train_count, examples.validation_count]
    assert sizes == [int(part.cardinality()) for part in (examples.train, examples.validation)]
    counts = examples.record["class_counts"]
    assert [[labels.count(number) for number in range(3)] for labels in parts] == [*counts.values()]
    assert [sum(both) for both in zip(*counts.values(), strict=True)] == [8, 7, 7]
    assert (pipeline.steps_per_epoch, pipeline.remainder) == divmod(sizes[0], 4)
    (notice,) = examples.notices
    assert notice.startswith(f"2 of 24 images in {photos} ")
    assert f"rose/rose_3.jpg {DAMAGED}; tulip/tulip_0.jpg {DAMAGED}" in notice


def test_nothing_is_decoded_again_after_the_first_epoch(photos: Path) -> None:
    """The files are gone by then."""
    settings = config(photos, "disk", options={"skip_bad": True}, augmentation={"flip": "horizontal"})
    pipeline = build(settings, photos.parent)
    batches = iter(pipeline.train)

    def epoch() -> tuple[int, int]:
        trained = sum(len(labels) for _, labels in islice(batches, pipeline.steps_per_epoch))
        return trained, sum(len(labels) for _, labels in pipeline.validation)

    first = epoch()
    next(batches)
    shutil.rmtree(photos)
    assert epoch() == first == (pipeline.steps_per_epoch * 4, pipeline.examples.validation_count)


def test_without_damage_the_examples_stay_the_same(photos: Path) -> None:
    settings = config(photos, options={"skip_bad": True})
    write_image_folder(photos, per_class=8)
    kept, plain = build(settings, photos.parent).examples, load_examples(settings, lambda _: None)
    for part, expected in ((kept.train, plain.train), (kept.validation, plain.validation)):
        for (image, label), (other, its_label) in zip(part, expected, strict=True):
            assert tf.reduce_all(image == other)
            assert (label.dtype, label.numpy()) == (its_label.dtype, its_label.numpy())


def test_nothing_but_damaged_images_is_refused_anyhow(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "photos", per_class=4)
    for path in folder.glob("*/*"):
        damage_inside(path)
    with pytest.raises(DataError, match=f"None of the 12 images in {folder} .*: daisy/daisy_0.jpg {DAMAGED}; "):
        build(config(folder, options={"skip_bad": True}), tmp_path)


def test_damaged_images_of_both_folders_are_left_out(photos: Path) -> None:
    others = write_image_folder(photos.parent / "others", per_class=2)
    damage_inside(others / "daisy" / "daisy_0.jpg")
    options = {"skip_bad": True, "validation_path": str(others)}
    examples = build(config(photos, options=options), photos.parent).examples
    assert (examples.train_count, examples.validation_count, len(examples.notices)) == (22, 5, 2)
    assert examples.record["left_out"] == {
        str(photos): ["rose/rose_3.jpg", "tulip/tulip_0.jpg"],
        str(others): ["daisy/daisy_0.jpg"],
    }


def test_a_file_that_goes_away_meanwhile_is_named_as_such(photos: Path) -> None:
    pipeline = build(config(photos), photos.parent)
    (photos / "daisy" / "daisy_5.jpg").unlink()
    what = error_of_reading(pipeline).what
    assert what.startswith("3 of 24 images")
    assert "daisy/daisy_5.jpg is not there; rose/rose_3.jpg is dam" in what


def test_an_error_that_is_no_damage_is_passed_on(tmp_path: Path) -> None:
    pipeline = build(config(write_image_folder(tmp_path / "photos", per_class=8)), tmp_path)
    with pytest.raises(tf.errors.ResourceExhaustedError), pipeline.reading(lambda _: None):
        raise tf.errors.ResourceExhaustedError(None, None, "no memory")


class StopsWhileChecking(JournalWriter):
    """A journal that asks the run to stop as soon as images are being checked."""

    control: Control

    def write(self, event: Event) -> None:
        super().write(event)
        if isinstance(event, PhaseStarted) and event.detail.startswith("checking"):
            self.control.stop("asked by a test")


def test_a_run_is_stopped_while_images_are_checked(photos: Path) -> None:
    settings = config(photos, "disk", options={"skip_bad": True})
    run = prepare_run(settings, photos.parent / "runs")
    journal = StopsWhileChecking(run.journal)
    journal.control = Control()
    assert train_and_report(run, settings, journal, journal.control, source=RunSource.IN_PROCESS)
    end = the(run, RunFinished)
    assert (end.outcome, "before training" in end.reason) == ("stopped", True)
    assert not has(run, DataReady)
    assert not run.cache.exists()


@pytest.mark.slow
def test_a_run_trains_without_damaged_images(photos: Path) -> None:
    run = run_host(config(photos, "disk", options={"skip_bad": True}, epochs=2), photos.parent / "runs")
    assert the(run, RunFinished).outcome == "completed"
    ready = the(run, DataReady)
    assert ready.train_examples is not None
    assert ready.validation_examples == 22 - ready.train_examples
    assert the(run, FitStarted).steps_per_epoch == ready.train_examples // 4
    assert any("2 of 24 images" in event.message for event in all_of(run, Noticed))
    assert not run.cache.exists()


SHARES = "categorical_crossentropy"


def load_table(path: Path | str, *, loss: str = "sparse_categorical_crossentropy", **options: Any) -> Examples:
    data = {"options": {"path": str(path), "image_size": [16, 24], **options}}
    return load_examples(small_config(dataset="image-csv", model="cnn", model_options={}, loss=loss, data=data), print)


def table(folder: Path, content: str, images: tuple[str, ...] = ("a", "b", "c", "d")) -> Path:
    """Write a table and the JPEGs it names."""
    (folder / "images").mkdir(exist_ok=True)
    for name in images:
        smooth().save(folder / "images" / f"{name}.jpg")
    path = folder / "train.csv"
    path.write_bytes(content.encode())
    return path


def all_labels(examples: Examples) -> list[Any]:
    parts = [examples.train, examples.validation]
    return sorted(label.tolist() for part in parts for _, label in part.as_numpy_iterator())


def test_one_hot_columns_are_shares_of_classes_and_the_record_has_what_prediction_needs(tmp_path: Path) -> None:
    examples = load_table(write_plant_pathology(tmp_path, per_class=10), loss=SHARES, resize="crop")
    assert (examples.train_count, examples.validation_count) == (32, 8)
    assert examples.signature.task is Task.PROBABILITIES
    assert (examples.signature.shape, examples.signature.classes) == ((16, 24, 3), 4)
    assert examples.class_names == PLANT_CLASSES
    image, label = next(iter(examples.train))
    assert (image.shape, image.dtype.name, label.dtype.name) == ((16, 24, 3), "uint8", "float32")
    assert sorted(label.numpy()) == [0, 0, 0, 1]
    assert examples.record == {
        "format": "image-csv",
        "image_size": [16, 24],
        "resize": "crop",
        "classes": list(PLANT_CLASSES),
        "pixel_range": 255,
        "class_counts": {"train": [8] * 4, "validation": [2] * 4},
        "id_column": "image_id",
        "label_columns": list(PLANT_CLASSES),
        "images": "images",
        "suffix": ".jpg",
    }


def test_a_table_on_another_file_system_is_read_through_tensorflow(tmp_path: Path) -> None:
    examples = load_table(f"file://{write_plant_pathology(tmp_path, per_class=3)}")
    assert (examples.train_count, len(list(examples.train))) == (8, 8)
    assert all_labels(examples) == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3  # class numbers, for a sparse loss
    assert "none.csv" in refusal(f"file://{tmp_path}/none.csv", load_table).what


def test_each_image_keeps_its_label(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number in range(20):
        smooth().point([255 * (number % 2)] * 768).save(tmp_path / "images" / f"{number}.png")
    rows = [f"{number},{'white' if number % 2 else 'black'}" for number in range(20)]
    (tmp_path / "train.csv").write_text("\n".join(["file,color", *rows]))
    examples = load_table(tmp_path / "train.csv")
    assert examples.class_names == ("black", "white")
    pairs = [*examples.train.as_numpy_iterator(), *examples.validation.as_numpy_iterator()]
    assert len(pairs) == 20
    assert all(image.min() == image.max() == 255 * label for image, label in pairs)


@pytest.mark.parametrize("suffix", [".JPG", ".webp"])
def test_names_are_found_with_and_without_their_ending(tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "images" / "more"
    folder.mkdir(parents=True)
    for name in "abcd":
        smooth().save(folder / f"{name}{suffix}")
    path = tmp_path / "train.csv"
    path.write_text(f"id,label\nmore/a,x\nmore/b{suffix},y\nmore/c,x\nmore/d,y\n")
    examples = load_table(path)
    assert examples.train_count == 2
    assert examples.record["suffix"] == suffix


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (
            "label,file,source\n9,a.jpg,web\n10,b.jpg,web\n9,c.jpg,book\n10,d.jpg,web\n",
            {"inputs": "file", "label": ["label"]},
        ),
        ("\ufeffid, label\r\na, 9\r\n\r\nb, 10\r\nc, 9 \r\nd,10\r\n\r\n", {}),
    ],
)
def test_columns_can_be_chosen_and_crlf_a_bom_blank_lines_and_spaces_are_accepted(
    tmp_path: Path, content: str, options: dict[str, Any]
) -> None:
    examples = load_table(table(tmp_path, content), **options)
    assert examples.class_names == ("9", "10")  # in the order of their values
    assert all_labels(examples) == [0, 0, 1, 1]
    assert examples.record["suffix"] == ("" if options else ".jpg")


def test_classes_can_be_given_in_their_order(tmp_path: Path) -> None:
    path = table(tmp_path, "id,label\na,x\nb,y\nc,x\nd,y\n")
    examples = load_table(path, classes=["z", "y", "x"])
    assert all_labels(examples) == [1, 1, 2, 2]
    (notice,) = examples.notices
    assert "'z'" in notice
    what = refusal(path, load_table, classes=["xx", "y"]).what
    assert what.startswith(f"{path}, 2 lines: 2, 4: ")
    assert "'xx'?" in what


def test_shares_are_kept_for_a_loss_that_can_learn_them(tmp_path: Path) -> None:
    path = table(tmp_path, "id,x,y\na,0.25,0.75\nb,1,0\nc,0.5,0.5\nd,0,1\n")
    assert all_labels(load_table(path, loss=SHARES)) == [[0, 1], [0.25, 0.75], [0.5, 0.5], [1, 0]]
    assert SHARES in refusal(path, load_table).remedy


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("id\na\nb\n", "has no label column besides 'id'"),
        ("id,label\na,x\nb,\nc,y\nd,NaN\n", "2 lines: 3, 5: nothing in column 'label'"),
        ("id,label\na,x\n,y\n", "line 3: nothing in column 'id'"),
        ("id,label\na,x\n\na,y\nb,x\n", "line 4: an image that an earlier line names too, such as 'a'"),
        ("id,label\na,x\nb,x\n", "every label in column 'label' is 'x'"),
        ("id,x,y\na,1,0\nb,,1\n", "line 3: nothing in column 'x'"),
        ("id,x,y\na,1,0\nb,yes,1\n", "line 3: 'yes' in column 'x' is not a probability between 0 and 1"),
        ("id,x,y\na,1,0\nb,1,1\n", "line 3: the probabilities of the classes add up to 2, not 1"),
    ],
)
def test_a_table_that_cannot_be_used_is_named_with_the_line(tmp_path: Path, content: str, said: str) -> None:
    path = table(tmp_path, content)
    error = refusal(path, load_table)
    assert str(path) in error.what
    assert said in error.what
    assert "\n" not in error.what


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"inputs": "imageid"}, "has no column 'imageid'; did you mean 'image_id'?"),
        ({"label": ["rusty"]}, "has no label column 'rusty'; did you mean 'rust'?"),
        ({"label": ["image_id"]}, "has no label column 'image_id'; valid: healthy,"),
        ({"images": "pictures"}, "There is no folder of images (pictures) "),
        ({"classes": ["a", "b"]}, "data.options.classes needs one label column"),
    ],
)
def test_options_that_do_not_fit_the_table_name_the_nearest(tmp_path: Path, options: Any, said: str) -> None:
    assert said in refusal(write_plant_pathology(tmp_path, per_class=1), load_table, **options).what


def test_bad_images_are_refused_with_their_reasons_or_skipped_and_reported(tmp_path: Path) -> None:
    bad = [write_bad(tmp_path / "images", kind).name for kind in BAD_FILES]
    good = [write_odd(tmp_path / "images", kind).name for kind in ("jpeg", "turned jpeg", "rgba png", "bmp")]
    rows = [f"{name},{'xy'[number % 2]}" for number, name in enumerate([*good, *bad])]
    path = table(tmp_path, "\n".join(["id,label", *rows]), images=())
    error, counts = refusal(path, load_table), f"{len(bad)} of {len(bad) + 4} images in {tmp_path}/images "
    assert error.what.startswith(counts)
    assert "empty.jpg is empty; text.jpg is not" in error.what
    assert "skip_bad" in error.remedy
    examples = load_table(path, skip_bad=True)
    assert all_labels(examples) == [0, 0, 1, 1]
    (notice,) = examples.notices
    assert notice.startswith(counts)
