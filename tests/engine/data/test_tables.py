"""Tables as people have them: names of columns, Parquet and JSON Lines read as a CSV is, and what is refused."""

import gzip
import io
import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.engine.data.scripting import assert_script_reads
from tests.engine.jobs.predicting import Job, train
from tests.helpers import small_config
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.data.kinds.formats import config_for, first_run
from tpu_console.engine.data.kinds.table import load_examples, survey
from tpu_console.engine.data.row_files import UTF_8, UTF_16, WINDOWS, decoded, encoding_of
from tpu_console.engine.data.tables import (
    class_order,
    first_of,
    kept_columns,
    noted,
    open_rows,
    read_table,
    refuse_class_options,
    refuse_missing,
    require,
    short_name,
)
from tpu_console.engine.errors import DataError


@pytest.mark.parametrize(
    ("content", "heading", "is_named"),
    [
        ("a,b\n1,2\n", ["a", "b"], True),
        (", b\n1, 2\n", ["Unnamed: 0", "b"], True),
        ("v1,v2,,\na,b,,\nc,d,,\n", ["v1", "v2", "Unnamed: 2", "Unnamed: 3"], True),  # empty cells repeat nothing
        ("1,b\n1,c\n", ["x", "column_2"], False),
        ("yes,b\nno,b\nyes,c\n", ["x", "column_2"], False),  # a word that appears again
        ("a,b\na,b\n", ["a", "b"], True),  # a header that is written twice
        ("0,1,2\n5,5,5\n", ["0", "1", "2"], True),
        ("1999,2000\n5,5\n", ["1999", "2000"], True),
        ("3,4\n5,5\n", ["x", "column_2"], False),
        ("0,2\n5,5\n", ["x", "column_2"], False),
        ("0,\n5,5\n", ["0", "Unnamed: 1"], True),  # as pandas writes a series
        ("7\n8\n", ["7"], True),
        ("", [], True),
    ],
)
def test_names_of_columns_are_told_from_values(content: str, heading: list[str], is_named: bool) -> None:
    rows = open_rows(io.BytesIO(content.encode()), "table.csv", ["x"])
    assert (rows.heading, rows.is_named) == (heading, is_named)
    assert [line for line, _ in rows.rows] == [*range(1 + is_named, content.count("\n") + 1)]


@pytest.mark.parametrize(
    ("separator", "cells"), [("\t", ["a", "1,5"]), (",", ["a", "1.5"]), ("::", ["a", "1.5"]), (";", ["a", "1.5"])]
)
def test_the_separator_is_that_of_the_first_line(separator: str, cells: list[str]) -> None:
    value = "1,5" if separator in "\t;" else "1.5"  # a decimal comma only beside semicolons
    content = f"x{separator}y\n\n  \na{separator}{value}\n"
    assert [*open_rows(io.BytesIO(content.encode()), "t.csv").rows] == [(4, cells)]


@pytest.mark.parametrize(
    ("content", "recorded"),
    [
        ("a,b\n1,2\n", {}),
        ("1,2\n3,5\n", {"nameless": 2}),
        ("a;b\n1;2\n", {"separator": ";"}),
        ("a,b\n1,niño\n", {"encoding": WINDOWS}),
    ],
)
def test_how_a_table_is_written_is_recorded_if_it_is_not_as_usual(
    tmp_path: Path, content: str, recorded: dict[str, object]
) -> None:
    (tmp_path / "t.csv").write_text(content, encoding=WINDOWS)
    assert noted(read_table(str(tmp_path / "t.csv"), {})) == recorded


def test_rows_without_names_are_numbered_from_1() -> None:
    assert [*open_rows(io.BytesIO(b'{"a": 7}\n{"a": 8}\n'), "t.jsonl").rows] == [(1, ["7"]), (2, ["8"])]
    table = pd.DataFrame({"a": ["x", "y"], "b": ["z", None]})
    assert kept_columns(table, ["a", "b"]).to_dict("list") == {"row": ["1", "2"]}
    assert kept_columns(table, ["a", "gone"]).to_dict("list") == {"b": ["z", ""]}


