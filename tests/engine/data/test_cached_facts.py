"""What a function gave, and how fast an input pipeline was, is cached for the same function, options and settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import private_mode, small_config
from tpu_console.engine.data.cached_facts import (
    FunctionRecord,
    Speed,
    function_record_of,
    input_speed_of,
    save_function_record,
    save_input_speed,
)
from tpu_console.engine.data.examples import Input
from tpu_console.engine.data.survey.survey import train_examples_of
from tpu_console.engine.findings import Severity
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning.plan import make_plan

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.config.run_config import RunConfig

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
    assert private_mode(private_home / "examples.json") == 0o600


def test_another_function_or_option_was_not_seen(file: Path) -> None:
    save_function_record(config_of(file), RECORD)
    assert function_record_of(config_of(file, data={"options": {"size": 3}})) is None
    assert function_record_of(small_config(dataset=f"{file}:other")) is None


def test_a_changed_file_was_not_seen(file: Path) -> None:
    save_function_record(config_of(file), RECORD)
    file.write_text("raise SystemExit('it was loaded, and is another')\n", encoding="utf-8")
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
        ("np.zeros(SIZE)", "np.ones(SIZE)", False),
        ("(SIZE, 2)", "(SIZE, 3)", False),
        ("SIZE = 4", "SIZE = 5", False),
        ("import numpy as np", "import other as np", False),
        ("SIZE = 4", "SIZE = 4\nnp.random.seed(1)", False),
        ("SIZE = 4", "SIZE = 4\nRATE = 5", True),
    ],
)
def test_only_the_function_and_what_it_uses_count(file: Path, old: str, new: str, is_known: bool) -> None:
    file.write_text(_OWN, encoding="utf-8")
    save_function_record(config_of(file), RECORD)
    file.write_text(_OWN.replace(old, new), encoding="utf-8")
    assert (function_record_of(config_of(file)) is not None) is is_known


def test_a_function_that_may_use_any_name_depends_on_the_whole_file(file: Path) -> None:
    file.write_text(f"{_OWN}def data(): return globals()['examples']()\n", encoding="utf-8")
    save_function_record(config_of(file), RECORD)
    file.write_text(file.read_text(encoding="utf-8").replace("a model", "another"), encoding="utf-8")
    assert function_record_of(config_of(file)) is None


def test_a_file_is_the_same_from_wherever_it_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_function_record(config_of(file), RECORD)
    monkeypatch.chdir(file.parent)
    assert function_record_of(small_config(dataset="own.py:data")) == RECORD


def test_a_missing_module_is_identified_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_function_record(small_config(dataset="nowhere.to.be:found"), RECORD)
    assert function_record_of(small_config(dataset="nowhere.to.be:found")) == RECORD
    assert function_record_of(small_config(dataset="nowhere.to.be:seen")) is None


@pytest.mark.parametrize("value", [[], {}, {"train": 3}, {"train": [{"shape": [1]}, None]}, {"train_count": "forty"}])
def test_a_damaged_record_counts_as_missing(file: Path, private_home: Path, value: object) -> None:
    save_function_record(config_of(file), RECORD)
    path = private_home / "examples.json"
    ((key, record),) = json.loads(path.read_text(encoding="utf-8")).items()
    changed = {**record, **value} if isinstance(value, dict) and value else value
    path.write_text(json.dumps({key: changed}), encoding="utf-8")
    assert function_record_of(config_of(file)) is None


def test_the_plan_uses_the_record_of_the_last_call_and_says_so(file: Path) -> None:
    save_function_record(config_of(file), RECORD)
    plan = make_plan(config_of(file, batch_size=8), Hardware())
    assert (plan.train_examples, plan.steps_per_epoch) == (40, 5)
    assert any("returned 40 examples" in item.text and "2026-03-01" in item.text for item in plan.advice)
    assert train_examples_of(config_of(file, data={"options": {"size": 3}})) is None


def test_a_recorded_count_warns_but_refuses_nothing(file: Path) -> None:
    save_function_record(config_of(file), RECORD)
    plan = make_plan(config_of(file, batch_size=64), Hardware())
    assert plan.is_possible
    assert any(
        item.severity is Severity.WARNING and "largest batch size that fits is 40" in item.text for item in plan.advice
    )


PARTS = [{"name": "reading", "per_s": 9.0}, {"name": "first", "per_s": 120.0}, {"name": "later", "per_s": 900.5}]


def test_nothing_is_known_before_it_was_measured() -> None:
    assert input_speed_of(small_config()) is None
    assert make_plan(small_config(), Hardware()).input_speed is None


def test_the_plan_includes_the_measured_speed(private_home: Path) -> None:
    save_input_speed(small_config(), PARTS)
    assert make_plan(small_config(), Hardware()).input_speed == Speed(120.0, 900.5)
    assert private_mode(private_home / "speeds.json") == 0o600
    assert [path.name for path in private_home.iterdir()] == ["speeds.json"]


@pytest.mark.parametrize("changes", [{"epochs": 9}, {"batch_size": 64}, {"model": "cnn", "model_options": {}}])
def test_settings_that_do_not_change_the_pipeline_keep_the_measured_speed(changes: dict[str, Any]) -> None:
    save_input_speed(small_config(), PARTS)
    assert input_speed_of(small_config(**changes)) == Speed(120.0, 900.5)


@pytest.mark.parametrize(
    "changes", [{"augmentation": {"flip": "both"}}, {"data": {"cache": "off"}}, {"dataset": "mnist"}]
)
def test_another_pipeline_was_not_measured(changes: dict[str, Any]) -> None:
    save_input_speed(small_config(), PARTS)
    assert input_speed_of(small_config(**changes)) is None


def test_a_new_measurement_takes_the_place_of_the_old_one() -> None:
    save_input_speed(small_config(), PARTS)
    save_input_speed(small_config(data={"cache": "off"}), PARTS[:2])
    save_input_speed(small_config(), [{"name": "first", "per_s": 1.0}])
    assert input_speed_of(small_config()) == Speed(1.0, None)
    assert input_speed_of(small_config(data={"cache": "off"})) == Speed(120.0, None)


@pytest.mark.parametrize(
    "value", [{"first": "fast", "later": None}, {"first": 1.0, "later": "2"}, {"first": 0.0, "later": None}]
)
def test_a_wrong_value_counts_as_missing(private_home: Path, value: dict[str, Any]) -> None:
    save_input_speed(small_config(), PARTS)
    path = private_home / "speeds.json"
    (key,) = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({key: value}), encoding="utf-8")
    assert input_speed_of(small_config()) is None


@pytest.mark.parametrize("content", ["", "[]", "{", '{"x": 1}'])
def test_a_damaged_file_counts_as_no_measurement(private_home: Path, content: str) -> None:
    private_home.mkdir()
    (private_home / "speeds.json").write_text(content, encoding="utf-8")
    assert input_speed_of(small_config()) is None
    save_input_speed(small_config(), PARTS)
    assert input_speed_of(small_config()) == Speed(120.0, 900.5)
