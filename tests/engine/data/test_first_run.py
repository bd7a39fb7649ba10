"""How to train on a file or folder for the first time: what it is, and settings that fit it."""

import csv
from pathlib import Path

import pytest

from tests.helpers import run_python
from tests.images import write_image_folder, write_plant_pathology
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.data.kinds.formats import FirstRun, UndecidedError, first_run, guess, lying_in
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.data.places import locate
from tpu_console.engine.errors import ConsoleError


def write_table(path: Path, heading: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heading, *rows])
    return path


def said(start: FirstRun) -> str:
    return "\n".join(text for _, text in start.notes)


def test_images_are_trained_on_in_their_size_and_bad_ones_are_named(tmp_path: Path) -> None:
    folder = write_image_folder(tmp_path / "my photos", per_class=20, size=(300, 150))
    (folder / "rose" / "empty.jpg").write_bytes(b"")
    (folder / "rose" / "notes.txt").write_text("seen in May")
    start = first_run(str(folder))
    config = start.config
    assert (config.name, config.dataset, config.model) == ("my-photos", "image-folder", "cnn")
    assert config.data.options["image_size"] == [128, 64]
    assert config.data.options["skip_bad"] is True
    assert len(config.model_options["filters"]) == 4
    assert config.augmentation.flip == "horizontal"
    assert (config.batch_size, config.epochs, config.early_stopping.patience) == (4, 60, 12)
    assert "1 of 61 images that were checked: rose/empty.jpg is empty" in said(start)
    assert "notes.txt" in said(start)
    assert "tulip 20" in said(start)
    small = first_run(str(folder), [("data.options.image_size", [28, 28]), ("augmentation.flip", "none")])
    assert small.config.data.options["image_size"] == [28, 28]
    assert len(small.config.model_options["filters"]) == 2
    assert "flip" not in said(small)
    assert with_changes(config, [("model", "mlp")]).model_options == {}


def test_tables_are_read_as_other_programs_write_them(tmp_path: Path) -> None:
    rows = "".join(f"{n};{n % 9},5;{'abc'[n % 3]};{'yes' if n % 2 else 'no'}\n" for n in range(60))
    path = tmp_path / "excel.csv"
    path.write_text(";Größe;Ort;label\n" + rows, encoding="utf-8")
    config = first_run(str(path)).config
    assert config.data.options["left_out"] == ["Unnamed: 0"]
    record = load_examples(config, lambda _: None).record
    assert {name: round(scale["mean"]) for name, scale in record["numbers"].items()} == {"Größe": 4}
    assert {*record["categories"]} == {"Ort"}


def test_a_path_through_the_folder_above_is_kept_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_table(tmp_path / "t.csv", ["a", "label"], [[n % 7, n % 2] for n in range(20)])
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert first_run("../t.csv").config.data.options["path"] == str(path)
    assert locate(f"{tmp_path}/below/../t.csv") == str(path)


def test_the_names_of_images_are_in_any_column(tmp_path: Path) -> None:
    path = write_plant_pathology(tmp_path, 8)
    heading, *rows = csv.reader(path.read_text().splitlines())
    write_table(path, ["", *heading], [[number, *row] for number, row in enumerate(rows)])
    config = first_run(str(path)).config
    options = config.data.options
    assert (options["inputs"], options["label"]) == (heading[0], heading[1:])
    assert config.loss == "categorical_crossentropy"
    kinds = ["sick" if "1" in row[2:] else "healthy" for row in rows]
    labeled: list[list[object]] = [["ab"[len(kind) % 2], row[0], kind] for row, kind in zip(rows, kinds, strict=True)]
    write_table(path, ["place", heading[0], "kind"], labeled)
    with pytest.raises(UndecidedError, match="kind"):
        first_run(str(path))
    config = first_run(str(path), [("data.options.label", ["kind"])]).config
    assert {*load_examples(config, lambda _: None).class_names} == {*kinds}


def test_three_examples_are_shown_in_a_line_each_whatever_they_contain(tmp_path: Path) -> None:
    rows: list[list[object]] = [["bad\x1b[31m and\nlong " * 20, "no"], ["good one", "yes"], ["\x1b[0m", "no"]] * 10
    start = first_run(str(write_table(tmp_path / "reviews.csv", ["text", "label"], rows)))
    first, *others = (text for _, text in start.notes if text.startswith(("no:", "yes:")))
    assert first.isprintable()
    assert first.startswith("no: bad")
    assert len(first) < 120
    assert len(others) == 2


