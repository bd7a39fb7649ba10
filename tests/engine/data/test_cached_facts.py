"""What a function gave, and how fast an input pipeline was, is cached for the same function, options and settings."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import private_mode, small_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.cached_facts import (
    FunctionRecord,
    Speed,
    function_record_of,
    input_speed_of,
    save_function_record,
    save_input_speed,
)
from tpu_console.engine.data.examples import Input
from tpu_console.engine.data.kinds.table import train_examples_of
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning import make_plan

IMAGE, LABEL = Input((12, 12, 3), "uint8"), Input((), "int64")
RECORD = FunctionRecord((IMAGE, LABEL, Input(())), (IMAGE, LABEL), 3, 40, 16, "2026-03-01")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text("raise SystemExit('it was loaded')\ndef data(): ...\n", encoding="utf-8")
    return path


def config_of(file: Path, **changes: Any) -> RunConfig:
    return small_config(dataset=f"{file}:data", **changes)


def test_a_record_is_read_back_unchanged(file: Path, private_home: Path) -> None:
    assert function_record_of(config_of(file)) is None
    save_function_record(config_of(file), RECORD)
    assert function_record_of(config_of(file, epochs=9, batch_size=4)) == RECORD
    assert function_record_of(config_of(file, data={"options": {"size": 3}})) is None
    assert function_record_of(small_config(dataset=f"{file}:other")) is None
    assert private_mode(private_home / "examples.json") == 0o600
    file.write_text("def data(): return 1\n", encoding="utf-8")
    assert function_record_of(config_of(file)) is None


_OWN = """import numpy as np
SIZE = 4
def examples():
    return np.ones((SIZE, 2))
def data():
    return examples(), np.zeros(SIZE)
def build(shape, classes):
    return "a model"
"""


@pytest.mark.parametrize(
    ("old", "new", "is_known"),
    [
        ("a model", "another", True),
        ("def build", "# what is trained\ndef build", True),
        ("SIZE = 4", "SIZE = 4\nRATE = 5", True),
        ("np.zeros(SIZE)", "np.ones(SIZE)", False),
        ("(SIZE, 2)", "(SIZE, 3)", False),
        ("SIZE = 4", "SIZE = 5", False),
        ("import numpy as np", "import other as np", False),
        ("SIZE = 4", "SIZE = 4\nnp.random.seed(1)", False),
        ("return examples()", "return globals()['examples']()", False),  # which may be anything
    ],
)
def test_only_the_function_and_what_it_uses_count(file: Path, old: str, new: str, is_known: bool) -> None:
    file.write_text(_OWN, encoding="utf-8")
    save_function_record(config_of(file), RECORD)
    file.write_text(_OWN.replace(old, new), encoding="utf-8")
    assert (function_record_of(config_of(file)) is not None) is is_known


def test_the_plan_uses_the_record_of_the_last_call_and_says_so(file: Path) -> None:
    save_function_record(config_of(file), RECORD)
    plan = make_plan(config_of(file, batch_size=8), Hardware())
    assert (plan.train_examples, plan.steps_per_epoch) == (40, 5)
    assert any("returned 40 examples" in item.text and "2026-03-01" in item.text for item in plan.advice)
    assert train_examples_of(config_of(file, data={"options": {"size": 3}})) is None
    assert make_plan(config_of(file, batch_size=64), Hardware()).is_possible  # the next call may return more


PARTS = [{"name": "reading", "per_s": 9.0}, {"name": "first", "per_s": 120.0}, {"name": "later", "per_s": 900.5}]


def test_the_plan_includes_the_measured_speed_unless_another_pipeline_was_measured(private_home: Path) -> None:
    save_input_speed(small_config(), PARTS)
    assert make_plan(small_config(), Hardware()).input_speed == Speed(120.0, 900.5)
    assert private_mode(private_home / "speeds.json") == 0o600
    assert [path.name for path in private_home.iterdir()] == ["speeds.json"]
    same: list[dict[str, Any]] = [{"epochs": 9}, {"batch_size": 64}, {"model": "cnn", "model_options": {}}]
    others: list[dict[str, Any]] = [
        {"augmentation": {"flip": "both"}},
        {"data": {"cache": "off"}},
        {"dataset": "mnist"},
    ]
    found = [input_speed_of(small_config(**changes)) for changes in same + others]
    assert found == [Speed(120.0, 900.5)] * 3 + [None] * 3


@pytest.mark.parametrize(
    "value", [{"first": "fast", "later": None}, {"first": 1.0, "later": "2"}, {"first": 0.0, "later": None}]
)
def test_a_wrong_value_counts_as_missing(private_home: Path, value: dict[str, Any]) -> None:
    save_input_speed(small_config(), PARTS)
    path = private_home / "speeds.json"
    (key,) = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({key: value}), encoding="utf-8")
    assert input_speed_of(small_config()) is None
