import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from tests.helpers import private_mode, replace, small_config
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning import Plan, make_plan
from tpu_console.engine.runs import events
from tpu_console.engine.runs.events import EpochEnded, FitStarted, Phase, PhaseStarted, Progress, RunFinished
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.engine.runs.timing import Pace, PastRun, Stopwatch, pace, stall, validating_share
from tpu_console.tui.text.plan_text import plan_lines

STEPS = 10
FIT = FitStarted(3, STEPS, 32, 16, 1)


def trained(*steps: int, step_s: float = 0.1, compile_s: float = 5.0, fit: FitStarted = FIT) -> RunState:
    """A run whose first execution compiled, and which then made these steps."""
    state = reduce(RunState(), fit, 0.0)
    for step in steps:
        epoch = (step - 1) // STEPS
        elapsed = compile_s + step * step_s
        state = reduce(state, Progress(epoch + 1, step - epoch * STEPS, step, elapsed, {"loss": 1.0}), elapsed)
    return state


def ended(state: RunState, epoch: int, *, step_ms: float | None = 100.0, validation_s: float = 0.0) -> RunState:
    seconds, compile_s = STEPS * 0.1 + validation_s, 5.0 if epoch == 1 else 0.0
    elapsed = (state.epochs[-1].elapsed_s if state.epochs else 0.0) + compile_s + seconds
    timed = (elapsed, seconds + compile_s, compile_s, validation_s, step_ms)
    return reduce(state, EpochEnded(epoch, epoch * STEPS, STEPS, *timed, None, None, {"loss": 1.0}), elapsed)