@pytest.mark.parametrize(
    ("cells", "said"), [(["a", "b"], ""), (["a", " "], "line 3: "), ([None, ""], "2 lines: 2, 3: ")]
)
def test_the_lines_with_nothing_in_a_column_are_named(cells: list[str | None], said: str) -> None:
    with pytest.raises(DataError, match=said) if said else nullcontext():
        refuse_missing("t.csv", pd.DataFrame({"x": cells}, index=[2, 3]), ["x"])


def test_long_lists_and_names_are_shortened() -> None:
    assert [first_of(["a", "b", "c"][:count], 2) for count in (1, 2, 3)] == ["a", "a, b", "a, b and 1 more"]
    assert first_of(["a", "b"], 1, "; ") == "a; and 1 more"
    names = ["x" * 60, "a" * 40 + "b" * 20 + "c"]
    assert [short_name(name) for name in names] == [names[0], "a" * 40 + "…" + "b" * 18 + "c"]
    assert sorted(["10", "9", "b", "nan", "a"], key=class_order) == ["9", "10", "a", "b", "nan"]


@pytest.mark.parametrize("changes", [{"label_smoothing": 0.1}, {"class_weight": "balanced"}])
def test_options_for_classes_are_refused_without_them(changes: dict[str, object]) -> None:
    refuse_class_options(small_config())
    with pytest.raises(DataError, match=next(iter(changes))):
        refuse_class_options(small_config(**changes))


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        *(({}, ""), ({"model": "cnn"}, "model"), ({"loss": "mean_squared_error"}, "loss")),
        *(({"metrics": ["accuracy", "auc"]}, "metric"), ({"metrics": ["accuracy", "mine.py:score"]}, "")),
        *(({"model": "mine.py:build"}, ""), ({"loss": "mine.py:loss"}, "")),
    ],
)
def test_what_does_not_suit_a_dataset_is_refused_unless_it_is_the_user_s(changes: dict[str, Any], wrong: str) -> None:
    config = small_config(model_options={}, **changes)
    with pytest.raises(DataError, match=wrong) if wrong else nullcontext():
        require(config, "mlp", ("sparse_categorical_crossentropy",), ("accuracy",))


REVIEWS = [{"text": f"it was {word}, said\nreader {n}", "label": word} for n in range(20) for word in ("good", "bad")]
HOUSES = [{"rooms": n % 8, "town": "ab"[n % 2], "size": n / 7 if n % 5 else None, "price": 1.5 * n} for n in range(60)]
RATINGS = [{"user": n % 5, "item": n % 7, "rating": n % 3} for n in range(30)]


def written(folder: Path, ending: str, rows: list[dict[str, Any]]) -> Path:
    path, table = folder / f"data{ending}", pd.DataFrame(rows)
    if ending == ".parquet":
        table.to_parquet(path)
    elif ending in {".csv", ".tsv"}:
        table.to_csv(path, index=False, sep="," if ending == ".csv" else "\t")
    else:
        content = "\n\n".join(map(json.dumps, rows)).encode()  # blank lines are no rows
        path.write_bytes(gzip.compress(content) if ending == ".jsonl.gz" else content)
    return path


@pytest.mark.parametrize("ending", [".parquet", ".jsonl", ".jsonl.gz"])
@pytest.mark.parametrize("rows", [REVIEWS, HOUSES, RATINGS])
def test_they_are_trained_on_as_the_same_table_in_a_csv(
    tmp_path: Path, ending: str, rows: list[dict[str, Any]]
) -> None:
    changes = [("data.options.label", "price")] if rows is HOUSES else []
    csv, other = (first_run(str(written(tmp_path, one, rows)), changes).config for one in (".csv", ending))
    assert with_changes(other, [("data.options.path", csv.data.options["path"])]) == csv
    assert survey(other) == survey(csv)
    assert load_examples(other, lambda _: None).record == load_examples(csv, lambda _: None).record


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".jsonl"])
def test_a_row_without_a_label_is_found_before_the_run(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path, ending, [{"text": "good", "label": "x"}, {"text": "bad", "label": None}])
    (problem,) = survey(config_for("text-csv", {"path": str(path)})).problems
    assert f"{path}, line {3 if ending == '.csv' else 2}: nothing in column 'label'" in problem.message


