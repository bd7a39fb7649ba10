"""Images are decoded once, in the first epoch; if damaged ones are left out, all are decoded before it too."""

from __future__ import annotations

import shutil
from itertools import islice
from typing import TYPE_CHECKING, Any

import pytest
import tensorflow as tf

from tests.helpers import all_of, has, run_host, small_config, the
from tests.images import damage_inside, write_image_folder
from tpu_console.engine.data.images import check
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.errors import DataError
from tpu_console.engine.input.pipeline import Pipeline, build_pipeline
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.runs.control import Control
from tpu_console.engine.runs.events import DataReady, Event, FitStarted, Noticed, PhaseStarted, RunFinished, RunSource
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.training.train import train_and_report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tpu_console.engine.config.run_config import RunConfig

WHY = "is damaged: its header is valid, but it cannot be decoded"


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """24 images of three classes, two of them damaged inside."""
    folder = write_image_folder(tmp_path / "photos", per_class=8)
    for name in ("tulip/tulip_0.jpg", "rose/rose_3.jpg"):
        damage_inside(folder / name)
    return folder


def config(folder: Path, cache: str = "memory", skip_bad: bool = False, **changes: Any) -> RunConfig:
    options = {"path": str(folder), "image_size": [16, 16], "skip_bad": skip_bad}
    data = {"cache": cache, "options": options | changes.pop("options", {}), "validation_fraction": 0.25}
    return small_config(**{"dataset": "image-folder", "data": data, "batch_size": 4} | changes)


def build(settings: RunConfig, folder: Path, on_decoding: Callable[[str], None] = lambda _: None) -> Pipeline:
    """Build a pipeline as a run does."""
    examples = load_examples(settings, lambda _: None)
    if settings.data.options["skip_bad"]:
        assert examples.without_damaged is not None
        examples = examples.without_damaged(on_decoding)
    return build_pipeline(examples, settings, 1, cache_folder=folder / "cache")


def refusal(settings: RunConfig, folder: Path) -> DataError:
    """Return the error of reading the batches as training does."""
    with pytest.raises(DataError) as caught:
        read(build(settings, folder))
    return caught.value


def read(pipeline: Pipeline) -> None:
    """Read all examples once and a few again."""
    with pipeline.reading(lambda _: None):
        list(pipeline.train.take(pipeline.steps_per_epoch + 1))
        list(pipeline.validation)


@pytest.mark.parametrize("cache", ["memory", "disk", "off"])
def test_damaged_images_are_counted_and_the_first_ten_named(tmp_path: Path, cache: str) -> None:
    folder = write_image_folder(tmp_path / "photos", per_class=14, suffix=".png" if cache == "disk" else ".jpg")
    for path in sorted((folder / "rose").iterdir())[:13]:
        damage_inside(path)
    error = refusal(config(folder, cache), tmp_path)
    assert error.what.startswith(f"13 of 42 images in {folder} cannot be used: rose/rose_0.")
    assert error.what.count(WHY) == 10
    assert error.what.endswith("; and 3 more.")
    assert "data.options.skip_bad=true" in error.remedy


def test_damaged_images_are_left_out_if_allowed_and_all_counts_are_right(photos: Path) -> None:
    pipeline = build(config(photos, skip_bad=True), photos.parent)
    examples = pipeline.examples
    assert (examples.train_count or 0) + (examples.validation_count or 0) == 22
    train, validation = (sorted(int(label) for _, label in part) for part in (examples.train, examples.validation))
    counts = examples.record["class_counts"]
    assert [[labels.count(number) for number in range(3)] for labels in (train, validation)] == list(counts.values())
    assert [sum(both) for both in zip(*counts.values(), strict=True)] == [8, 7, 7]
    assert (pipeline.steps_per_epoch, pipeline.remainder) == divmod(len(train), 4)
    assert [int(tf.data.experimental.cardinality(part)) for part in (examples.train, examples.validation)] == [
        len(train),
        len(validation),
    ]
    (notice,) = [text for text in examples.notices if "left out" in text]
    assert notice == f"2 of 24 images in {photos} are left out: rose/rose_3.jpg {WHY}; tulip/tulip_0.jpg {WHY}."


