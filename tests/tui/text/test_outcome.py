"""How the end of a run is described."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.tui.made_runs import made_run
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.events import Alerted, CheckpointSaved, RunFinished, StopRequested
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.journal import encode
from tpu_console.tui.jobs.run_process import launch_resumed
from tpu_console.tui.text.outcome import can_resume, continue_changes, next_commands, outcome_of
from tpu_console.tui.text.run_lines import finished_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.run_directory import RunDirectory


def changes_of_the_key(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> Sequence[tuple[str, Any]]:
    """Return what the key that resumes a run changes."""
    found: list[Sequence[tuple[str, Any]]] = []

    def prepare(_run: RunDirectory, changes: Sequence[tuple[str, Any]], **_: Any) -> None:
        found.append(changes)
        raise ConsoleError("It is not started here.")

    monkeypatch.setattr("tpu_console.engine.process.resume.prepare_resumption", prepare)
    with pytest.raises(ConsoleError):
        launch_resumed(run)
    return found[0]


def test_a_run_that_diverged_was_not_stopped_on_request_and_goes_on_with_a_lower_learning_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alert = encode(Alerted("nan", "The loss became NaN in epoch 2.", 2, 20, stops=True), 1_799_000_000.0)
    asked = encode(StopRequested("asked by a test"), 1_799_000_000.0)
    end = RunFinished("stopped", "whatever it says", {})
    for lines, headline, after in (
        ([asked, alert], "Stopped on request after 2 epochs", ""),
        ([alert, asked], "Stopped because it diverged after 2 epochs", " --set optimizer.learning_rate=0.05"),
    ):
        run = made_run(end=end, optimizer={"learning_rate": 0.5})
        *before, last = run.journal.read_bytes().splitlines(keepends=True)
        run.journal.write_bytes(b"".join([*before, *lines, last]))
        state = RunFollower(run).catch_up()
        outcome = outcome_of(run, state)
        assert outcome is not None
        assert outcome.headline.startswith(headline)
        assert changes_of_the_key(run, monkeypatch) == continue_changes(state.state)
        command = f"tpu-console resume {run.run_id}{after}"
        assert dict(outcome.facts)["to continue"] == command
        assert any(line.endswith(f"{command}  (continue)") for line in finished_lines(state.state, run, end))


@pytest.mark.parametrize(
    ("outcome", "stopping", "changes", "option"),
    [
        ("completed", {}, [("epochs", 4)], " --epochs 4"),
        ("completed", {"patience": 3}, [("epochs", 4)], " --epochs 4"),
        ("early", {"patience": 3}, [("early_stopping.patience", 6)], " --set early_stopping.patience=6"),
        ("stopped", {"patience": 3}, [], ""),
    ],
)
def test_a_run_that_is_over_goes_on_for_longer(
    monkeypatch: pytest.MonkeyPatch, outcome: str, stopping: dict[str, int], changes: list[Any], option: str
) -> None:
    run = made_run(end=RunFinished(outcome, "as it says", {}), early_stopping=stopping)
    snapshot = RunFollower(run).catch_up()
    assert changes_of_the_key(run, monkeypatch) == continue_changes(snapshot.state) == changes
    assert dict(next_commands(run, snapshot.state))["continue"] == f"tpu-console resume {run.run_id}{option}"
    assert can_resume(run, snapshot)


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([0.5, 0.9, 0.7], "val_accuracy 0.9000 in epoch 2, saved as checkpoints/best.keras"),
        ([0.5, 0.9], "val_accuracy 0.9000 in epoch 2"),  # the saved model is the best one
        ([0.9, 0.5], "val_accuracy 0.9000 in epoch 1"),  # only a worse one is kept
    ],
)
def test_the_best_model_is_named_if_it_is_not_the_last(scores: list[float], best: str) -> None:
    run = made_run([{"val_accuracy": score} for score in scores])
    *epochs, end = run.journal.read_bytes().splitlines(keepends=True)
    kept = encode(CheckpointSaved(2, "checkpoints/best.keras", "val_accuracy", 0.9), 1_800_000_000.0)
    run.journal.write_bytes(b"".join([*epochs, kept, end]))
    outcome = outcome_of(run, RunFollower(run).catch_up())
    assert outcome is not None
    assert dict(outcome.facts)["best"] == best


def test_a_process_that_jax_aborted_is_explained_by_what_jax_says() -> None:
    run = made_run(end=None)
    run.log.write_text(
        "F1124 13:48:20.118153 1866 client.h:80] Terminating process because the JAX distributed service detected "
        "fatal errors. This most likely indicates that another task died; see the other task logs for more details. "
        "Disable Python buffering, i.e. `python -u`, to be sure to see all the previous output. absl::Status: "
        "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n1\n"
        "*** Check failure stack trace: ***\n"
        "    @     0x7fb3e9540634  absl::lts_20260107::log_internal::LogMessage::SendToLog()\n"
        "Fatal Python error: Aborted\n\nThread 0x00007fb3f11fab80 (most recent call first):\n"
    )
    outcome = outcome_of(run, RunFollower(run).catch_up())
    assert outcome is not None
    assert "UNAVAILABLE: " in dict(outcome.facts)["why"]