def test_columns_that_are_no_texts_or_numbers_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, ".parquet", [{**row, "photo": b"\xff", "tags": ["a"]} for row in HOUSES])
    config = first_run(str(path), [("data.options.label", "price")]).config
    inputs = load_examples(config, lambda _: None).record
    assert [*inputs["numbers"], *inputs["categories"]] == ["rooms", "size", "town"]
    lines = written(tmp_path, ".jsonl", [{**row, "tags": ["a"], "from": {"x": 1}} for row in HOUSES])
    assert first_run(str(lines), [("data.options.label", "price")]).config.data.options["left_out"] == []


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("x.jsonl", b'{"text": "a b c d", "label": 1}\n{"text": oops\n', r"x\.jsonl, line 2"),
        ("x.jsonl", b'{"text": "a b c d", "label": 1}\n\n["a", 1]\n', r"x\.jsonl, line 3"),
        ("x.jsonl", b'{"text": "\xff\0"}\n', r"x\.jsonl is not text: its byte 12"),
        ("x.jsonl", b"[" * 100_000, r"x\.jsonl, line 1"),
        ("x.jsonl", b'{"a": 1, "label": 2}\n' * 2000 + b'{"c": 1}', r"x\.jsonl, line 2,001: .*'c'"),
        ("x.jsonl", b'{"a": 1, "label": 2}\n{"a": 2, "label": null}\n', r"x\.jsonl, line 2: nothing in column 'label'"),
        ("x.parquet", b"PAR1\x15\t\x04", r"x\.parquet is damaged"),
        ("x.parquet", b"", r"x\.parquet is damaged"),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=expected):
        load_examples(config_for("table-csv", {"path": str(tmp_path / name)}), lambda _: None)


@pytest.mark.parametrize(
    ("content", "encoding", "said"),
    [
        (b"", UTF_8, ""),
        ("niño".encode(), UTF_8, ""),
        ("\0niño".encode(), UTF_8, ""),
        (b"ni\xf1o", WINDOWS, ""),
        ("niño".encode("utf-16"), UTF_16, ""),
        (b"\0ni\xf1o", "", "byte 1 "),
        (b"ni\xf1o\0", "", "byte 5 "),
    ],
)
def test_the_encoding_of_a_text_is_known_and_what_is_no_text_is_refused(
    tmp_path: Path, content: bytes, encoding: str, said: str
) -> None:
    (tmp_path / "link.txt").symlink_to(tmp_path / "x.txt")
    (tmp_path / "x.txt").write_bytes(content)
    with pytest.raises(DataError, match=said) if said else nullcontext():
        assert encoding_of(io.BytesIO(content), "x.txt") == encoding
    with pytest.raises(DataError, match=said or "is empty") if said or not content else nullcontext():
        assert decoded(str(tmp_path / "link.txt")) == (content.decode(encoding), encoding)


def test_a_run_on_parquet_predicts_json_lines(tmp_path: Path) -> None:
    path = written(tmp_path, ".parquet", REVIEWS)
    config = first_run(str(path)).config
    settings = {"dataset": config.dataset, "model": config.model, "data": config.data.model_dump(mode="json")}
    run = train(small_config(epochs=1, model_options={}, **settings), tmp_path)
    new = written(tmp_path, ".jsonl", [{"text": "it was good", "id": 7}, {"text": "it was bad", "id": "\ud800"}])
    predicted = Job(tmp_path)(run, new)
    assert [row["id"] for row in predicted] == ["7", "?"]
    assert {row["label"] for row in predicted} <= {"good", "bad"}


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".jsonl.gz"])
@pytest.mark.parametrize("rows", [REVIEWS, HOUSES])
def test_a_script_reads_them_as_the_run_did(tmp_path: Path, ending: str, rows: list[dict[str, Any]]) -> None:
    changes = [("data.options.label", "price")] if rows is HOUSES else []
    config = first_run(str(written(tmp_path, ending, rows)), changes).config
    assert_script_reads(config, load_examples(config, lambda _: None))
