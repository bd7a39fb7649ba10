"""The table of kinds: which one reads a dataset, what is a name, and what a run's record must hold."""

from pathlib import Path
from typing import Any

import pytest

from tests.helpers import small_config
from tpu_console.engine.data.kinds import table
from tpu_console.engine.data.kinds.built_in import BUILT_IN
from tpu_console.engine.data.kinds.kind import DatasetKind
from tpu_console.engine.errors import DataError

NOT_AS_CODE = {"tfrecord", "text-pairs", "ratings-csv"}
"""Kinds whose runs are exported as a model only."""


def test_every_dataset_has_a_kind_and_any_other_name_is_a_function() -> None:
    assert [table.kind_of(name).name for name in table.dataset_names()] == [*table.dataset_names()]
    assert all(table.new_data(small_config(dataset=name), {}) for name in BUILT_IN)
    assert table.kind_of("mine.py:data") is table.USER_FUNCTION
    assert table.option_sections().keys().isdisjoint(BUILT_IN)


@pytest.mark.parametrize("name", table.dataset_names())
def test_every_kind_says_what_it_is_predicts_new_data_and_is_exported(name: str) -> None:
    kind = table.kind_of(name)
    assert kind.title
    assert kind.new_data
    assert callable(kind.predict)
    assert (type(kind).write_code is not DatasetKind.write_code) == (name not in NOT_AS_CODE)


@pytest.mark.parametrize(
    ("text", "is_data"),
    [("tfds:mnist", True), ("kaggle:a/b", True), ("mine.py:data", False), ("npz:x", False), ("tfds", False)],
)
def test_a_name_is_told_from_a_function_and_a_path(text: str, is_data: bool) -> None:
    assert table.is_name(text) == is_data


@pytest.mark.parametrize(
    ("dataset", "content", "expected"),
    [
        ("mnist", None, {}),
        ("mine.py:data", None, {}),
        ("image-csv", None, {}),
        ("text-csv", None, "has no inputs.json"),
        ("image-csv", '{"suffix": ".jpg"}', {"suffix": ".jpg"}),
        ("mnist", '{"activation": "relu"}', "inputs.json is damaged.*activation"),
        ("mine.py:data", '{"returned": []}', "inputs.json is damaged. returned: "),
        ("hf", '{"numbers": {}, "categories": {}, "label_column": 3}', "inputs.json is damaged. the file|label_column"),
        ("mnist", "[", "inputs.json is damaged or cannot be read"),
    ],
)
def test_the_record_of_a_run_is_checked_by_its_kind(
    dataset: str, content: str | None, expected: dict[str, Any] | str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "inputs.json").write_text(content)
    if isinstance(expected, dict):
        assert table.read_record(tmp_path / "inputs.json", dataset) == expected
    else:
        with pytest.raises(DataError, match=expected):
            table.read_record(tmp_path / "inputs.json", dataset)
