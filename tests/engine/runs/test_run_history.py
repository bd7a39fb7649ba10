import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict

from tests.helpers import private_mode, replace, small_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning.plan import Plan, make_plan
from tpu_console.engine.runs.events import EpochEnded
from tpu_console.engine.runs.run_history import PastRun, Stopwatch
from tpu_console.engine.runs.state import RunState
from tpu_console.tui.text.plan_text import plan_lines

TOOK = PastRun(step_ms=2.0, epoch_s=0.5, rest_s=10.0, batch=32, day="2026-03-01")


def plan_of(config: RunConfig, hardware: Hardware | None = None) -> Plan:
    return make_plan(config, hardware or Hardware())


def stopwatch(config: RunConfig) -> Stopwatch:
    return Stopwatch(config, "tensorflow", "CPU")


@pytest.fixture
def trained() -> RunState:
    """The state of a run of two epochs, 44 steps each, that was saved 30 s after it was begun."""
    first = EpochEnded(1, 44, 44, 8.0, 8.0, 5.0, 0.5, 20.0, 1600.0, 0.001, {"loss": 1.0})
    second = EpochEnded(2, 88, 44, 10.0, 2.0, 0.0, 0.5, 30.0, 1066.7, 0.001, {"loss": 0.5})
    return RunState(epochs=(first, second), started_at=100.0, last_at=130.0)


def test_times_add_up_to_what_the_run_took(trained: RunState) -> None:
    config = small_config(epochs=2)
    stopwatch(config).record(trained)
    plan = plan_of(config)
    assert plan.seconds == pytest.approx(30.0)
    assert plan.took is not None
    assert plan.took.step_ms == 30.0


@pytest.mark.parametrize(("budget", "said"), [("10m", "All 40 epochs"), ("60s", "About 14 of 40 epochs"), ("", "")])
def test_the_plan_says_how_many_epochs_fit_into_a_budget(trained: RunState, budget: str, said: str) -> None:
    config = small_config(epochs=40, budget=budget)
    stopwatch(config).record(trained)  # 25 s before and after its epochs of 2.5 s
    lines = [line for line in plan_lines(config, plan_of(config)) if line.startswith("budget")]
    assert [said in line and budget in line for line in lines] == ([True] if said else [])


def test_epochs_and_steps_are_counted_anew() -> None:
    assert TOOK.seconds(1, 100, 32) == pytest.approx(10 + 0.2 + 0.5)
    assert TOOK.seconds(10, 100, 32) == pytest.approx(10 + 10 * 0.7)
    assert [TOOK.epochs(seconds, 100, 32) for seconds in (5, 10.6, 17.1, 7e9)] == [0, 0, 10, 9999999985]
    assert TOOK.seconds(10, 50, 64) == pytest.approx(TOOK.seconds(10, 100, 32)), "as many examples a second"


@pytest.mark.parametrize(
    ("changes", "is_known"),
    [
        ({"epochs": 9}, True),
        ({"steps_per_epoch": 7}, True),
        ({"name": "other", "seed": 3}, True),
        ({"optimizer": {"learning_rate": 0.1, "schedule": "cosine"}}, True),
        ({"data": {"train_limit": 500}}, True),
        ({"accelerator": "auto"}, True),
        ({"model_options": {"hidden": [9]}}, False),
        ({"dataset": "mnist"}, False),
        ({"precision": "mixed_bfloat16"}, False),
        ({"optimizer": {"name": "sgd"}}, False),
        ({"augmentation": {"flip": "both"}}, False),
        ({"accelerator": "sim:2"}, False),
    ],
)
def test_a_run_of_the_same_pace_is_known_and_no_other(
    trained: RunState, changes: dict[str, Any], is_known: bool
) -> None:
    stopwatch(small_config()).record(trained)
    known = plan_of(small_config()).took
    assert known is not None
    assert plan_of(small_config(**changes)).took == (known if is_known else None)


def test_of_other_batches_the_nearest_is_taken(trained: RunState, private_home: Path) -> None:
    for batch in (8, 128):
        config = small_config(batch_size=batch)
        stopwatch(config).record(trained)
    took = plan_of(small_config(batch_size=64)).took
    assert took is not None
    assert took.batch == 128
    assert private_mode(private_home / "paces.json") == 0o600


@pytest.mark.parametrize(
    "value",
    [
        *([], 3, {"32": 3}, {"32": {"step_ms": 1}}, {"32": None}),
        *({"32": {**asdict(TOOK), "batch": 0}}, {"32": {**asdict(TOOK), "step_ms": "2"}}),
    ],
)
def test_damaged_values_tell_nothing(trained: RunState, private_home: Path, value: object) -> None:
    config = small_config()
    stopwatch(config).record(trained)
    path = private_home / "paces.json"
    (key,) = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({key: value}), encoding="utf-8")
    assert plan_of(config).seconds is None
    stopwatch(config).record(trained)
    assert plan_of(config).seconds is not None


def test_only_a_run_of_the_same_code_on_the_same_machine_tells_its_time_without_its_pause(
    trained: RunState, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def build(): ...\n", encoding="utf-8")
    config = small_config(model=f"{file}:build", model_options={}, epochs=2, accelerator="auto")
    stopwatch(config).record(RunState())
    assert plan_of(config).seconds is None
    stopwatch(config).record(replace(trained, last_at=1130.0, phase_s={"paused": 1000.0}))
    assert plan_of(config).seconds == pytest.approx(30.0)
    assert plan_of(config, Hardware(gpus=("NVIDIA H200",))).seconds is None
    file.write_text("def build(): 'ten times as large'\n", encoding="utf-8")
    assert plan_of(config).seconds is None
