"""Tables of numbers and categories: what is learned from which column, and labels that are classes or numbers."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.data.scripting import assert_script_reads, inspected
from tests.engine.jobs.predicting import Job, train
from tests.helpers import small_config
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.examples import Examples, Task
from tpu_console.engine.data.kinds.formats import UndecidedError, first_run, guess
from tpu_console.engine.data.kinds.table import load_examples, survey
from tpu_console.engine.errors import DataError
from tpu_console.engine.preflight.choice import batch_of
from tpu_console.tui.text.inspection import page

ROWS = 60


def passengers(folder: Path) -> Path:
    """Write who survived: women, whatever else they are."""
    heading = ["Id", "Survived", "Ship", "Name", "Sex", "Age", "Port"]
    rows = []
    for n in range(ROWS):
        saved, sex = ("no", "male") if n % 3 else ("yes", "female")
        rows.append([n + 1, saved, "Titanic", f"Mr {n} of X", sex, n % 50 or "?", "SC"[n % 2]])
    with (folder / "people.csv").open("w", newline="") as file:
        csv.writer(file).writerows([heading, *rows])
    return folder / "people.csv"


def houses(folder: Path) -> Path:
    """Write prices of houses, separated by ``;``."""
    random = np.random.default_rng(0)
    lines = ["rooms;town;price"]
    for n in range(400):
        rooms, town = int(random.integers(1, 9)), "ab"[n % 2]
        lines.append(f"{rooms};{town};{100_000 * rooms + (50_000 if town == 'b' else 0)}")
    (folder / "houses.csv").write_text("\n".join(lines) + "\n")
    return folder / "houses.csv"


def config(path: Path, label: str, **options: Any) -> RunConfig:
    values = {"dataset": "table-csv", "model": "mlp", "batch_size": 8, "epochs": 1}
    if options.get("label_type") == "number":
        values |= {"loss": "mean_squared_error", "metrics": ["mean_absolute_error"]}
    return parse_config(values | {"data": {"options": {"path": str(path), "label": label, **options}}})


def loaded(path: Path, label: str, **options: Any) -> Examples:
    return load_examples(config(path, label, **options), lambda _: None)


def test_the_label_is_asked_for_unless_it_has_a_usual_name_and_useless_columns_are_left_out(tmp_path: Path) -> None:
    table = passengers(tmp_path)
    with pytest.raises(UndecidedError) as asked:
        first_run(str(table))
    assert [*asked.value.question.answers] == ["Port", "Age", "Sex", "Survived"]
    assert "data.options.label=Port" in asked.value.remedy
    start = first_run(str(table), [("data.options.label", "Survived")])
    options = start.config.data.options
    assert (start.config.dataset, options["label_type"]) == ("table-csv", "class")
    assert start.config.loss == "sparse_categorical_crossentropy"
    assert options["left_out"] == ["Id", "Ship", "Name"]
    said = " ".join(text for _, text in start.notes)
    for reason in ("Id (counts the rows)", "Ship (always the same)", "Name (nearly every value differs)", "yes 20"):
        assert reason in said
    named = tmp_path / "named.csv"
    named.write_text(table.read_text().replace("Survived", "Target"))
    assert guess(str(named))[1]["label"] == "Target"
    prices = first_run(str(houses(tmp_path)), [("data.options.label", "price")])
    assert (prices.config.loss, prices.config.metrics) == ("mean_squared_error", ("mean_absolute_error",))
    (tmp_path / "train.csv").write_text(named.read_text())
    assert guess(str(tmp_path))[1]["path"] == str(tmp_path / "train.csv")


def test_a_column_of_numbers_with_a_mistake_is_not_left_out_but_refused_with_its_line(tmp_path: Path) -> None:
    table = tmp_path / "sizes.csv"
    rows = [f"{n / 7:.3f},{'unknown' if n == 30 else f'{n / 3:.3f}'},{n % 2}" for n in range(60)]
    table.write_text("\n".join(["width,height,label", *rows]))
    found = first_run(str(table)).config
    assert found.data.options["left_out"] == []
    with pytest.raises(DataError, match="line 32: no number in column 'height'"):
        load_examples(found, lambda _: None)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (["1", "2", "2", "1"] * 5, "class"),
        ([str(n % 20) for n in range(60)], "class"),
        ([str(n % 21) for n in range(60)], "number"),
        (["1000", "1001"] * 8, "class"),
        (["100000", "200000", "300000"] * 5, "number"),
        (["0.5", "1", "1", "0.5"] * 5, "number"),
        ([*["0.5", "1", "1.5"] * 8, "typo"], "number"),
        ([*["0.5", "1", "1.5"] * 6, "a"], "class"),
        ([*["1", "2", "3"] * 8, "other"], "class"),
        (["a", "1", "1", "a"] * 5, "class"),
        (["", "NA"] * 5, "class"),
    ],
)
def test_a_label_is_a_number_if_it_has_fractions_or_many_values(tmp_path: Path, labels: list[str], kind: str) -> None:
    table = tmp_path / "t.csv"
    table.write_text("x,label\n" + "".join(f"{n % 7},{label}\n" for n, label in enumerate(labels)))
    assert guess(str(table))[1]["label_type"] == kind


def test_numbers_are_scaled_by_the_training_rows_and_categories_are_ones(tmp_path: Path) -> None:
    examples = loaded(passengers(tmp_path), "Survived", left_out=["Id", "Ship", "Name"])
    record = dict(examples.record)
    assert json.loads(json.dumps(record)) == {**record, "class_names": ["no", "yes"]}
    assert (examples.class_names, examples.signature.classes) == (("no", "yes"), 2)
    assert examples.signature.shape == (1 + 2 + 2,)
    rows = [(x, int(y)) for part in (examples.train, examples.validation) for x, y in part.as_numpy_iterator()]
    assert len(rows) == ROWS
    assert record["categories"] == {"Sex": ["female", "male"], "Port": ["C", "S"]}
    assert all(x[1] == y and x[2] == 1 - y and x[3] + x[4] == 1 for x, y in rows)
    train = np.stack([x for x, _ in examples.train.as_numpy_iterator()])
    known = train[:, 0][train[:, 0] != 0]  # an empty cell is the mean
    assert abs(known.mean()) < 1e-5
    assert known.std() == pytest.approx(1, abs=1e-5)
    scale = record["numbers"]["Age"]
    ages = {round(float(x[0] * scale["deviation"] + scale["mean"]), 3) for x, _ in rows}
    assert {float(age) for age in range(1, 50)} <= ages
    counts = survey(config(tmp_path / "people.csv", "Survived"))
    assert counts.classes == {"no": 40, "yes": 20}
    assert counts.train(0.2) == examples.train_count


def test_numbers_that_name_something_are_categories_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("zip,label\n" + "".join(f"{n % 3},{'ab'[n % 2]}\n" for n in range(30)))
    assert loaded(path, "label").signature.shape == (1,)
    assert loaded(path, "label", categories=["zip"]).signature.shape == (3,)
    wide = tmp_path / "wide.csv"
    wide.write_text("town,label\n" + "".join(f"town {n % 150},{'ab'[n % 2]}\n" for n in range(600)))
    examples = loaded(wide, "label")
    assert examples.signature.shape == (100,)
    assert any("150 different values" in notice for notice in examples.notices)


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("a,label\n" + "1,x\n2,y\n" * 20 + "oops,x\n", {}, ["line 42", "no number in column 'a'"]),
        ("a,label\n" + "1,x\n2,y\n" * 9 + "NAN,x\n" * 2, {}, ["lines: 20, 21", "no number in column 'a'"]),
        ("a,label\n" + "1,x\n2,y\n" * 20 + "3,\n", {}, ["line 42", "nothing in column 'label'"]),
        ("a,label\n1,x\n2,x\n3,x\n", {}, ["all 3 labels", "data.options.label"]),
        ("a,label\n1,x\n2,y\n3,z\n", {}, ["3 different labels"]),
        ("a,lable\n1,x\n2,y\n", {}, ["no column 'label'", "lable"]),
        ("a,label\n1,1\n2,2\n", {"left_out": ["b"]}, ["no column 'b'", "left_out"]),
        ("label,b\n1,1\n2,1\n1,2\n2,2\n", {"left_out": ["b"]}, ["no column to learn from"]),
        ("a,label\n1,1.5\n2,x\n", {"label_type": "number"}, ["line 3", "no number in column 'label'"]),
    ],
)
def test_a_bad_table_is_refused_with_line_and_column(
    tmp_path: Path, content: str, options: dict[str, Any], words: list[str]
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        loaded(path, "label", **options)
    assert all(word in str(caught.value) for word in ["bad.csv", *words])


@pytest.mark.parametrize("content", ["a,a\n1,2\n", "a\n1\n2\n"])
def test_a_table_without_names_of_columns_says_what_to_add(tmp_path: Path, content: str) -> None:
    path = tmp_path / "bare.csv"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        guess(str(path))
    assert "bare.csv" in caught.value.what
    assert "first line" in caught.value.remedy


@pytest.mark.parametrize("left_out", [[], ["rooms"], ["town"]])
def test_a_script_reads_numbers_and_categories_or_only_one_of_them_as_the_run_did(
    tmp_path: Path, left_out: list[str]
) -> None:
    prices = config(houses(tmp_path), "price", label_type="number", left_out=left_out)
    assert_script_reads(prices, load_examples(prices, lambda _: None))


@pytest.mark.slow
def test_prices_are_inspected_trained_on_and_predicted(tmp_path: Path, job: Job) -> None:
    start = first_run(str(houses(tmp_path)), [("data.options.label", "price")]).config
    shapes = batch_of(start)
    assert (shapes.signature.shape, shapes.signature.task) == ((3,), Task.NUMBER)
    shown = "\n".join(page("table-csv", start.data.options, inspected(start), 80))
    assert "1 to 8, mean" in shown
    assert "a 200, b 200" in shown
    settings = {"data": start.data.model_dump(mode="json"), "loss": start.loss, "metrics": list(start.metrics)}
    run = train(small_config(dataset="table-csv", epochs=2, **settings), tmp_path)
    new = tmp_path / "new.csv"
    new.write_text("id,town,rooms\nx,a,2\ny,b,7\nz,never seen,\n")
    rows = job(run, new)
    assert [row["id"] for row in rows] == ["x", "y", "z"]
    assert len({float(row["price"]) for row in rows}) == 3
    new.write_text("town, rooms\na, 2\na, 7\n")  # spaces, and nothing to keep
    assert [row["row"] for row in job(run, new, force=True)] == ["1", "2"]
    new.write_text("town,rooms\na,two\n")
    with pytest.raises(DataError, match=r"new\.csv, line 2: no number in column 'rooms'"):
        job(run, new, force=True)
