"""Tables as people have them: which row has the names of the columns, and how long lists and names are written."""

import io
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.helpers import small_config
from tpu_console.engine.data.row_files import WINDOWS
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
