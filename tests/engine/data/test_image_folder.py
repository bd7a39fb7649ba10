"""One folder a class: what is a class, folders that cannot be used, and images that are refused or left out."""

import shutil
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from tests.helpers import all_of, has, run_host, small_config, the
from tests.images import damage_inside, smooth, write_bad, write_image_folder
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


def refusal(path: Path | str, **options: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        load(path, **options)
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
    options = {"validation_path": str(tmp_path / "val")}
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
