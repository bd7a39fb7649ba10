import time

import psutil
import pytest

from tpu_console.engine.runs.events import BudgetSet, EpochEnded, Phase, PhaseStarted
from tpu_console.engine.runs.recorder import Deadline, counts_from, margin_s


@pytest.mark.parametrize(
    ("budget", "save", "validation", "step", "margin"),
    [
        (36_000, 0, 0, 0, 30),  # nothing is known yet
        (60, 0, 0, 0, 3),
        (36_000, 4, 0, 0, 30),
        (36_000, 40, 0, 0, 120),
        (36_000, 40, 60, 0.5, 181),
    ],
)
def test_the_margin_grows_with_what_saving_took(
    budget: float, save: float, validation: float, step: float, margin: float
) -> None:
    assert margin_s(budget, save, validation, step) == margin


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_run_stops_early_enough_for_its_own_saves_and_steps() -> None:
    clock = Clock()
    deadline = Deadline("1h", 3600.0, clock.now, clock)
    assert deadline.event == BudgetSet(3600.0, 4600.0, "1h")
    deadline.on_event(PhaseStarted(Phase.COMPILING))
    assert not deadline.is_reached()
    clock.now += 500  # compiling is no step
    deadline.on_event(PhaseStarted(Phase.TRAINING))
    for _ in range(3):
        clock.now += 2
        assert not deadline.is_reached()
    deadline.on_event(PhaseStarted(Phase.CHECKPOINTING))
    clock.now += 50
    deadline.on_event(PhaseStarted(Phase.TRAINING))
    deadline.on_event(EpochEnded(1, 10, 10, 60.0, 60.0, 1.0, 20.0, 1.0, None, None, {}))
    deadline.note("mirror", 2)  # a copy of it
    assert deadline.save_s == 52
    reached = []
    for now in (4600 - 3 * 52 - 20 - 2 * 2 - 1, 4600 - 3 * 52 - 20 - 2 * 2):
        deadline.on_event(PhaseStarted(Phase.TRAINING))  # unmeasured time is not a step either
        clock.now = now
        reached.append(deadline.is_reached())
    assert reached == [False, True]


def test_a_budget_counts_from_its_run_and_a_services_limit_from_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAGGLE_KERNEL_RUN_TYPE", "KAGGLE_DOCKER_IMAGE", "KAGGLE_URL_BASE"):
        monkeypatch.delenv(name, raising=False)
    now, began = time.time(), psutil.Process(1).create_time()
    assert counts_from("colab") >= now
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab")
    assert counts_from("colab") == pytest.approx(began, abs=2.0)
    assert counts_from("1h") >= now
