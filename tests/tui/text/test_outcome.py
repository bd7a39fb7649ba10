"""How the end of a run is described."""

from typing import Any

import pytest

from tests.tui.made_runs import made_run
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.events import Alerted, CheckpointSaved, RunFinished, StopRequested
from tpu_console.engine.runs.follower import RunFollower, Snapshot
from tpu_console.engine.runs.journal import encode
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.runs.state import RunState
from tpu_console.tui.jobs.run_process import launch_resumed
from tpu_console.tui.text.outcome import Ending, can_resume, continue_changes, finished_lines, next_commands, outcome_of

SAVED = encode(CheckpointSaved(2, "checkpoints/best.keras", "val_accuracy", 0.9), 1_800_000_000.0)


def test_the_key_that_resumes_a_run_makes_the_changes_of_the_command() -> None:
    with pytest.raises(ConsoleError, match="no checkpoint"):  # without more epochs, it would have finished
        launch_resumed(made_run(epochs=2))


def test_a_run_that_diverged_was_not_stopped_on_request_and_goes_on_with_a_lower_learning_rate() -> None:
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
        outcome, state = ending_of(run)
        assert outcome.headline.startswith(headline)
        command = f"tpu-console resume {run.run_id}{after}"
        assert dict(outcome.facts)["to continue"] == command
        assert any(line.endswith(f"{command}  (continue)") for line in finished_lines(state, run, end))


def ending_of(run: RunDirectory) -> tuple[Ending, RunState]:
    snapshot = RunFollower(run).catch_up()
    outcome = outcome_of(run, snapshot)
    assert outcome is not None
    return outcome, snapshot.state


def test_a_script_is_offered_for_models_that_can_be_written_as_code() -> None:
    for model, is_offered in (("cnn", True), ("transformer", False), ("mine.py:build", True)):
        run = made_run(end=RunFinished("completed", "", {}), model=model)
        assert ("export" in dict(next_commands(run, ending_of(run)[1]))) is is_offered


PATIENCE = "early_stopping.patience"


@pytest.mark.parametrize(
    ("outcome", "stopping", "headline", "changes", "option"),
    [
        ("completed", {}, "Finished", [("epochs", 4)], " --epochs 4"),
        ("completed", {"patience": 3}, "Finished", [("epochs", 4)], " --epochs 4"),
        ("early", {"patience": 3}, "Stopped early", [(PATIENCE, 6)], f" --set {PATIENCE}=6"),
        ("stopped", {"patience": 3}, "Stopped on request", [], ""),
    ],
)
def test_a_run_that_is_over_goes_on_for_longer(
    outcome: str, stopping: dict[str, int], headline: str, changes: list[Any], option: str
) -> None:
    run = made_run(end=RunFinished(outcome, "as it says", {}), early_stopping=stopping)
    ending, state = ending_of(run)
    assert ending.headline.startswith(headline)
    assert continue_changes(state) == changes
    assert dict(next_commands(run, state))["continue"] == f"tpu-console resume {run.run_id}{option}"
    assert can_resume(run, Snapshot(state))


def test_the_best_model_is_named_if_it_is_not_the_last() -> None:
    for scores, best in (
        ([0.5, 0.9, 0.7], "val_accuracy 0.9000 in epoch 2, saved as checkpoints/best.keras"),
        ([0.5, 0.9], "val_accuracy 0.9000 in epoch 2"),  # the saved model is the best one
        ([0.9, 0.5], "val_accuracy 0.9000 in epoch 1"),  # only a worse one is kept
    ):
        run = made_run([{"val_accuracy": score} for score in scores])
        *epochs, end = run.journal.read_bytes().splitlines(keepends=True)
        run.journal.write_bytes(b"".join([*epochs, SAVED, end]))
        assert dict(ending_of(run)[0].facts)["best"] == best


@pytest.mark.parametrize(("target", "is_offered"), [(None, False), ("model.keras", True), ("other.keras", False)])
def test_a_model_file_that_is_no_link_is_offered_for_predictions(target: str | None, is_offered: bool) -> None:
    run = made_run()
    if target is not None:
        (run.path / target).touch()
        if target != run.model.name:
            run.model.symlink_to(run.path / target)
    assert ("predict" in dict(next_commands(run, ending_of(run)[1]))) is is_offered


JAX_ABORTED = (
    "F1124 13:48:20.118153 1866 client.h:80] Terminating process because the JAX distributed service detected "
    "fatal errors. […] absl::Status: UNAVAILABLE: The following tasks are unhealthy:\n1\n"
    "*** Check failure stack trace: ***\n    @     0x7fb3e9540634  absl::SendToLog()\n"
    "Fatal Python error: Aborted\n\nThread 0x00007fb3f11fab80 (most recent call first):\n"
)
CRASHED = "one\ntwo\nXLA service 0x1 initialized\nthree\nfour\nfive\nFatal Python error: Segmentation fault\n\n"


@pytest.mark.parametrize(
    ("log", "why", "last"),
    [(JAX_ABORTED, "UNAVAILABLE: ", ()), (CRASHED, "five", ("two", "three", "four", "five"))],
)
def test_a_crash_is_explained_by_the_last_words_of_the_log(log: str, why: str, last: tuple[str, ...]) -> None:
    run = made_run(end=None)
    run.log.write_text(log)
    with run.journal.open("ab") as journal:
        journal.write(SAVED)
    ending, _ = ending_of(run)
    assert why in dict(ending.facts)["why"]
    assert "checkpoints/best.keras" in dict(ending.facts)["what to do"]
    assert not last or tuple(ending.log) == last
