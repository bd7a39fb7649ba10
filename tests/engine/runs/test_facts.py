import csv
import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.runs.test_state import after, ended, progress
from tests.engine.strategies import events
from tests.helpers import replace
from tpu_console.engine.runs import events as kinds
from tpu_console.engine.runs import facts as concluding
from tpu_console.engine.runs.events import Event, FitStarted, PhaseStarted, RunFailed, RunFinished, RunResumed
from tpu_console.engine.runs.facts import Facts, conclude, conclude_killed, facts_of, summarized_facts
from tpu_console.engine.runs.follower import StateReader
from tpu_console.engine.runs.journal import encode
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.storage.files import lock_file, write_whole

START = kinds.RunStarted("digits-cnn", "host", 1, "here", {"dataset": "digits", "model": "cnn", "seed": 3})
DONE = RunFinished("completed", "all epochs are done", {"epochs": 1})
FAILED = RunFailed("It broke.", "", "", "")


def write(run: RunDirectory, *history: Event, at: float = 1_790_000_000.0) -> RunDirectory:
    with run.journal.open("ab") as journal:
        journal.writelines(encode(event, at + number) for number, event in enumerate(history))
    return run


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    fit = FitStarted(2, 4, 32, 32, 4, monitor="val_accuracy")
    return write(create_run("a", tmp_path), START, fit, progress(4, loss=0.5), ended(1, val_accuracy=0.9), DONE)


