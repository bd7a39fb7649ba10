"""Predicting images, arrays, texts, translations and ratings with real runs, on files as people have them."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.jobs.predicting import Job, train
from tests.helpers import all_of, report_of, small_config
from tests.images import PLANT_CLASSES, write_bad, write_image_folder, write_plant_pathology
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.data.labels import stratified_split
from tpu_console.engine.errors import DataError
from tpu_console.engine.jobs.predict import open_trained
from tpu_console.engine.runs.events import Translated
from tpu_console.engine.runs.run_directory import RunDirectory

pytestmark = pytest.mark.slow

IMAGES = {"model": "mlp", "model_options": {"hidden": [16]}, "batch_size": 8}


@pytest.fixture(scope="module")
def plants(home: Path) -> RunDirectory:
    path = write_plant_pathology(home / "plants", per_class=20, tests=5)
    data = {"options": {"path": str(path), "image_size": [24, 32], "resize": "crop"}}
    return train(
        small_config(dataset="image-csv", data=data, epochs=4, loss="categorical_crossentropy", **IMAGES), home
    )


@pytest.fixture(scope="module")
def flowers(home: Path) -> RunDirectory:
    path = write_image_folder(home / "flowers", per_class=12)
    data = {"options": {"path": str(path), "image_size": [16, 16]}, "pixels": "raw"}
    return train(small_config(dataset="image-folder", data=data, **IMAGES), home)


def validation_of(run: RunDirectory) -> tuple[Any, Any]:
    config = open_trained(str(run.path), "last").config
    pairs = list(load_examples(config, lambda _: None).validation.as_numpy_iterator())
    return np.stack([pair[0] for pair in pairs]), np.array([pair[1] for pair in pairs])


def test_predictions_of_the_validation_digits_agree_with_the_confusion_matrix(
    job: Job, small_digits: RunDirectory
) -> None:
    images, labels = validation_of(small_digits)
    np.save(job.out.parent / "x.npy", images)
    rows = job(small_digits, job.out.parent / "x.npy")
    assert list(rows[0]) == ["index", "label", "probability"]
    assert [row["index"] for row in rows] == [str(index) for index in range(360)]
    right = np.mean([int(row["label"]) for row in rows] == labels)
    assert right == pytest.approx(report_of(small_digits).accuracy)
    assert right > 0.5
    assert all(0.1 < float(row["probability"]) <= 1 for row in rows)
    assert (job.result["rows"], job.result["skipped"], Path(job.result["model"])) == (360, 0, small_digits.model)
    assert job.records[-1]["done"] == job.records[-1]["total"] == 360


def test_every_form_of_an_array_gives_the_same_predictions(job: Job, small_digits: RunDirectory) -> None:
    images, labels = validation_of(small_digits)
    folder, flat = job.out.parent, images[:20].reshape(20, 64)
    np.save(folder / "plain.npy", images[:20, :, :, 0])
    np.savez(folder / "named.npz", labels=labels[:20], images=images[:20])
    np.savetxt(folder / "bare.csv", flat, delimiter=",", fmt="%d")
    head = ",".join(["label", *(f"pixel{n}" for n in range(64))])
    np.savetxt(folder / "kaggle.csv", np.column_stack([labels[:20], flat]), "%d", ",", header=head, comments="")
    found = [
        job(small_digits, folder / name, force=True) for name in ("plain.npy", "named.npz", "bare.csv", "kaggle.csv")
    ]
    assert found[0] == found[1] == found[2] == found[3]
    assert len(found[0]) == 20


def test_arrays_that_cannot_be_predicted_are_refused(job: Job, small_digits: RunDirectory) -> None:
    folder = job.out.parent
    for number, (array, said) in enumerate(
        [
            (np.zeros((3, 28, 28)), r"shape \(3, 28, 28\).*8×8×1"),
            (np.zeros((3, 4, 16)), "8×8×1"),
            (np.zeros(64), "shape"),
            (np.zeros((0, 8, 8)), "shape"),
            (np.full((3, 8, 8), 255), "from 255 to 255.*0 to 16"),
            (np.full((3, 8, 8), np.nan), "image 0"),
            (np.array(["a"] * 64).reshape(1, 64), "not numbers"),
        ]
    ):
        np.save(folder / f"{number}.npy", array)
        with pytest.raises(DataError, match=said):
            job(small_digits, folder / f"{number}.npy")
    for content in (b"", b"\x93NUMPY garbage", b"PK\x03\x04 garbage"):
        for name in ("x.npy", "x.npz"):
            (folder / name).write_bytes(content)
            with pytest.raises(DataError, match=r"x\.np. cannot be read"):
                job(small_digits, folder / name)
    np.save(folder / "x.npy", np.array([Path("/")], object), allow_pickle=True)  # it is never unpickled
    with pytest.raises(DataError, match="as a NumPy file"):
        job(small_digits, folder / "x.npy")
    (folder / "x.csv").write_text(",".join(["1"] * 64) + "\n" + ",".join(["1"] * 63) + ",x\n")
    with pytest.raises(DataError, match="row 2"):
        job(small_digits, folder / "x.csv")
    assert not job.out.exists()
    np.save(folder / "x.npy", np.full((1, 8, 8), 0.5))
    job(small_digits, folder / "x.npy")
    assert "scaled already" in job.notes


def plant_rows(plants: RunDirectory) -> tuple[Path, list[str], list[int]]:
    """The folder of images, and name and class of each validation image."""
    folder = Path(open_trained(str(plants.path), "last").config.data.options["path"]).parent
    labels = np.arange(80) % 4
    (_, held_out), _ = stratified_split(labels, PLANT_CLASSES, open_trained(str(plants.path), "last").config)
    return folder, [f"Train_{index}" for index in held_out], [int(labels[index]) for index in held_out]


def test_a_submission_has_the_competitions_columns_and_order_and_agrees_with_the_confusion_matrix(
    job: Job, plants: RunDirectory
) -> None:
    folder, names, labels = plant_rows(plants)
    (folder / "mixed.csv").write_text("image_id\r\nTest_3\r\nTest_0\r\nTest_4\r\n")
    rows = job(plants, folder / "mixed.csv")
    assert list(rows[0]) == ["image_id", *PLANT_CLASSES]
    assert [row["image_id"] for row in rows] == ["Test_3", "Test_0", "Test_4"]
    for row in rows:
        assert sum(float(row[name]) for name in PLANT_CLASSES) == pytest.approx(1, abs=1e-4)
    assert job.out.read_bytes().count(b"\r") == 0
    (folder / "held_out.csv").write_text("image_id\n" + "\n".join(names) + "\n")
    rows = job(plants, folder / "held_out.csv", force=True)
    guesses = [int(np.argmax([float(row[name]) for name in PLANT_CLASSES])) for row in rows]
    assert np.mean(np.array(guesses) == labels) == pytest.approx(report_of(plants).accuracy)


def test_a_folder_and_single_images_get_the_same(job: Job, plants: RunDirectory) -> None:
    folder, _, _ = plant_rows(plants)
    by_table = job(plants, folder / "test.csv")
    inner = job.out.parent / "new"
    inner.mkdir()
    for index in range(5):
        (inner / f"Test_{index}.jpg").write_bytes((folder / "images" / f"Test_{index}.jpg").read_bytes())
    (inner / "notes.txt").write_text("no image")
    assert job(plants, inner, force=True) == by_table
    files = [inner / f"Test_{index}.jpg" for index in range(5)]
    single = job(plants, *files, force=True)
    assert [row["rust"] for row in single] == [row["rust"] for row in by_table]
    (inner / "list.csv").write_text("image_id\nTest_1\n")
    assert job(plants, inner / "list.csv", force=True)[0] == by_table[1]
    (job.out.parent / "list.csv").write_text("image_id\nTest_1.jpg\n")
    (named,) = job(plants, job.out.parent / "list.csv", images=str(inner), force=True)
    assert named["scab"] == by_table[1]["scab"]


def test_a_folder_of_images_a_class(job: Job, flowers: RunDirectory, home: Path) -> None:
    rows = job(flowers, home / "flowers")
    assert list(rows[0]) == ["file", "label", "probability"]
    assert len(rows) == 36
    assert rows[0]["file"] == "daisy/daisy_0.jpg"
    assert {row["label"] for row in rows} <= {"daisy", "rose", "tulip"}
    linked = job.out.parent / "linked"
    linked.mkdir()
    (linked / "daisy").symlink_to(home / "flowers" / "daisy")
    assert job(flowers, linked, force=True) == rows[:12]
    bad = write_bad(job.out.parent / "new", "empty")
    rows = job(flowers, bad, home / "flowers" / "rose" / "rose_0.jpg", skip_bad=True, force=True)
    assert (rows[0]["label"], rows[0]["probability"]) == ("", "0.333333")
    assert rows[1]["label"] in {"daisy", "rose", "tulip"}


@pytest.mark.parametrize("kind", ["cut jpeg", "gigapixel png"])
def test_bad_images_are_refused_by_name_or_skipped(job: Job, plants: RunDirectory, kind: str) -> None:
    folder = job.out.parent / "images"
    source, _, _ = plant_rows(plants)
    bad = write_bad(folder, kind)
    (folder / "good.jpg").write_bytes((source / "images" / "Test_0.jpg").read_bytes())
    table = job.out.parent / "test.csv"
    table.write_text(f"image_id\n{bad.name}\ngood\nmissing\n")
    with pytest.raises(
        DataError, match=rf"2 of 3 images cannot be used: {bad.name} .*; missing is not there"
    ) as caught:
        job(plants, table)
    assert "--skip-bad" in caught.value.remedy
    assert not job.out.exists()
    rows = job(plants, table, skip_bad=True)
    assert [[float(row[name]) for name in PLANT_CLASSES] for row in rows[::2]] == [[0.25] * 4] * 2
    assert rows[1]["healthy"] != "0.25"
    assert job.result["skipped"] == 2
    assert bad.name in job.notes


def test_tables_and_data_that_cannot_be_used(
    job: Job, plants: RunDirectory, small_digits: RunDirectory, tmp_path: Path
) -> None:
    table = job.out.parent / "test.csv"
    for text, said in (
        ("name\nTest_0\n", "no column 'image_id'"),
        ("", "is empty"),
        ("image_id\n", "no rows"),
        ("image_id\nTest_0\nTest_0\n", "line 3"),
        ("image_id,x\nTest_0,1\n,2\n", "line 3"),
    ):
        table.write_text(text)
        with pytest.raises(DataError, match=said):
            job(plants, table)
    for run, name, said in (
        (plants, "no.csv", r"no\.csv does not exist"),
        (plants, "no.jpg", r"no\.jpg is not there"),
        (small_digits, "no.npy", r"no file .*no\.npy"),
    ):
        with pytest.raises(DataError, match=said):
            job(run, tmp_path / name)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no image in"):
        job(plants, tmp_path / "empty")
    (tmp_path / "t.csv").write_text("image_id\nTest_0\n")
    with pytest.raises(DataError, match="no folder"):
        job(plants, tmp_path / "t.csv", images=str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="2 are given"):
        job(small_digits, "a.npy", "b.npy")


def test_labels_from_one_column_are_written_to_one_column(job: Job, home: Path) -> None:
    folder = write_image_folder(home / "leaves", per_class=10)
    names = sorted(path.relative_to(folder) for path in folder.rglob("*.jpg"))
    lines = [f"{name},{name.parent}" for name in names]
    (folder / "train.csv").write_text("image,species\n" + "\n".join(lines) + "\n")
    data = {"options": {"path": str(folder / "train.csv"), "images": ".", "image_size": [16, 16]}}
    run = train(parse_config(small_config(dataset="image-csv", data=data, **IMAGES).model_dump()), home)
    (folder / "test.csv").write_text("image\nrose/rose_1.jpg\ndaisy/daisy_0.jpg\n")
    rows = job(run, folder / "test.csv")
    assert list(rows[0]) == ["image", "species"]
    assert [row["image"] for row in rows] == ["rose/rose_1.jpg", "daisy/daisy_0.jpg"]
    assert {row["species"] for row in rows} <= {"daisy", "rose", "tulip"}


def test_labels_of_texts(job: Job, home: Path) -> None:
    lines = [
        f"{'a fine and good film' if n % 2 else 'a dull and bad film'} {n},{'pos' if n % 2 else 'neg'}"
        for n in range(200)
    ]
    (home / "reviews.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    options = {"path": str(home / "reviews.csv"), "length": 8, "vocabulary": 50}
    small = {"filters": [8], "width": 8, "hidden": 8, "kernel_size": 3}
    texts = {"dataset": "text-csv", "data": {"options": options}, "model": "text", "model_options": small}
    run = train(small_config(**texts, epochs=15, optimizer={"learning_rate": 0.02}), home)
    new = home / "new.csv"
    new.write_text("review_id,text,label\n7,a fine <b>and good</b> film,\n8,A DULL and bad film!,\n")
    rows = job(run, new)
    assert [(row["review_id"], row["label"]) for row in rows] == [("7", "pos"), ("8", "neg")]
    new.write_text("text\na fine and good film\n")
    assert [(row["row"], row["label"]) for row in job(run, new, force=True)] == [("1", "pos")]
    new.write_text("words\ngood fine\n")
    with pytest.raises(DataError, match="no column 'text'"):
        job(run, new, force=True)


def test_translations(job: Job, home: Path) -> None:
    words = ["one", "two", "three", "four"]
    pairs = [f"{a} {b}.\tx{a} x{b}\tattribution" for a in words for b in words] * 4
    with gzip.open(home / "pairs.txt.gz", "wt") as file:
        file.write("\n".join(pairs))
    pairs_of = {"options": {"path": str(home / "pairs.txt.gz"), "length": 4, "vocabulary": 20}}
    small = {"model": "transformer", "model_options": {"width": 16, "heads": 2, "layers": 1, "hidden": 16}}
    rate = {"learning_rate": 0.02}
    run = train(
        small_config(dataset="text-pairs", data=pairs_of, **small, batch_size=16, epochs=2, optimizer=rate), home
    )
    told = all_of(run, Translated)
    assert [event.epoch for event in told] == [1, 2]
    (home / "new.txt").write_text("one two\n\nThree four.\tignored\n" + "two\n" * 70 + "\n")
    rows = job(run, home / "new.txt")
    assert [row["source"] for row in rows][:3] == ["one two", "", "Three four."]  # an empty line keeps its place
    assert [bool(row["translation"]) for row in rows][:3] == [True, False, True]
    assert len(rows) == 74  # the last line is empty, too
    assert {word for row in rows for word in row["translation"].split()} <= {f"x{word}" for word in words} | {"[UNK]"}
    assert job.records[-1]["done"] == 74


@pytest.fixture(scope="module")
def films(home: Path) -> RunDirectory:
    """Ratings of 60 films by 21 users, all but a quarter, another one for each; the last has rated all but two.

    Every third film is bad.
    """
    rated = [(user, item) for user in range(20) for item in range(60) if (user + item) % 4]
    rated += [(20, item) for item in range(58)]
    lines = [f"{user},m{item},{5 if item % 3 else 1},{user + item}" for user, item in rated]
    (home / "ratings.csv").write_text("userId,movieId,rating,timestamp\n" + "\n".join(lines) + "\n")
    data = {"dataset": "ratings-csv", "data": {"options": {"path": str(home / "ratings.csv")}}}
    model = {"model": "recommender", "model_options": {"width": 4}, "loss": "mean_squared_error"}
    trained = {"metrics": ["root_mean_squared_error"], "epochs": 15, "optimizer": {"learning_rate": 0.06}}
    return train(small_config(**data, **model, **trained), home)


def test_ratings_of_pairs(job: Job, films: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("userId,movieId\n3,m3\n3,m4\nnobody,m4\n")
    rows = job(films, tmp_path / "pairs.csv")
    assert list(rows[0]) == ["userId", "movieId", "rating"]
    assert float(rows[0]["rating"]) < 3 < float(rows[1]["rating"])
    assert "1 of 3 rows" in job.notes


def test_the_best_items_are_those_that_a_user_has_not_rated(job: Job, films: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("userId\n3\n4\n3\n")
    rows = job(films, tmp_path / "users.csv")
    listed = [(row["userId"], row["rank"]) for row in rows]
    assert listed == [(user, str(rank)) for user in "343" for rank in range(1, 11)]
    for row in rows:
        user, film = int(row["userId"]), int(row["movieId"][1:])
        assert (user + film) % 4 == 0, "rated by this user, for training or validation"
        assert film % 3, "good"
    ratings = [float(row["rating"]) for row in rows]
    assert ratings[:10] == sorted(ratings[:10], reverse=True) == ratings[20:]
    (tmp_path / "users.csv").write_text("userId\n20\n")
    assert {row["movieId"] for row in job(films, tmp_path / "users.csv", force=True)} == {"m58", "m59"}


def test_a_user_without_known_ratings_gets_the_best_items_of_all(job: Job, films: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_text("userId\nnobody\n3\n")
    (tmp_path / "moved").mkdir()
    run = RunDirectory(shutil.copytree(films.path, tmp_path / "moved" / films.run_id))
    record = json.loads(run.inputs.read_text())
    known = job(run, tmp_path / "users.csv")
    assert {(3 + int(row["movieId"][1:])) % 4 for row in known[:10]} != {0}
    run.inputs.write_text(json.dumps({key: value for key, value in record.items() if key != "rated"}))
    unknown = job(run, tmp_path / "users.csv", force=True)
    assert unknown[:10] == known[:10]
    assert unknown[10:] != known[10:]
    assert "no record" in job.notes
    for broken in ("eJxjYGBgAAAABAAB", "what?", 3, ""):
        run.inputs.write_text(json.dumps(record | {"rated": broken}))
        with pytest.raises(DataError, match=r"inputs\.json is damaged"):
            job(run, tmp_path / "users.csv", force=True)
