"""How the end of a run is described, and its log as messages: real lines of TensorFlow, XLA, JAX and Python."""

import re
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
from tpu_console.tui.text import outcome
from tpu_console.tui.text.outcome import Message, read_messages

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
        ending, state = ending_of(run)
        assert ending.headline.startswith(headline)
        command = f"tpu-console resume {run.run_id}{after}"
        assert dict(ending.facts)["to continue"] == command
        assert any(line.endswith(f"{command}  (continue)") for line in outcome.finished_lines(state, run, end))


def ending_of(run: RunDirectory) -> tuple[outcome.Ending, RunState]:
    snapshot = RunFollower(run).catch_up()
    ending = outcome.outcome_of(run, snapshot)
    assert ending is not None
    return ending, snapshot.state


def test_a_script_is_offered_for_models_that_can_be_written_as_code() -> None:
    for model, is_offered in (("cnn", True), ("transformer", False), ("mine.py:build", True)):
        run = made_run(end=RunFinished("completed", "", {}), model=model)
        assert ("export" in dict(outcome.next_commands(run, ending_of(run)[1]))) is is_offered


PATIENCE = "early_stopping.patience"


@pytest.mark.parametrize(
    ("how", "stopping", "headline", "changes", "option"),
    [
        ("completed", {}, "Finished", [("epochs", 4)], " --epochs 4"),
        ("completed", {"patience": 3}, "Finished", [("epochs", 4)], " --epochs 4"),
        ("early", {"patience": 3}, "Stopped early", [(PATIENCE, 6)], f" --set {PATIENCE}=6"),
        ("stopped", {"patience": 3}, "Stopped on request", [], ""),
    ],
)
def test_a_run_that_is_over_goes_on_for_longer(
    how: str, stopping: dict[str, int], headline: str, changes: list[Any], option: str
) -> None:
    run = made_run(end=(end := RunFinished(how, "because", {})), early_stopping=stopping)
    ending, state = ending_of(run)
    assert ending.headline.startswith(headline)
    assert dict(ending.facts).get("why", "") == ("" if how == "completed" else "because")
    first = outcome.finished_lines(state, run, end)[0]
    assert re.fullmatch(rf"{'stopped' if how == 'stopped' else 'finished'} +because \(total .*\)", first)
    assert outcome.continue_changes(state) == changes
    assert dict(outcome.next_commands(run, state))["continue"] == f"tpu-console resume {run.run_id}{option}"
    assert outcome.can_resume(run, Snapshot(state))


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
    assert ("predict" in dict(outcome.next_commands(run, ending_of(run)[1]))) is is_offered


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


_CUINIT = (
    "E0000 00:00:1795329117.604768   12618 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: "
    "Failed call to cuInit: UNKNOWN ERROR (303)"
)


def test_a_native_prefix_is_stripped_and_its_severity_kept() -> None:
    messages = {
        "I0000 00:00:1795.738543   12618 port.cc:153] Loaded runtime": Message("Loaded runtime"),
        "W1122 05:47:51.447911 31055 a/b.cc:185] slow": Message("slow"),
        "2026-11-22 07:11:00.123456: F tensorflow/core/c.cc:7] dead": Message("dead", is_error=True),
        "2026-11-22 07:11:00.1: I tensorflow/c.cc:7] E0000 00:00:1.2 3 d.cc:1] x": Message("x"),
        "WARNING:2026-11-22 07:11:00,123:jax._src.xla_bridge:791: No TPU": Message("No TPU"),
        "ERROR:mine:no such column": Message("no such column", is_error=True),
        "ValueError: no such column": Message("ValueError: no such column", is_error=True),
        "my own line: error-free": Message("my own line: error-free"),
    }
    assert {line: read_messages([line]) for line in messages} == {line: [one] for line, one in messages.items()}


def test_the_usual_lines_of_a_cpu_machine_are_noise_and_no_errors() -> None:
    lines = [
        "WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        "I0000 00:00:1795329111.738543   12618 port.cc:153] oneDNN custom operations are on. You may see …",
        "I0000 00:00:1795329111.739408   12618 cudart_stub.cc:31] Could not find cuda drivers on your machine, …",
        _CUINIT,
    ]
    assert all(message.is_noise and not message.is_error for message in read_messages(lines))
    assert read_messages(ABORT)[-1].is_noise, "the modules of a crash"
    (message,) = read_messages([_CUINIT.replace("UNKNOWN ERROR (303)", "CUDA_ERROR_UNKNOWN (999)")])
    assert (message.is_error, message.is_noise) == (True, False), "a broken driver"


def test_a_traceback_is_one_error() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "errors.py", line 3, in failed',
        '    raise ValueError("error: bad")',
        "ValueError: error: bad",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "errors.py", line 9, in run',
        "KeyError",
        "done",
    ]
    errors = [message.text for message in read_messages(lines) if message.is_error]
    assert errors == ["ValueError: error: bad", "KeyError"]


def test_equal_neighbors_are_counted() -> None:
    counted = [Message("again", count=3), Message("other"), Message(""), Message("")]
    assert read_messages(["again", "again", "again", "other", "", ""]) == counted


ABORT = [
    "F0000 00:00:1795.4  12 init.cc:7] libtpu version mismatch",
    "*** SIGABRT received at time=1795391700 on cpu 1 ***",
    "PC: @     0x7f0a  (unknown)  raise",
    "    @     0x7f0b  1024  (unknown)",
    "Fatal Python error: Aborted",
    "",
    "Stack (most recent call first):",
    '  File "mine.py", line 3 in data',
    "",
    "Extension modules: numpy._core._multiarray_umath (total: 1)",
]
PLACE = 'File "mine.py", line 3 in data'


def test_a_crash_at_the_end_of_a_log_is_named_and_its_report_is_left_out() -> None:
    for log, signal, left in (
        (ABORT, "SIGABRT", [PLACE, ABORT[0]]),
        (["Epoch 1", *ABORT[:4]], "SIGABRT", ["Epoch 1", ABORT[0]]),
        (["Fatal Python error: Segmentation fault", *ABORT[5:]], "SIGSEGV", [PLACE]),
        ([*ABORT, "resumed: importing"], "", [*ABORT, "resumed: importing"]),
        (["Epoch 1", "  indented", ""], "", ["Epoch 1", "  indented", ""]),
        ([], "", []),
    ):
        assert outcome.crash_in(log) == (signal, left)