def test_an_epoch_to_come_counts_as_long_as_the_last_ones_took() -> None:
    state = ended(trained(1, 2, 3, 4, 10), 1, validation_s=3.0)
    assert pace(state).run_left_s == pytest.approx(2 * (1.0 + 3.0))
    state = reduce(state, Progress(2, STEPS // 2, 3 * STEPS // 2, 9.5, {}), 9.5)
    assert pace(state).run_left_s == pytest.approx(4.0 + 3.5)
    state = ended(state, 2, validation_s=0.5)
    assert pace(state).run_left_s == pytest.approx(1.0 + 0.5)  # the first was compiled
    state = replace(state, fit=replace(FIT, epochs=4))
    state = reduce(ended(state, 3, validation_s=0.7), Progress(4, STEPS // 2, 7 * STEPS // 2, 99.0, {}), 99.0)
    assert pace(state).run_left_s == pytest.approx(0.5 + 0.6)  # half of the epoch, and the mean validation


@given(st.lists(st.tuples(st.floats(5.0, 20.0), st.sampled_from([0.0, 5.0])), min_size=1, max_size=40))
def test_the_time_left_falls_evenly_within_an_epoch_and_counts_mean_epochs(epochs: list[tuple[float, float]]) -> None:
    state = reduce(RunState(), FitStarted(len(epochs) + 4, STEPS, 32, 16, 1), 0.0)
    elapsed = 0.0
    for epoch, (train_s, validation_s) in enumerate(epochs, 1):
        left = []
        for step in range(1, STEPS + 1):
            elapsed += train_s / STEPS
            state = reduce(state, Progress(epoch, step, (epoch - 1) * STEPS + step, elapsed, {}), elapsed)
            left.append(pace(state).run_left_s)
        if epoch > 1:
            assert np.ptp(np.diff(np.array(left, dtype=float))) < 1e-6
        elapsed += validation_s
        timed = (elapsed, train_s + validation_s, 0.0, validation_s, 100.0)
        state = reduce(state, EpochEnded(epoch, epoch * STEPS, STEPS, *timed, None, None, {}), elapsed)
    is_compiled = 1 < len(epochs) <= 10 and epochs[0][1] > 0
    last = [train_s + validation_s for train_s, validation_s in epochs[is_compiled:][-10:]]
    assert pace(state).run_left_s == pytest.approx(4 * sum(last) / len(last))


def test_points_of_the_epoch_before_are_left_out_because_a_validation_lies_between() -> None:
    state = ended(trained(8, 9, 10), 1, step_ms=100.0)
    for step, elapsed in ((11, 60.0), (12, 60.2), (13, 60.4)):
        state = reduce(state, Progress(2, step - 10, step, elapsed, {}), elapsed)
    assert pace(state).step_ms == pytest.approx(200)


def test_without_an_epoch_length_the_speed_is_known_and_the_time_left_is_not() -> None:
    known = pace(trained(1, 2, 3, fit=FitStarted(3, None, None, None, 1)))
    assert known == Pace(step_ms=known.step_ms)
    assert known.step_ms == pytest.approx(100)
    known = pace(trained(1, 2, 3, fit=FitStarted(3, None, 32, 32, 1)))
    assert known.examples_per_s == pytest.approx(320)
    assert known.run_left_s is None


def test_validation_is_a_share_of_the_epochs_after_the_first_which_compiles_it() -> None:
    first = EpochEnded(1, 9, 9, 9.0, 9.0, 2.0, 6.0, None, None, None, {})
    second, third = replace(first, seconds=4.0, validation_s=2.0), replace(first, seconds=6.0, validation_s=0.0)
    assert [validating_share(epochs) for epochs in ([first, second], [first, second, third])] == [0.5, 0.2]
    assert validating_share([first, replace(second, validation_s=99.0)]) == 1.0
    newest = [validating_share([*[second] * 9, *[third] * count]) for count in (99, 100)]
    assert [share == 0.0 for share in newest] == [False, True]  # of the newest hundred
    assert [validating_share(epochs) for epochs in ([], [first], [first, replace(second, seconds=0.0)])] == [None] * 3


def in_training(state: RunState) -> RunState:
    return reduce(state, PhaseStarted(Phase.TRAINING), state.last_at - 0.5)


MID_EPOCH = in_training(trained(1, 2, 3, 4))  # its last step at 5.4 s, 5.1 s of them before the first one


@pytest.mark.parametrize(
    ("state", "after_s", "stalled_s"),
    [
        (MID_EPOCH, 1.0, None),
        (MID_EPOCH, 59.0, None),
        (in_training(trained(1, 2, 3, 4, step_s=1.0, compile_s=0.0)), 60.0, 60),
        (MID_EPOCH, 61.0, 61),
        (MID_EPOCH, 600.0, 600),
        # A step that takes long may take long: as many as twenty of it, and five times the longest gap so far.
        (in_training(trained(1, 2, 3, 4, step_s=30.0)), 590.0, None),
        (in_training(trained(1, 2, 3, 4, step_s=30.0)), 610.0, 610),
        (in_training(trained(1, 2, 3, 4, compile_s=300.0)), 1490.0, None),
        (in_training(trained(1, 2, 3, 4, compile_s=300.0)), 1510.0, 1510),
        (in_training(trained(1, 2, 3, 13, step_s=5.0)), 240.0, None),
        (in_training(trained(1, 2, 3, 13, step_s=5.0)), 260.0, 260),
        # Steps that are sent together take as long together.
        (in_training(trained(1, 2, 3, 4, fit=FitStarted(3, STEPS, 32, 16, 50))), 90.0, None),
        # Between the first two epochs nothing is known of what happens there; later it is.
        (in_training(ended(trained(8, 9, 10), 1)), 1000.0, None),
        (in_training(ended(ended(trained(1, 2, 10, 20), 1), 2)), 1000.0, 1000),
        # Phases of their own may take as long as they like.
        (trained(1, 2, 3, 4), 1000.0, None),
        (reduce(MID_EPOCH, PhaseStarted(Phase.COMPILING), 5.4), 1000.0, None),
        (reduce(MID_EPOCH, PhaseStarted(Phase.VALIDATING), 5.4), 1000.0, None),
        (reduce(MID_EPOCH, PhaseStarted(Phase.CHECKPOINTING), 5.4), 1000.0, None),
        (reduce(MID_EPOCH, RunFinished("stopped", "", {}), 5.4), 1000.0, None),
        (RunState(), 1000.0, None),
    ],
)
def test_training_that_does_not_move_is_told_from_training_that_takes_long(
    state: RunState, after_s: float, stalled_s: int | None
) -> None:
    found = stall(state, max(state.progress_at, state.phase_since) + after_s)
    assert (found.seconds if found is not None else None) == stalled_s


def test_a_stall_is_measured_from_the_last_step_and_names_what_is_usual() -> None:
    found = stall(MID_EPOCH, MID_EPOCH.progress_at + 125.0)
    assert found is not None
    assert found.seconds == 125
    assert found.usual_s == pytest.approx(0.1)
    resumed = reduce(MID_EPOCH, PhaseStarted(Phase.TRAINING), MID_EPOCH.progress_at + 100)  # a checkpoint was written
    assert stall(resumed, MID_EPOCH.progress_at + 125.0) is None


def test_what_is_unknown_or_over_has_no_time_left() -> None:
    assert [pace(state) for state in (RunState(), trained(), trained(1))] == [Pace()] * 3
    assert pace(reduce(trained(1, 2, 3), RunFinished("completed", "", {}), 9.0)).run_left_s is None
    assert pace(trained(1, 2, 3, fit=FitStarted(1, 2, 32, 32, 1))).run_left_s == 0.0
    assert [pace(ended(trained(10), 1, step_ms=step_ms)).step_ms for step_ms in (70.0, None)] == [70.0, None]


@pytest.mark.parametrize("compile_s", [0.0, 5.0, 500.0])
def test_pace_comes_from_the_newest_points_however_long_compiling_took(compile_s: float) -> None:
    known = pace(trained(1, 2, 3, 4, compile_s=compile_s))
    assert (known.step_ms, known.examples_per_s, known.run_left_s) == pytest.approx((100, 320, 2.6))
    assert pace(ended(trained(10, compile_s=compile_s), 1)).run_left_s == pytest.approx(2.0)


def test_a_damaged_journal_without_points_does_not_stall() -> None:
    state = reduce(ended(trained(10), 1), events.RunResumed(1, 0, 5, 1.0, 1, "here"), 7.0)
    state = reduce(state, PhaseStarted(Phase.TRAINING), 8.0)
    assert (len(state.train), stall(state, 1000.0)) == (0, None)


TOOK = PastRun(step_ms=2.0, epoch_s=0.5, rest_s=10.0, batch=32, day="2026-03-01")


def plan_of(config: RunConfig, hardware: Hardware | None = None) -> Plan:
    return make_plan(config, hardware or Hardware())


def stopwatch(config: RunConfig) -> Stopwatch:
    return Stopwatch(config, "tensorflow", "CPU")


@pytest.fixture
def two_epochs() -> RunState:
    """The state of a run of two epochs, 44 steps each, that was saved 30 s after it was begun."""
    first = EpochEnded(1, 44, 44, 8.0, 8.0, 5.0, 0.5, 20.0, 1600.0, 0.001, {"loss": 1.0})
    second = EpochEnded(2, 88, 44, 10.0, 2.0, 0.0, 0.5, 30.0, 1066.7, 0.001, {"loss": 0.5})
    return RunState(epochs=(first, second), started_at=100.0, last_at=130.0)


def test_times_add_up_to_what_the_run_took(two_epochs: RunState) -> None:
    config = small_config(epochs=2)
    stopwatch(config).record(two_epochs)
    plan = plan_of(config)
    assert plan.seconds == pytest.approx(30.0)
    assert plan.took is not None
    assert plan.took.step_ms == 30.0


@pytest.mark.parametrize(("budget", "said"), [("10m", "All 40 epochs"), ("60s", "About 14 of 40 epochs"), ("", "")])
def test_the_plan_says_how_many_epochs_fit_into_a_budget(two_epochs: RunState, budget: str, said: str) -> None:
    config = small_config(epochs=40, budget=budget)
    stopwatch(config).record(two_epochs)  # 25 s before and after its epochs of 2.5 s
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
    two_epochs: RunState, changes: dict[str, Any], is_known: bool
) -> None:
    stopwatch(small_config()).record(two_epochs)
    known = plan_of(small_config()).took
    assert known is not None
    assert plan_of(small_config(**changes)).took == (known if is_known else None)


def test_of_other_batches_the_nearest_is_taken(two_epochs: RunState, private_home: Path) -> None:
    for batch in (8, 128):
        config = small_config(batch_size=batch)
        stopwatch(config).record(two_epochs)
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
def test_damaged_values_tell_nothing(two_epochs: RunState, private_home: Path, value: object) -> None:
    config = small_config()
    stopwatch(config).record(two_epochs)
    path = private_home / "paces.json"
    (key,) = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({key: value}), encoding="utf-8")
    assert plan_of(config).seconds is None
    stopwatch(config).record(two_epochs)
    assert plan_of(config).seconds is not None


def test_only_a_run_of_the_same_code_on_the_same_machine_tells_its_time_without_its_pause(
    two_epochs: RunState, tmp_path: Path
) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def build(): ...\n", encoding="utf-8")
    config = small_config(model=f"{file}:build", model_options={}, epochs=2, accelerator="auto")
    stopwatch(config).record(RunState())
    assert plan_of(config).seconds is None
    stopwatch(config).record(replace(two_epochs, last_at=1130.0, phase_s={"paused": 1000.0}))
    assert plan_of(config).seconds == pytest.approx(30.0)
    assert plan_of(config, Hardware(gpus=("NVIDIA H200",))).seconds is None
    file.write_text("def build(): 'ten times as large'\n", encoding="utf-8")
    assert plan_of(config).seconds is None
