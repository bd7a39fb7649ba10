"""One folder a class: what is a class and what is not, and what is said of folders that cannot be used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import small_config
from tests.images import smooth, write_bad, write_image_folder
from tpu_console.engine.data.examples import Examples, Task
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path


def load(path: Path | str, **options: Any) -> Examples:
    """Load a folder at a small size."""
    data = {"options": {"path": str(path), "image_size": [16, 16], **options}}
    return load_examples(small_config(dataset="image-folder", data=data), print)


def refusal(path: Path | str, **options: Any) -> DataError:
    """What is said of a folder that cannot be used."""
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


def test_validation_images_can_have_a_separate_folder(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "train", per_class=4)
    write_image_folder(tmp_path / "val", ("daisy", "tulip"), per_class=2, seed=1)
    examples = load(tmp_path / "train", validation_path=str(tmp_path / "val"))
    assert (examples.train_count, examples.validation_count) == (12, 4)
    assert examples.record["class_counts"] == {"train": [4, 4, 4], "validation": [2, 0, 2]}
    assert [int(label) for _, label in examples.validation] == [0, 0, 2, 2]


def test_an_extra_class_in_the_validation_folder_is_refused(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "train", per_class=2)
    write_image_folder(tmp_path / "val", ("daisies", "rose"), per_class=2)
    error = refusal(tmp_path / "train", validation_path=str(tmp_path / "val"))
    assert "has a folder 'daisies'" in error.what
    assert "did you mean 'daisy'?" in error.what


def test_folders_named_train_and_test_are_refused_as_classes(tmp_path: Path) -> None:
    for part in ("train", "Validation", "test"):
        write_image_folder(tmp_path / part, per_class=1)
    error = refusal(tmp_path)
    assert "Validation, test, train" in error.what
    assert "validation_path" in error.remedy


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ((), "has no folders with images in them"),
        (("picture.jpg",), "has no folders with images in them"),
        (("flowers/a.jpg", "flowers/b.jpg"), "has one folder with images, 'flowers'"),
    ],
)
def test_a_folder_that_is_laid_out_otherwise_is_refused(tmp_path: Path, content: tuple[str, ...], said: str) -> None:
    for name in content:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        smooth().save(tmp_path / name, "JPEG")
    error = refusal(tmp_path)
    assert error.what.startswith(f"{tmp_path} {said}")
    assert "a folder for each class" in error.remedy


def test_a_missing_folder_is_reported_with_the_places_that_were_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    error = refusal("flowers")
    assert error.what == f"There is no folder {tmp_path}/flowers."
    assert f"{tmp_path}/keras/datasets/flowers" in error.why
    assert refusal(f"file://{tmp_path}/none").what == f"There is no folder file://{tmp_path}/none."
    write_image_folder(tmp_path / "here", per_class=2)
    assert "data.options.validation_path" in refusal("here", validation_path="there").remedy


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_bad_file_is_named_or_left_out(tmp_path: Path, part: str) -> None:
    for place in ("train", "val"):
        write_image_folder(tmp_path / place, per_class=3)
    write_bad(tmp_path / part / "rose", "cut jpeg")
    options = {"validation_path": str(tmp_path / "val")}
    error = refusal(tmp_path / "train", **options)
    assert error.what.startswith(f"1 of 10 images in {tmp_path}/{part} cannot be used: rose/cut_jpeg.jpg is cut off")
    examples = load(tmp_path / "train", skip_bad=True, **options)
    assert (examples.train_count, examples.validation_count) == (9, 9)
    assert "rose/cut_jpeg.jpg is cut off" in examples.notices[0]
