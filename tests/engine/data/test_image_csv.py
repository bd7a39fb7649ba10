"""Tables of images and labels: a real competition's layout can be trained on, and what is wrong with one is named."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import small_config
from tests.images import BAD_FILES, PLANT_CLASSES, smooth, write_bad, write_odd, write_plant_pathology
from tpu_console.engine.data.examples import Examples, Task
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.errors import DataError

SHARES = "categorical_crossentropy"


def load(path: Path | str, *, loss: str = "sparse_categorical_crossentropy", **options: Any) -> Examples:
    data = {"options": {"path": str(path), "image_size": [16, 24], **options}}
    return load_examples(small_config(dataset="image-csv", model="cnn", model_options={}, loss=loss, data=data), print)


def refusal(path: Path | str, **settings: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        load(path, **settings)
    return caught.value


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
    examples = load(write_plant_pathology(tmp_path, per_class=10), loss=SHARES, resize="crop")
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
    examples = load(f"file://{write_plant_pathology(tmp_path, per_class=3)}")
    assert (examples.train_count, len(list(examples.train))) == (8, 8)
    assert all_labels(examples) == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3  # class numbers, for a sparse loss
    assert "none.csv" in refusal(f"file://{tmp_path}/none.csv").what


def test_each_image_keeps_its_label(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number in range(20):
        smooth().point([255 * (number % 2)] * 768).save(tmp_path / "images" / f"{number}.png")
    rows = [f"{number},{'white' if number % 2 else 'black'}" for number in range(20)]
    (tmp_path / "train.csv").write_text("\n".join(["file,color", *rows]))
    examples = load(tmp_path / "train.csv")
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
    examples = load(path)
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
    examples = load(table(tmp_path, content), **options)
    assert examples.class_names == ("9", "10")  # in the order of their values
    assert all_labels(examples) == [0, 0, 1, 1]
    assert examples.record["suffix"] == ("" if options else ".jpg")


def test_classes_can_be_given_in_their_order(tmp_path: Path) -> None:
    path = table(tmp_path, "id,label\na,x\nb,y\nc,x\nd,y\n")
    examples = load(path, classes=["z", "y", "x"])
    assert all_labels(examples) == [1, 1, 2, 2]
    (notice,) = examples.notices
    assert "'z'" in notice
    what = refusal(path, classes=["xx", "y"]).what
    assert what.startswith(f"{path}, 2 lines: 2, 4: ")
    assert "'xx'?" in what


def test_shares_are_kept_for_a_loss_that_can_learn_them(tmp_path: Path) -> None:
    path = table(tmp_path, "id,x,y\na,0.25,0.75\nb,1,0\nc,0.5,0.5\nd,0,1\n")
    assert all_labels(load(path, loss=SHARES)) == [[0, 1], [0.25, 0.75], [0.5, 0.5], [1, 0]]
    assert SHARES in refusal(path).remedy


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
    error = refusal(path)
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
    assert said in refusal(write_plant_pathology(tmp_path, per_class=1), **options).what


def test_bad_images_are_refused_with_their_reasons_or_skipped_and_reported(tmp_path: Path) -> None:
    bad = [write_bad(tmp_path / "images", kind).name for kind in BAD_FILES]
    good = [write_odd(tmp_path / "images", kind).name for kind in ("jpeg", "turned jpeg", "rgba png", "bmp")]
    rows = [f"{name},{'xy'[number % 2]}" for number, name in enumerate([*good, *bad])]
    path = table(tmp_path, "\n".join(["id,label", *rows]), images=())
    error, counts = refusal(path), f"{len(bad)} of {len(bad) + 4} images in {tmp_path}/images "
    assert error.what.startswith(counts)
    assert "empty.jpg is empty; text.jpg is not" in error.what
    assert "skip_bad" in error.remedy
    examples = load(path, skip_bad=True)
    assert all_labels(examples) == [0, 0, 1, 1]
    (notice,) = examples.notices
    assert notice.startswith(counts)
