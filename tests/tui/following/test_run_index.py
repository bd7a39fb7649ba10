"""The index behind the lists of runs: a cache that never decides anything."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.strategies import events
from tests.helpers import private_mode
from tpu_console.engine.runs.events import (
    EpochEnded,
    FitStarted,
    Noticed,
    PhaseStarted,
    RunFailed,
    RunFinished,
    RunStarted,
    Steered,
    StopRequested,
)
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter, encode
from tpu_console.engine.runs.run_directory import RunDirectory, create_run, list_runs
from tpu_console.engine.runs.state import RunState, fold
from tpu_console.engine.storage.paths import cache_folder
from tpu_console.tui.following.facts_reading import facts_of, read_facts
from tpu_console.tui.following.overview import OverviewReader, Status, read_details, read_overviews
from tpu_console.tui.following.run_facts import Facts, facts_from

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.events import Event

START = RunStarted("digits-cnn", "host", 1, "here")
FIT = FitStarted(3, 4, 32, 32, 4, monitor="val_accuracy")
DONE = RunFinished("completed", "all epochs are done", {})


def epoch(number: int, accuracy: float) -> EpochEnded:
    logs = {"loss": 0.5, "val_loss": 0.4, "val_accuracy": accuracy}
    return EpochEnded(number, number * 4, 4, float(number), 1.0, 0.0, 0.0, 2.0, 500.0, 1e-3, logs)


def make_run(*history: Event, label: str = "digits-cnn") -> RunDirectory:
    run = create_run(label)
    add(run, *history)
    return run


def add(run: RunDirectory, *history: Event) -> None:
    times = iter(range(1_790_000_000, 1_800_000_000, 10))
    writer = JournalWriter(run.journal, clock=lambda: float(next(times)))
    for event in history:
        writer.write(event)
    writer.close()


def listed() -> dict[str, Any]:
    """Read the list as the console does, and return it by run."""
    runs = list_runs()
    reader = OverviewReader(runs)
    found = {overview.run.run_id: overview.as_dict() for overview in reader.read_all()}
    reader.save()
    return found


def index() -> Path:
    return cache_folder() / "runs.json"


def entries() -> dict[str, Any]:
    runs: dict[str, Any] = json.loads(index().read_text())["runs"]
    return runs


def poison(run: RunDirectory, **facts: object) -> None:
    """Change what the index says about a run, so that a test sees whether it is believed."""
    content = json.loads(index().read_text())
    content["runs"][run.run_id]["facts"].update(facts)
    index().write_text(json.dumps(content))


@given(history=st.lists(st.tuples(events, st.floats(0, 3e9)), max_size=12))
def test_the_facts_of_a_journal_are_those_of_its_folded_state(
    history: list[tuple[Event, float]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    journal = tmp_path_factory.getbasetemp() / "facts.jsonl"
    lines = [encode(event, at) for event, at in history]
    journal.write_bytes(b"".join(lines))
    assert read_facts(journal) == facts_of(fold(RunState(), [json.loads(line) for line in lines]))


def test_a_second_list_says_the_same_without_reading_the_journals() -> None:
    run = make_run(START, FIT, epoch(1, 0.9), epoch(2, 0.8), DONE)
    first = listed()
    assert (first[run.run_id]["best"], first[run.run_id]["state"]) == (0.9, "finished")
    assert listed() == first
    poison(run, best=0.123)
    assert listed()[run.run_id]["best"] == 0.123, "the index was not used"


def test_the_index_is_private() -> None:
    make_run(START, DONE)
    listed()
    assert (private_mode(index()), private_mode(index().parent)) == (0o600, 0o700)


@pytest.mark.parametrize("change", ["grown", "replaced", "touched"])
def test_a_journal_that_changed_is_read_again(change: str) -> None:
    run = make_run(START, FIT, epoch(1, 0.9), DONE)
    listed()
    poison(run, best=0.123)
    before = run.journal.stat()
    if change == "grown":
        add(run, epoch(2, 0.95))
    elif change == "replaced":
        other = run.journal.with_name("other")
        other.write_bytes(run.journal.read_bytes())
        os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
        other.replace(run.journal)
    else:
        os.utime(run.journal, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert listed()[run.run_id]["best"] == (0.95 if change == "grown" else 0.9)


def test_whether_a_run_is_alive_is_never_taken_from_the_index() -> None:
    run = make_run(START, FIT, epoch(1, 0.9))
    run.heartbeat.write_text("{}")
    os.utime(run.heartbeat, (1, 1))
    assert listed()[run.run_id]["state"] == Status.CRASHED
    assert run.run_id in entries()
    write_heartbeat(run, os.getpid())
    assert listed()[run.run_id]["state"] == Status.RUNNING
    assert entries()[run.run_id]["facts"]["outcome"] == ""


def test_a_run_that_trains_is_not_kept() -> None:
    run = make_run(START, FIT, StopRequested("asked"))
    write_heartbeat(run, os.getpid())
    assert listed()[run.run_id]["state"] == Status.STOPPING
    assert not index().exists()


def test_runs_that_are_gone_leave_the_index() -> None:
    gone, stays = make_run(START, DONE, label="gone"), make_run(START, DONE, label="stays")
    listed()
    gone.journal.unlink()
    listed()
    assert list(entries()) == [stays.run_id]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"null",
        b'{"version": 1}',
        b'{"version": 1, "folder": "/elsewhere", "runs": {}}',
        b'{"version": ' + b"9" * 5000 + b"}",
    ],
    ids=["empty", "not text", "too deep", "null", "no runs", "another folder", "a huge number"],
)
def test_a_damaged_index_is_written_again(content: bytes) -> None:
    run = make_run(START, DONE)
    first = listed()
    index().write_bytes(content)
    assert listed() == first
    assert run.run_id in entries()


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "loop"])
def test_an_index_that_is_no_file_is_ignored(kind: str) -> None:
    run = make_run(START, DONE)
    index().parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(index())
    elif kind == "folder":
        index().mkdir()
    else:
        index().symlink_to("/dev/zero" if kind == "device" else index())
    assert listed()[run.run_id]["state"] == "finished"


@pytest.mark.parametrize(
    "facts",
    [
        {"label": "\x1b[2Jred"},
        {"label": "line\nfeed"},
        {"label": None},
        {"outcome": ["completed"]},
        {"started_at": float("nan")},
        {"started_at": 1e300},
        {"started_at": -1e300},
        {"last_at": "soon"},
        {"epochs": "many"},
        {"epochs": True},
        {"epochs_done": -1},
        {"epochs_done": None},
        {"best": float("inf")},
        {"best": "0.9"},
        {"is_stopping": 1},
        {"unknown": 1},
    ],
    ids=repr,
)
def test_facts_that_cannot_be_are_read_from_the_journal(facts: dict[str, object]) -> None:
    run = make_run(START, FIT, epoch(1, 0.9), DONE)
    first = listed()
    poison(run, **facts)
    assert listed() == first


def test_an_entry_of_another_shape_is_read_from_the_journal() -> None:
    run = make_run(START, DONE)
    first = listed()
    stamp = entries()[run.run_id]["stamp"]
    shapes: list[object] = [
        None,
        3,
        [],
        {},
        {"stamp": stamp},
        {"stamp": stamp, "facts": None},
        {"stamp": stamp, "facts": {}},
    ]
    for entry in shapes:
        content = json.loads(index().read_text())
        content["runs"][run.run_id] = entry
        index().write_text(json.dumps(content))
        assert listed() == first


@given(st.builds(Facts, label=st.text(max_size=5), started_at=st.floats(), epochs=st.integers(), best=st.floats()))
def test_facts_that_are_accepted_can_be_shown(facts: Facts) -> None:
    accepted = facts_from(json.loads(json.dumps(facts.as_dict())))
    assert accepted is None or (accepted == facts and facts.label.isprintable())


def test_an_index_that_cannot_be_written_is_no_reason_to_fail() -> None:
    run = make_run(START, DONE)
    cache_folder().parent.mkdir(exist_ok=True)
    cache_folder().write_text("a file instead of the folder")
    assert listed()[run.run_id]["state"] == "finished"


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_a_journal_that_is_no_file_is_one_unreadable_run(kind: str) -> None:
    broken, good = make_run(START, DONE, label="broken"), make_run(START, DONE, label="good")
    broken.journal.unlink()
    if kind == "folder":
        broken.journal.mkdir()
    elif kind == "pipe":
        os.mkfifo(broken.journal)
    else:
        broken.journal.symlink_to("/dev/zero")
    assert {name: run["state"] for name, run in listed().items()} == {
        broken.run_id: "unreadable",
        good.run_id: "finished",
    }


@pytest.mark.parametrize("at", [-1e300, -1.0, 1e300])
def test_a_time_that_no_clock_can_show_breaks_nothing(at: float) -> None:
    run = create_run("odd")
    run.journal.write_bytes(encode(START, at) + encode(RunFailed("broke", "", "", ""), at))
    assert listed()[run.run_id]["state"] == "not started", "lines with such a time are damaged"
    assert read_overviews([run])[0].started is None
    assert read_details(run).seconds() is None


def test_a_paused_run_says_so_and_has_the_epochs_that_were_added() -> None:
    changed = Steered("epochs", "asked", 1, 10, 1.0, 3.0, 9.0)
    run = make_run(START, FIT, epoch(1, 0.9), changed, Steered("epochs", "asked", 1, 10, 1.0, refused="no"))
    write_heartbeat(run, os.getpid())
    seen = []
    for phase in ("paused", "training"):
        add(run, PhaseStarted(phase))
        seen.append((listed()[run.run_id]["state"], listed()[run.run_id]["epochs"]))
    assert seen == [(Status.PAUSED, 9), (Status.RUNNING, 9)]


@pytest.mark.parametrize("status", [Status.RUNNING, Status.FINISHED])
def test_of_a_long_run_only_what_is_new_is_read(status: Status) -> None:
    notices = [Noticed("x" * 1000)] * 600
    run = make_run(START, FIT, *notices, epoch(1, 0.9), *notices)
    write_heartbeat(run, os.getpid())
    assert read_overviews([run])[0].epochs_done == 1
    add(run, epoch(2, 0.95), *([DONE] if status is Status.FINISHED else []))
    place = run.journal.read_bytes().index(b"EpochEnded")
    with run.journal.open("r+b") as file:
        file.seek(place)
        file.write(b"E\0och")  # a reader from the beginning skips this line
    overview, details = read_overviews([run])[0], read_details(run)
    assert (overview.status, overview.epochs_done, overview.best) == (status, 2, ("val_accuracy", 0.95))
    assert len(details.state.epochs) == 2
