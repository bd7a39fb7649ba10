"""What a dataset function gave is remembered, as long as the function and its options are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import private_mode, small_config
from tpu_console.engine.data.examples import Input
from tpu_console.engine.data.function_record import Seen, recall, remember
from tpu_console.engine.findings import Severity
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning.example_count import train_examples_of
from tpu_console.engine.planning.plan import make_plan

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.config.run_config import RunConfig

SEEN = Seen(Input((12, 12, 3), "uint8"), Input((), "int64"), 3, 40, 16, "2026-03-01", weight=())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text("raise SystemExit('it was loaded')\n", encoding="utf-8")
    return path


def config_of(file: Path, **changes: Any) -> RunConfig:
    return small_config(dataset=f"{file}:data", **changes)


def test_what_was_seen_comes_back_as_it_was(file: Path, private_home: Path) -> None:
    assert recall(config_of(file)) is None
    remember(config_of(file), SEEN)
    assert recall(config_of(file, epochs=9, batch_size=4)) == SEEN
    assert private_mode(private_home / "examples.json") == 0o600


def test_another_function_or_option_was_not_seen(file: Path) -> None:
    remember(config_of(file), SEEN)
    assert recall(config_of(file, data={"options": {"size": 3}})) is None
    assert recall(small_config(dataset=f"{file}:other")) is None


def test_a_changed_file_was_not_seen(file: Path) -> None:
    remember(config_of(file), SEEN)
    file.write_text("raise SystemExit('it was loaded, and is another')\n", encoding="utf-8")
    assert recall(config_of(file)) is None


def test_a_file_is_the_same_from_wherever_it_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(config_of(file), SEEN)
    monkeypatch.chdir(file.parent)
    assert recall(small_config(dataset="own.py:data")) == SEEN


def test_a_module_that_nobody_finds_is_known_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    remember(small_config(dataset="nowhere.to.be:found"), SEEN)
    assert recall(small_config(dataset="nowhere.to.be:found")) == SEEN
    assert recall(small_config(dataset="nowhere.to.be:seen")) is None


@pytest.mark.parametrize("value", [[], {}, {"example": 3}, {"example": {"shape": [1]}, "label": None}])
def test_damaged_values_are_nothing_seen(file: Path, monkeypatch: pytest.MonkeyPatch, value: object) -> None:
    monkeypatch.setattr("tpu_console.engine.data.function_record._EXAMPLES.get", lambda _key: value)
    assert recall(config_of(file)) is None


def test_the_plan_counts_with_what_was_seen_and_says_so(file: Path) -> None:
    remember(config_of(file), SEEN)
    plan = make_plan(config_of(file, batch_size=8), Hardware())
    assert (plan.train_examples, plan.steps_per_epoch) == (40, 5)
    assert any("returned 40 examples" in item.text and "2026-03-01" in item.text for item in plan.advice)
    assert train_examples_of(config_of(file, data={"options": {"size": 3}})) is None


def test_nothing_is_refused_for_what_was_seen_once(file: Path) -> None:
    remember(config_of(file), SEEN)
    plan = make_plan(config_of(file, batch_size=64), Hardware())
    assert plan.is_possible
    assert any(
        item.severity is Severity.WARNING and "largest batch size that fits is 40" in item.text for item in plan.advice
    )
