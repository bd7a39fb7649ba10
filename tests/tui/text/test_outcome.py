"""How the end of a run is described."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.tui.made_runs import made_run
from tpu_console.engine.runs.events import CheckpointSaved
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.journal import encode
from tpu_console.tui.text.outcome import outcome_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([0.5, 0.9, 0.7], "val_accuracy 0.9000 in epoch 2, saved as checkpoints/best.keras"),
        ([0.5, 0.9], "val_accuracy 0.9000 in epoch 2"),  # the saved model is the best one
        ([0.9, 0.5], "val_accuracy 0.9000 in epoch 1"),  # only a worse one is kept
    ],
)
def test_the_best_model_is_named_if_it_is_not_the_last(
    scores: list[float], best: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path))
    run = made_run([{"val_accuracy": score} for score in scores])
    *epochs, end = run.journal.read_bytes().splitlines(keepends=True)
    kept = encode(CheckpointSaved(2, "checkpoints/best.keras", "val_accuracy", 0.9), 1_800_000_000.0)
    run.journal.write_bytes(b"".join([*epochs, kept, end]))
    outcome = outcome_of(run, RunFollower(run).catch_up())
    assert outcome is not None
    assert dict(outcome.facts)["best"] == best