def test_gray_images_are_not_mirrored_because_they_may_be_letters(tmp_path: Path) -> None:
    from PIL import Image

    folder = write_image_folder(tmp_path / "letters", per_class=3, size=(8, 8), suffix=".png")
    for file in folder.rglob("*.png"):
        Image.open(file).convert("L").save(file)
    config = first_run(str(folder)).config
    assert (config.augmentation.flip, config.augmentation.translation) == ("none", 0.1)
    assert config.data.options["image_size"] == [8, 8]


def test_both_parts_are_checked(tmp_path: Path) -> None:
    for part in ("train", "val"):
        write_image_folder(tmp_path / part, per_class=4)
    (tmp_path / "val" / "daisy" / "cut.jpg").write_bytes((tmp_path / "val" / "daisy" / "daisy_0.jpg").read_bytes()[:99])
    start = first_run(str(tmp_path))
    assert (start.config.data.options["path"], start.config.name) == (str(tmp_path / "train"), tmp_path.name)
    assert "1 of 13 images that were checked: daisy/cut.jpg" in said(start)


def test_a_folder_in_which_nothing_can_be_used_is_refused_before_the_run(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(b"no picture")
    with pytest.raises(ConsoleError, match=r"a/1\.png is not an image"):
        first_run(str(tmp_path))


def test_texts_are_recognized_by_their_words_and_a_doubtful_label_is_asked_for(tmp_path: Path) -> None:
    rows: list[list[object]] = [[n, f"a film of {n} words " * 9, "up" if n % 2 else "down", n % 5] for n in range(40)]
    table = write_table(tmp_path / "seen.v2.csv", ["id", "what", "verdict", "stars"], rows)
    with pytest.raises(UndecidedError) as caught:
        first_run(str(table))
    assert [*caught.value.question.answers] == ["verdict", "stars"]
    assert "--set data.options.label=verdict" in caught.value.remedy
    plain = write_table(tmp_path / "plain.csv", ["id", "what", "verdict"], [row[:3] for row in rows])
    for start in (first_run(str(plain)), first_run(str(table), [("data.options.label", "verdict")])):
        options = start.config.data.options
        assert (options["inputs"], options["label"], options["length"]) == ("what", "verdict", 50)
        assert start.config.model == "text"
        assert "label=verdict" in said(start)
    assert start.config.name == "seen"


def test_pairs_and_ratings_get_models_and_metrics_that_fit(tmp_path: Path) -> None:
    pairs = tmp_path / "spa.txt"
    pairs.write_text("".join(f"Go {n} {'far ' * 14}.\tVe {n}.\n" for n in range(60)), encoding="utf-8")
    config = first_run(str(pairs)).config
    assert (config.model, config.data.options["length"]) == ("transformer", 20)
    rows: list[list[object]] = [[n % 20, n % 31, n % 5 + 1, n] for n in range(4000)]
    ratings = write_table(tmp_path / "ratings.csv", ["userId", "movieId", "rating", "timestamp"], rows)
    config = first_run(str(ratings)).config
    assert (config.model, config.loss, config.batch_size) == ("recommender", "mean_squared_error", 256)
    assert "root_mean_squared_error" in config.metrics


def test_examples_that_are_too_many_to_count_are_not_trained_on_as_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpu_console.engine.data.kinds.skimming.LONGEST_S", -1.0)
    start = first_run(str(write_image_folder(tmp_path / "photos", per_class=2)))
    assert (start.config.epochs, start.config.batch_size) == (5, 64)
    assert "too large to count" in said(start)


WITHOUT = """
import sys
from tpu_console.engine.data.kinds.formats import first_run
print(first_run("photos").config.model, [name for name in ("tensorflow", "keras", "jax") if name in sys.modules])
"""


def test_a_start_is_found_without_a_framework(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "photos", per_class=2)
    assert run_python(WITHOUT, cwd=tmp_path).split() == ["cnn", "[]"]


def test_what_kaggle_mounts_is_listed_however_deep_it_lies(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "flowers" / "flowers", per_class=2)
    titanic = tmp_path / "competitions" / "titanic"
    titanic.mkdir(parents=True)
    (titanic / "train.csv").write_text("age,port\n" + "".join(f"{n % 7},S\n{n % 5},C\n" for n in range(30)))
    (tmp_path / "readme.md").write_text("nothing")
    found = dict(lying_in(tmp_path, 3))
    assert [*found] == [str(titanic), str(tmp_path / "flowers")]
    assert "6 examples in 3 classes" in found[str(tmp_path / "flowers")]
    assert [*dict(lying_in(tmp_path, 1))] == [str(tmp_path / "flowers")]


ROWS = range(60)
TABLES = {
    # As Kaggle's SMS spam, with columns that are empty.
    "spam.csv": ("v1,v2,,\n" + "".join(f"{'spam' if n % 4 else 'ham'},£{n} call now {n},,\n" for n in ROWS), "v1"),
    # As sentiment140 and the SMS spam of UCI, without a header.
    "tweets.csv": (
        "".join(f'"{n % 2 * 4}","{14671 + 7 * n}","NO_QUERY","bad, sad day {n}"\n' for n in ROWS),
        "column_1",
    ),
    "SMSSpamCollection": ("".join(f"{('ham', 'spam')[n % 2]}\tGo until {n}, crazy\n" for n in ROWS), "column_1"),
    "iris.data": ("".join(f"{n % 7 / 9:.1f},{n % 5 / 9:.1f},Iris-{'ab'[n % 2]}\n" for n in ROWS), "column_3"),
    # Names that are numbers, as those of pixels and years.
    "mnist.csv": ("label,0,1,2\n" + "".join(f"{n % 3},{n},{n % 2},9{n}\n" for n in ROWS), "label"),
    # A name that is also one of the column's values.
    "bank.csv": ("age,job,y\n" + "".join(f"{n % 9},{'abc'[n % 3]},{'yn'[n % 2]}\n" for n in ROWS), "y"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_that_people_have_are_trained_on(tmp_path: Path, name: str) -> None:
    content, label = TABLES[name]
    (tmp_path / name).write_text(content)
    changes = [("data.options.label", label)] if name == "iris.data" else []  # any column may be asked for
    config = first_run(str(tmp_path / name), changes).config
    assert config.data.options["label"] == label
    examples = load_examples(config, lambda _: None)
    assert (examples.train_count or 0) + (examples.validation_count or 0) == len(ROWS)
    assert len(examples.class_names) > 1


def test_a_long_table_that_is_sorted_by_its_labels_is_recognized(tmp_path: Path) -> None:
    path = tmp_path / "sorted.csv"
    lines = (f"{n // 30_000},nothing,it was day {n} of a long year, and then some\n" for n in range(60_000))
    path.write_text("".join(lines))
    options = guess(str(path))[1]
    assert (options["label"], options["inputs"]) == ("column_1", "column_3")
    path.write_text("day,label\n" + "".join(f"{n // 3000},{n // 3000}\n" for n in range(400_000)))
    assert guess(str(path))[1] == {"path": str(path), "left_out": (), "label": "label", "label_type": "number"}


def test_thousands_are_numbers(tmp_path: Path) -> None:
    path = write_table(tmp_path / "towns.csv", ["people", "label"], [[f"{n * 1234:,}", "ab"[n % 2]] for n in ROWS])
    record = load_examples(first_run(str(path)).config, lambda _: None).record
    assert record["numbers"]["people"]["mean"] > 10_000


def test_numbers_are_no_names_of_images_that_lie_beside_them(tmp_path: Path) -> None:
    write_image_folder(tmp_path / "photos", ["daisy"], per_class=1)
    (tmp_path / "photos" / "daisy" / "daisy_0.jpg").rename(tmp_path / "photos" / "1.jpg")
    table = write_table(tmp_path / "houses.csv", ["rooms", "price"], [[1 + n % 6, n * 1.5] for n in ROWS])
    assert guess(str(table), [("data.options.label", "price")])[0] == "table-csv"


def test_the_label_of_a_competition_is_what_its_test_table_lacks(tmp_path: Path) -> None:
    rows: list[list[object]] = [[n, n % 2, "fm"[n % 2], n % 50] for n in ROWS]
    write_table(tmp_path / "train.csv", ["Id", "Survived", "Sex", "Age"], rows)
    write_table(tmp_path / "test.csv", ["Id", "Sex", "Age"], [[n, "fm"[n % 2], n % 50] for n in ROWS])
    write_table(tmp_path / "sample_submission.csv", ["Id", "Survived"], [[n, 0] for n in ROWS])
    for place in (tmp_path, tmp_path / "train.csv"):
        options = first_run(str(place)).config.data.options
        assert (options["label"], options["label_type"], options["left_out"]) == ("Survived", "class", ["Id"])


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (["flowers.tar.gz"], "Unpack it"),
        (["people.xlsx"], "as CSV"),
        (["npy/x_train.npy", "npy/y_train.npy"], "numpy.savez"),
        (["cat/1.wav", "dog/2.wav"], "function of yours"),
        (["coco/train2017/1.jpg", "coco/val2017/2.jpg", "coco/annotations/instances.json"], "boxes"),
        (["cats/train/cat.1.jpg", "cats/test/dog.1.jpg"], "a folder for each class"),
    ],
)
def test_what_no_kind_reads_is_refused_with_what_to_do(tmp_path: Path, files: list[str], told: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"PK\x03\x04 no text: \xff\0")
    with pytest.raises(ConsoleError) as caught:
        guess(str(tmp_path / files[0] if len(files) == 1 else tmp_path))
    assert told in str(caught.value)