def test_nothing_is_decoded_again_after_the_first_epoch(photos: Path) -> None:
    """The files are gone by then."""
    pipeline = build(config(photos, "disk", skip_bad=True, augmentation={"flip": "horizontal"}), photos.parent)
    batches = iter(pipeline.train)

    def epoch() -> tuple[int, int]:
        trained = sum(len(labels) for _, labels in islice(batches, pipeline.steps_per_epoch))
        return trained, sum(len(labels) for _, labels in pipeline.validation)

    first = epoch()
    next(batches)
    shutil.rmtree(photos)
    assert epoch() == first == (pipeline.steps_per_epoch * 4, pipeline.examples.validation_count)


def test_the_decoded_images_equal_the_files(photos: Path) -> None:
    settings = config(photos, skip_bad=True)
    shutil.rmtree(photos)
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
    error = refusal(config(folder, skip_bad=True), tmp_path)
    assert error.what.startswith(f"None of the 12 images in {folder} can be used: daisy/daisy_0.jpg {WHY}; ")
    assert error.remedy == "Replace them."


def test_damaged_images_of_both_folders_are_left_out(photos: Path) -> None:
    others = write_image_folder(photos.parent / "others", per_class=2)
    damage_inside(others / "daisy" / "daisy_0.jpg")
    examples = build(config(photos, skip_bad=True, options={"validation_path": str(others)}), photos.parent).examples
    assert (examples.train_count, examples.validation_count) == (22, 5)
    assert examples.record["left_out"] == {
        str(photos): ["rose/rose_3.jpg", "tulip/tulip_0.jpg"],
        str(others): ["daisy/daisy_0.jpg"],
    }
    assert len(examples.notices) == 2


def test_a_file_that_goes_away_meanwhile_is_named_as_such(photos: Path) -> None:
    settings = config(photos)
    pipeline = build(settings, photos.parent)
    (photos / "daisy" / "daisy_5.jpg").unlink()
    why = r"3 of 24 images .*: daisy/daisy_5\.jpg is not there; rose/rose_3\.jpg is dam"
    with pytest.raises(DataError, match=why):
        read(pipeline)


def test_an_error_that_is_no_damage_is_passed_on(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "photos", per_class=8)
    pipeline = build(config(folder), tmp_path)
    with pytest.raises(tf.errors.ResourceExhaustedError), pipeline.reading(lambda _: None):
        raise tf.errors.ResourceExhaustedError(None, None, "no memory")


def test_progress_is_reported_and_its_exception_ends_the_pass(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    build(config(photos, skip_bad=True), photos.parent, told.append)
    assert told == ["decoding 24 images"]
    monkeypatch.setattr(check, "_REPORT_EVERY_S", -1.0)
    told.clear()
    build(config(photos, skip_bad=True), photos.parent, told.append)
    assert told[1:] == [f"decoding images: {done} of 24" for done in range(1, 25)]

    def stop(_: str) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        build(config(photos, skip_bad=True), photos.parent, stop)


class StopsWhileDecoding(JournalWriter):
    """A journal that asks the run to stop as soon as it hears that images are being decoded."""

    control: Control

    def write(self, event: Event) -> None:
        super().write(event)
        if isinstance(event, PhaseStarted) and event.detail.startswith("decoding"):
            self.control.stop("asked by a test")


def test_a_run_is_stopped_while_images_are_decoded(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "_REPORT_EVERY_S", -1.0)
    settings = config(photos, "disk", skip_bad=True)
    run = prepare_run(settings, photos.parent / "runs")
    journal = StopsWhileDecoding(run.journal)
    journal.control = Control()
    assert train_and_report(run, settings, journal, journal.control, source=RunSource.IN_PROCESS)
    end = the(run, RunFinished)
    assert (end.outcome, "before training" in end.reason) == ("stopped", True)
    assert not has(run, DataReady)
    assert not run.cache.exists()


@pytest.mark.slow
def test_a_run_trains_without_damaged_images(photos: Path) -> None:
    settings = config(photos, "disk", skip_bad=True, batch_size=4, epochs=2)
    run = run_host(settings, photos.parent / "runs")
    assert the(run, RunFinished).outcome == "completed"
    ready = the(run, DataReady)
    assert ready.train_examples is not None
    assert ready.validation_examples == 22 - ready.train_examples
    assert the(run, FitStarted).steps_per_epoch == ready.train_examples // 4
    assert any("2 of 24 images" in event.message for event in all_of(run, Noticed))
    assert not run.cache.exists()
