"""What was measured of a pipeline is known to the plan, and of no other pipeline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import private_mode, small_config
from tpu_console.engine.data.cached_facts import Speed, input_speed_of, save_input_speed
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning.plan import make_plan

if TYPE_CHECKING:
    from pathlib import Path

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
