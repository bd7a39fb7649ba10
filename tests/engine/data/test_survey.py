"""Counting the user's files without loading them: the same numbers as the loaders, quickly, and never a crash."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.images import smooth, write_image_folder, write_plant_pathology
from tests.words import ratings, write_pairs, write_ratings, write_text_folder
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.data.kinds.formats import config_for
from tpu_console.engine.data.kinds.skimming import (
    Survey,
    column_named,
    in_time,
    label_columns,
    nearly_longest,
    samples_of,
)
from tpu_console.engine.data.kinds.table import load_examples, survey, train_examples_of
from tpu_console.engine.data.row_files import TooSlowError
from tpu_console.engine.errors import Severity
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning import make_plan


def surveyed(dataset: str, path: Path | str, **options: Any) -> Survey:
    return survey(config_for(dataset, {"path": str(path), **options}))


def problem(found: Survey) -> tuple[str, str]:
    (only,) = found.problems
    return only.key, only.message


def reviews(path: Path, positive: int = 30, negative: int = 70) -> Path:
    rows = ["positive"] * positive + ["negative"] * negative
    lines = [f'"it was {label}, all {number} of it",{label}' for number, label in enumerate(rows)]
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    return path


def photos(folder: Path) -> Path:
    """Write images, and what should not be counted: hidden files, other files, and an empty folder."""
    write_image_folder(folder / "validation", per_class=2)
    write_image_folder(folder / "train", per_class=9)
    (folder / "train" / "rose" / "notes.txt").write_text("x")
    smooth().save(folder / "train" / "rose" / ".rose.jpg")
    (folder / "train" / "rose" / "inner").mkdir()
    smooth().save(folder / "train" / "rose" / "inner" / "more.JPG")
    (folder / "train" / "empty").mkdir()
    return folder / "train"


def numbers(path: Path) -> Path:
    path.write_text("x,label\n" + "".join(f"{n},{'abc'[n % 3]}\n" for n in range(100)), encoding="utf-8")
    return path


def write_arrays(path: Path) -> Path:
    np.savez(path, images=np.zeros((100, 8, 8), np.uint8), labels=np.arange(100) % 3)
    return path


MADE: dict[str, Callable[[Path], Path]] = {
    "image-csv": lambda folder: write_plant_pathology(folder, 7),
    "image-folder": photos,
    "text-csv": lambda folder: reviews(folder / "reviews.csv"),
    "text-folder": lambda folder: write_text_folder(folder / "texts", 15),
    "text-pairs": lambda folder: write_pairs(folder / "pairs.txt", 100),
    "ratings-csv": lambda folder: write_ratings(folder / "ratings.csv", ratings(20, 30, 400)),
    "table-csv": lambda folder: numbers(folder / "numbers.csv"),
    "npz": lambda folder: write_arrays(folder / "arrays.npz"),
}


def counted_and_loaded(dataset: str, options: dict[str, Any]) -> tuple[int | None, int | None]:
    """Return how many examples a survey counts for each part, which are those that are loaded."""
    config = with_changes(config_for(dataset, options), [("data.validation_fraction", 0.35)])
    examples, found = load_examples(config, lambda _: None), survey(config)
    counts = train_examples_of(config), found.held_out(0.35)
    assert counts == (examples.train_count, examples.validation_count)
    if examples.class_names:
        assert sorted(found.classes) == sorted(examples.class_names)
    return counts


@pytest.mark.parametrize("dataset", MADE)
def test_the_plan_counts_what_the_loader_returns(dataset: str, tmp_path: Path) -> None:
    path = MADE[dataset](tmp_path)
    train, _ = counted_and_loaded(dataset, {"path": str(path)})
    if dataset == "image-folder":
        given = {"path": str(path), "validation_path": str(tmp_path / "validation")}
        assert (train, counted_and_loaded(dataset, given)) == (18, (28, 6))
    elif dataset == "ratings-csv":
        older = write_ratings(tmp_path / "ratings.dat", ratings(20, 30, 400))  # without a header
        assert counted_and_loaded(dataset, {"path": str(older)})[0] == train


@pytest.mark.parametrize(
    ("found", "fraction", "train", "held_out"),
    [
        (Survey(), 0.2, None, None),
        (Survey(total=10), 0.2, 8, 2),
        (Survey(total=10), 0.01, 9, 1),
        (Survey(total=10, validation=3), 0.2, 10, 3),
        (Survey(total=10, classes={"a": 9, "b": 1}), 0.01, 9, 1),
        (Survey(total=4, classes={"a": 2, "b": 2}), 0.9, 2, 2),
        (Survey(total=9, classes={"a": 2, "b": 1, "c": 6}), 0.9, 3, 6),
        (Survey(total=20, classes={"a": 10, "b": 10}), 0.01, 18, 2),
    ],
)
def test_the_split_leaves_each_class_in_both_parts(
    found: Survey, fraction: float, train: int | None, held_out: int | None
) -> None:
    assert (found.train(fraction), found.held_out(fraction)) == (train, held_out)


def test_the_clock_is_looked_at_before_the_first_entry_and_then_rarely() -> None:
    with pytest.raises(TooSlowError):
        next(in_time(["only"], ends_at=0.0))
    entries = in_time(range(3), time.monotonic() + 60)
    assert [*entries] == [0, 1, 2]


def test_samples_are_the_first_the_middle_and_the_last_cut_to_a_line() -> None:
    assert samples_of("abcde", str) == ("a", "c", "e")
    assert samples_of("a", str) == ("a",)
    assert samples_of([], str) == ()
    assert samples_of(["x" * 100, "x" * 101], str) == ("x" * 100, "x" * 99 + "…")


@pytest.mark.parametrize(
    ("words", "length"), [([], 200), ([3] * 95 + [90] * 5, 10), ([3] * 94 + [41] * 6, 50), ([999] * 9, 200)]
)
def test_a_length_is_one_that_few_texts_exceed_in_tens(words: list[int], length: int) -> None:
    assert nearly_longest(words, 10, 200)[0] == length


@pytest.mark.parametrize(
    ("values", "is_label"),
    [
        (["a", "b"] * 3, True),
        (["a"] * 6, False),
        (["a", "b", "c", "a", "b", "c"], True),
        (["a", "b", "c", "d", "a", "b"], False),
        (["a", "b", "a", "b", "", ""], True),
        (["a", "b", "a", "", "", ""], False),
        (["a", "b"], True),
    ],
)
def test_a_label_has_few_values_that_occur_again_and_is_seldom_empty(values: list[str], is_label: bool) -> None:
    rows = [*(["1", value] for value in values), ["1"]]
    assert label_columns(["x", "label"], rows, {"x"}) == (["label"] if is_label else [])


def test_a_column_is_found_by_the_first_of_some_names_whatever_its_case() -> None:
    assert column_named(["Label ", "CLASS"], ["class", "label"]) == "CLASS"
    assert column_named(["x"], ["class"]) == ""


def test_changed_files_are_counted_again(tmp_path: Path) -> None:
    table = reviews(tmp_path / "reviews.csv", 2, 2)
    assert surveyed("text-csv", table).total == 4
    reviews(table, 20, 20)
    assert surveyed("text-csv", table).total == 40
    folder = write_image_folder(tmp_path / "photos", per_class=2)
    assert surveyed("image-folder", folder).total == 6
    (folder / "rose" / "new.jpg").write_bytes(b"x")
    assert surveyed("image-folder", folder).total == 7


def test_a_missing_file_names_the_places_that_were_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    key, text = problem(surveyed("text-pairs", "spa.txt"))
    assert key == "data.options.path"
    assert f"looked for at {tmp_path}/spa.txt, {tmp_path}/keras/datasets/spa.txt" in text
    plan = make_plan(config_for("text-pairs", {"path": "spa.txt"}), Hardware())
    assert not plan.is_possible
    assert plan.advice[0].key == "data.options.path"
    write_pairs(tmp_path / "keras" / "datasets" / "spa.txt", 10)
    assert surveyed("text-pairs", "spa.txt").total == 10


def test_missing_files_are_problems_of_the_keys_that_name_them(tmp_path: Path) -> None:
    table = write_plant_pathology(tmp_path, 2)
    assert problem(surveyed("image-csv", table, images="pictures"))[0] == "data.options.images"
    assert problem(surveyed("image-csv", table, label=["rsut"])) == (
        "data.options.label",
        f"{table} has no column 'rsut'; did you mean 'rust'?",
    )
    assert problem(surveyed("image-csv", table, inputs="image"))[0] == "data.options.inputs"
    folder = write_image_folder(tmp_path / "photos", per_class=1)
    missing = surveyed("image-folder", folder, validation_path=str(tmp_path / "nowhere"))
    assert problem(missing)[0] == "data.options.validation_path"
    gone = surveyed("text-pairs", tmp_path / "a.en", target_path=str(tmp_path / "a.de")).problems
    assert [item.key for item in gone] == ["data.options.path", "data.options.target_path"]
    gone = surveyed("image-csv", tmp_path / "gone" / "train.csv", images="images").problems
    assert "gone/images" in [item.message for item in gone][1]
    keys = {item.key for item in surveyed("ratings-csv", table).problems}
    assert keys == {"data.options.columns"}


@pytest.mark.parametrize(
    ("dataset", "content", "text"),
    [
        ("text-csv", b"", "is empty"),
        ("text-csv", b"text,label\n", "has no rows"),
        ("text-csv", b"\x1f\x8bnot gzip at all", "cannot be read"),
        ("text-pairs", b"", "is empty"),
        ("text-pairs", b"hello\tola\n\nhello there\n", "line 3 has no tab between a source and a target sentence"),
        ("ratings-csv", b"userId,movieId,rating\n", "has no rows"),
        ("ratings-csv", b"userId,movieId,rating\n1,,3\n", "line 2: nothing in column 'movieId'"),
        ("image-csv", b"image_id\nx\n", "no label column"),
        ("image-csv", b"image_id,a,b\nx,1,0\n,0,1\n", "line 3: nothing in column 'image_id'"),
        ("image-csv", b"image_id,label\nx,1\ny,NaN\n", "line 3: nothing in column 'label'. Fill in or remove"),
        ("text-csv", b"text,label\na,x\n,y\nb,\n", "line 4: nothing in column 'label'"),
        ("text-csv", b"text,label\na,x\n,y\n", "line 3: nothing in column 'text'"),
        ("table-csv", b"a,label\n1,NA\n2,x\n3,\n", "2 lines: 2, 4: nothing in column 'label'"),
        ("text-csv", b"text,label\na,x\nb,x\n", "all 2 labels in"),
        ("text-csv", b"\x1b[2Jboo\x07\n", "has no column 'text'"),
    ],
)
def test_files_that_are_wrong_inside_are_problems_in_a_sentence(
    tmp_path: Path, dataset: str, content: bytes, text: str
) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(content)
    (tmp_path / "images").mkdir()
    found = surveyed(dataset, path).problems
    assert text in found[0].message
    assert found[0].message.isprintable()


def test_a_table_of_images_may_have_one_of_the_classes_that_the_user_names(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("id,label\na,x\nb,x\n")
    (tmp_path / "images").mkdir()
    assert "all 2 labels" in problem(surveyed("image-csv", path))[1]
    assert surveyed("image-csv", path, classes=["x", "y"]).total == 2


def test_a_folder_for_a_file_and_a_file_for_a_folder_are_problems(tmp_path: Path) -> None:
    path = reviews(tmp_path / "reviews.csv")
    assert "is a folder" in problem(surveyed("text-csv", tmp_path))[1]
    assert "is a file" in problem(surveyed("image-folder", path))[1]
    assert "schema.json" in problem(surveyed("tfrecord", tmp_path))[1]
    write_image_folder(tmp_path, ["rose"])
    assert "one folder per class" in problem(surveyed("image-folder", tmp_path))[1]


@pytest.mark.parametrize("path", ["x" * 5000, "~nobody-of-that-name/x", "/root/x/y" if os.getuid() else "/x/y"])
def test_a_path_that_no_system_takes_is_a_problem(path: str) -> None:
    assert problem(surveyed("text-csv", path))[0] == "data.options.path"


def test_remote_files_are_not_touched() -> None:
    plan = make_plan(config_for("tfrecord", {"path": "gs://bucket/shards"}), Hardware())
    assert plan.train_examples is None
    assert plan.is_possible
    assert [item.severity for item in plan.advice if item.key == "data.options.path"] == [Severity.INFO]


@pytest.mark.parametrize("dataset", ["image-csv", "image-folder", "text-csv", "text-pairs", "ratings-csv", "table-csv"])
def test_counting_that_takes_too_long_is_left_to_the_run(
    dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_for(dataset, {"path": str(MADE[dataset](tmp_path))})
    monkeypatch.setattr("tpu_console.engine.data.kinds.skimming.LONGEST_S", -1.0)
    plan = make_plan(config, Hardware())
    assert plan.is_possible
    assert plan.train_examples is None
    assert [item for item in plan.advice if "too large to count quickly" in item.text]