@given(history=st.lists(events, max_size=12), end=st.sampled_from([DONE, FAILED]))
def test_the_facts_of_a_summary_are_those_of_the_journal(
    history: list[Event], end: Event, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = create_run("a", tmp_path_factory.mktemp("any"))
    write(run, *history, end)
    conclude(run)
    facts = facts_of(StateReader(run).catch_up())
    assert summarized_facts(run) == (facts if facts.best is None or abs(facts.best) <= 1e15 else None)


def test_the_facts_say_what_a_run_does(tmp_path: Path) -> None:
    run, seen = create_run("a", tmp_path), []
    fit = FitStarted(2, 4, 32, 32, 4, monitor="val_accuracy")
    steps: list[tuple[Event, ...]] = [
        (),
        (START, fit),
        (PhaseStarted("training"), ended(1, val_accuracy=0.9)),
        (PhaseStarted("paused"),),
        (kinds.StopRequested("asked"),),
        (ended(2, val_accuracy=math.nan, loss=math.nan), DONE),
    ]
    for step in steps:
        facts = facts_of(StateReader(write(run, *step)).catch_up())
        seen.append((facts.has_started, facts.epochs_done, facts.is_paused, facts.is_stopping, facts.outcome))
    assert seen == [
        (False, 0, False, False, ""),
        (True, 0, False, False, ""),
        (True, 1, False, False, ""),
        (True, 1, True, False, ""),
        (True, 1, True, True, ""),
        (True, 2, False, True, "completed"),
    ]
    assert (facts.monitor, facts.best, facts.epochs, facts.is_nan) == ("val_accuracy", 0.9, 2, True)
    assert (facts.dataset, facts.model, facts.examples_per_s) == ("digits", "cnn", 100.0)
    assert facts_of(RunState()) == Facts(lower_is_better=True)  # of the loss
    nothing = concluding.summary_of(RunState(), kinds.RunOutcome.STOPPED, "asked", best_case={"reached": 0.5})
    assert [nothing[name] for name in ("replicas", "parameters", "steps", "epochs")] == [0] * 4
    assert nothing["best_case"] == {"reached": 0.5}
    notebook = after(replace(START, config={}), kinds.ModelBuilt("mine", 10, 8, 40, 3))
    assert (facts_of(notebook).dataset, facts_of(notebook).model) == ("", "mine")
    concluding.write_history(run, StateReader(run).catch_up().epochs)
    rows = [*csv.DictReader(run.history.open())]
    assert [(row["epoch"], row["val_accuracy"]) for row in rows] == [("1", "0.9"), ("2", "")]


def killed(run: RunDirectory) -> RunState:
    """A run of two epochs that was killed after it had been stopped and resumed; its files are of the first epoch."""
    conclude(run)
    write_whole(run.history, "of before")
    os.utime(run.history, (1, 1))
    write(run, RunResumed(1, 0, 4, 1.0, 1, "here"), ended(2, val_accuracy=0.95))
    return StateReader(run).catch_up()


def test_after_a_kill_history_and_summary_are_made_current_once(run: RunDirectory) -> None:
    conclude_killed(run, killed(run))
    assert [row["epoch"] for row in csv.DictReader(run.history.read_text().splitlines())] == ["1", "2"]
    summary = json.loads(run.summary.read_text())
    assert (summary["outcome"], summary["epochs"], summary["best"]["epoch"]) == ("killed", 2, 2)
    assert summarized_facts(run) is None  # whether it trains again is looked up each time
    before = run.history.stat().st_mtime_ns
    conclude_killed(run, StateReader(run).catch_up())
    assert run.history.stat().st_mtime_ns == before


@pytest.mark.parametrize("obstacle", ["a link", "a second name", "the folder is a link", "another user", "the lock"])
def test_only_the_users_own_run_is_concluded_never_through_a_link_and_not_while_it_trains(
    obstacle: str, run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, target, held = killed(run), run.path.parent / "target", -1
    match obstacle:
        case "a link" | "a second name":
            run.history.rename(target)
            (run.history.symlink_to if obstacle == "a link" else run.history.hardlink_to)(target)
        case "the folder is a link":
            run.path.rename(target)
            run.path.symlink_to(target)
        case "another user":
            uid = os.getuid() + 1
            monkeypatch.setattr(os, "getuid", lambda: uid)
        case "the lock":
            held = lock_file(run.journal)
    before = run.summary.read_bytes()
    conclude_killed(run, state)
    assert (run.history.read_text(), run.summary.read_bytes()) == ("of before", before)
    if held >= 0:
        os.close(held)


def test_only_a_run_that_has_ended_has_a_summary_and_only_in_a_file(run: RunDirectory, tmp_path: Path) -> None:
    begun = write(create_run("b", tmp_path), START)
    conclude(begun)
    assert not begun.summary.exists()
    conclude(run)
    content = json.loads(run.summary.read_text())
    assert (content["run"], content["outcome"], content["epochs"]) == ("digits-cnn", "completed", 1)
    content["facts"] |= {"label": "\x1b[2Jred", "model": "line\x07"}
    run.summary.write_text(json.dumps(content))
    facts = summarized_facts(run)
    assert facts is not None
    assert (facts.label + facts.model).isprintable()
    write(run, START)
    assert summarized_facts(run) is None  # it is of another journal
    run.summary.unlink()
    os.mkfifo(run.summary)
    assert summarized_facts(run) is None
    run.summary.unlink()
    run.summary.mkdir()
    conclude(run)
    assert summarized_facts(run) is None


@pytest.mark.parametrize(
    "facts",
    [
        *({"outcome": ["completed"]}, {"outcome": ""}, {"started_at": "NaN"}, {"started_at": 1e300}, {"last_at": 1e12}),
        *({"epochs_done": -1}, {"best": "Infinity"}, {"is_stopping": 1}, {"config": []}, {"journal_bytes": None}),
    ],
    ids=repr,
)
def test_facts_that_cannot_be_are_not_believed(run: RunDirectory, facts: dict[str, object]) -> None:
    conclude(run)
    content = json.loads(run.summary.read_text())
    content["facts"] |= facts
    no_facts = b"", b"\xff\xfe\x00", b"[" * 100_000, b"null", b"{}", b'{"facts": 3}'
    for damaged in (json.dumps(content).encode(), *no_facts):
        run.summary.write_bytes(damaged)
        assert summarized_facts(run) is None
