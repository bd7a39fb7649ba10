from __future__ import annotations

import re

import pytest

from tpu_console.engine.runs.events import BudgetSet, PhaseStarted, Steered, StopRequested
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.tui.text.steering import budget_clock, budget_text, busy_text, steered_text, stop_text


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Steered("pause", "by me", 3, 1200, 9.0), "paused at step 1,200, by me"),
        (Steered("continue", "by me", 3, 1200, 9.0), "continued at step 1,200, by me"),
        (Steered("checkpoint", "by me", 3, 1200, 9.0), "checkpoint saved at step 1,200, by me"),
        (Steered("epochs", "by me", 3, 1200, 9.0, 10.0, 1500.0), "epochs 10 → 1,500 from step 1,200, by me"),
        (Steered("learning_rate", "by me", 3, 5, 9.0, 1e-3, 1e-4), "learning rate 0.001 → 1e-4 from step 5, by me"),
        (
            Steered("learning_rate", "by me", 3, 5, 9.0, refused="it follows a schedule"),
            "learning rate refused: it follows a schedule, by me",
        ),
        (Steered("stop_after_epoch", "by me", 0, 0, 0.0, refused="no"), "stop after epoch refused: no, by me"),
    ],
)
def test_an_answer_says_what_changed_where_and_by_whom(event: Steered, text: str) -> None:
    assert steered_text(event) == text


def test_a_stop_says_when() -> None:
    assert stop_text(StopRequested("by me")) == "by me"
    assert stop_text(StopRequested("by me", "epoch")) == "by me; after this epoch"


@pytest.mark.parametrize(
    ("phase", "text"),
    [
        ("compiling", "it is compiling (1m 20s so far)"),
        ("connecting", "it is busy with its accelerator (1m 20s so far)"),
        ("training", ""),
        ("paused", ""),
    ],
)
def test_a_busy_run_says_what_it_does(phase: str, text: str) -> None:
    assert busy_text(reduce(RunState(), PhaseStarted(phase), 100.0), 180.0) == text


@pytest.mark.parametrize("ends_at", [0.0, -1e15, 1e15])
def test_a_budget_of_a_damaged_journal_has_an_end_too(ends_at: float) -> None:
    assert budget_text(BudgetSet(30_600.0, ends_at, "8h30m"), 0.0).startswith("8h 30m, until ")
    assert budget_clock(BudgetSet(30_600.0, ends_at, "8h30m"), 0.0).startswith("budget ")


def test_a_budget_counts_down() -> None:
    budget = BudgetSet(30_600.0, 100_000.0, "8h30m")
    assert re.fullmatch(r"8h 30m, until \w+ \d\d:\d\d, 2h 10m left", budget_text(budget, 92_200.0))
    assert re.fullmatch(r"budget 2h 10m left, until \d\d:\d\d", budget_clock(budget, 92_200.0))
    assert budget_clock(budget, 100_000.0) == "budget used up"
