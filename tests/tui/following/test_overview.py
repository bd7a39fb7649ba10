"""Overviews of runs, for lists: from the summary of a run that has ended, else from its journal."""

import json
import math
import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.helpers import epoch_ended, leave_dead, replace, wait_until
from tests.tui.made_runs import DONE, made_run
from tpu_console.engine.runs import events
from tpu_console.engine.runs.events import RunFailed, RunResumed, Steered
from tpu_console.engine.runs.facts import conclude
from tpu_console.engine.runs.follower import Snapshot
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter, encode
from tpu_console.engine.runs.run_directory import RunDirectory, create_run, list_runs
from tpu_console.tui.following.follow import RunWatcher, follow
from tpu_console.tui.following.overview import RunReader, read_details, read_overviews, read_settings
from tpu_console.tui.text.names import Status

START = events.RunStarted("digits-cnn", "host", 1, "here")
FIT = events.FitStarted(3, 4, 32, 32, 4, monitor="val_accuracy")


def epoch(number: int, accuracy: float) -> events.EpochEnded:
    return epoch_ended(number, {"loss": 0.5, "val_loss": 0.4, "val_accuracy": accuracy})


def make_run(*history: events.Event, label: str = "digits-cnn") -> RunDirectory:
    run = create_run(label)
    add(run, *history)
    return run


def add(run: RunDirectory, *history: events.Event) -> None:
    times = iter(range(1_790_000_000, 1_800_000_000, 10))
    writer = JournalWriter(run.journal, clock=lambda: float(next(times)))
    for event in history:
        writer.write(event)
    writer.close()


def watched_once(run: RunDirectory) -> None:
    updates: list[Snapshot] = []
    watcher = RunWatcher(run, updates.append)
    watcher.start()
    wait_until(lambda: updates and updates[-1].crashed)
    watcher.stop()


def listed() -> dict[str, Any]:
    return {overview.run.run_id: overview.as_dict() for overview in read_overviews(list_runs())}


def poison(run: RunDirectory, **facts: object) -> None:
    """Change what the summary of a run says, so that a test sees whether it is believed."""
    content = json.loads(run.summary.read_text())
    content["facts"].update(facts)
    run.summary.write_text(json.dumps(content))


@pytest.mark.parametrize("end", [DONE, RunFailed("It broke.", "", "", "")])
def test_a_list_reads_the_summary_of_a_run_until_it_is_resumed(end: events.Event) -> None:
    run = make_run(START, FIT, epoch(1, 0.9), epoch(2, 0.8), end)
    first = listed()[run.run_id]
    assert (first["best"], first["epochs_done"]) == (0.9, 2)
    conclude(run)
    size = run.summary.stat().st_size
    assert listed()[run.run_id] == first | {"size_bytes": first["size_bytes"] + size}
    poison(run, best=0.123)
    assert listed()[run.run_id]["best"] == 0.123
    add(run, RunResumed(1, 0, 4, 1.0, 1, "here"), epoch(2, 0.95))
    write_heartbeat(run, os.getpid())
    assert (listed()[run.run_id]["best"], listed()[run.run_id]["state"]) == (0.95, "running")


@pytest.mark.parametrize(("loss", "is_broken"), [(math.nan, True), (math.inf, True), (0.5, False)])
def test_a_run_that_finished_with_nan_is_not_listed_as_any_other(loss: float, *, is_broken: bool) -> None:
    last = replace(epoch(2, 0.8), logs={"loss": loss, "val_accuracy": 0.1})
    run = make_run(START, FIT, epoch(1, 0.9), last, DONE)
    assert [overview.is_broken for overview in read_overviews([run])] == [is_broken]
    conclude(run)
    (kept,) = read_overviews([run])
    assert (kept.is_broken, "NaN" in kept.status_text, kept.as_dict()["state"]) == (is_broken, is_broken, "finished")


def test_whether_a_run_is_alive_is_looked_up_each_time() -> None:
    run = make_run(START, FIT, epoch(1, 0.9))
    run.heartbeat.write_text("{}")
    os.utime(run.heartbeat, (1, 1))
    reader = RunReader(run)
    assert reader.overview().status is Status.CRASHED
    write_heartbeat(run, os.getpid())
    assert reader.overview().status is Status.RUNNING
    add(run, events.StopRequested("asked"))
    assert reader.overview().status is Status.STOPPING


def test_the_time_of_a_run_never_counts_what_lies_between_two_processes() -> None:
    run = create_run("killed")
    run.journal.write_bytes(encode(START, 1000.0) + encode(epoch(1, 0.9), 1060.0))
    leave_dead(run)
    assert read_details(run).seconds() == 60.0
    write_heartbeat(run, os.getpid())
    (resuming,) = read_overviews([run])
    assert (resuming.status, resuming.seconds()) == (Status.RUNNING, 60.0)
    resumed_at = run.heartbeat.stat().st_mtime
    with run.journal.open("ab") as file:
        file.write(encode(RunResumed(1, 0, 4, 60.0, 1, "here"), resumed_at))
    os.utime(run.heartbeat, (resumed_at + 5,) * 2)
    assert read_details(run).seconds() == pytest.approx(65.0)
    back = create_run("clock set back")
    back.journal.write_bytes(encode(START, 1000.0) + encode(RunFailed("broke", "", "", ""), 900.0))
    assert read_details(back).seconds() == 0.0


@pytest.mark.parametrize("look", [lambda run: read_overviews([run]), follow, watched_once])
def test_whoever_notices_that_a_run_was_killed_writes_its_history(look: Callable[[RunDirectory], object]) -> None:
    run = make_run(START, FIT, epoch(1, 0.9), epoch(2, 0.8))
    leave_dead(run)
    look(run)
    assert run.history.read_text().count("\n") == 3


@pytest.mark.parametrize("at", [-1.0, 1e300])
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
        add(run, events.PhaseStarted(phase))
        seen.append((listed()[run.run_id]["state"], listed()[run.run_id]["epochs"]))
    assert seen == [(Status.PAUSED, 9), (Status.RUNNING, 9)]


def test_of_a_run_that_was_read_before_only_what_is_new_is_read() -> None:
    notices = [events.Noticed("x" * 1000)] * 600
    run = make_run(START, FIT, *notices, epoch(1, 0.9), *notices)
    write_heartbeat(run, os.getpid())
    reader = RunReader(run)
    assert reader.overview().facts.epochs_done == 1
    add(run, epoch(2, 0.95))
    place = run.journal.read_bytes().index(b"EpochEnded")
    with run.journal.open("r+b") as file:
        file.seek(place)
        file.write(b"E\0och")  # a reader from the beginning skips this line
    assert (reader.overview().facts.epochs_done, read_overviews([run])[0].facts.epochs_done) == (2, 1)


def test_settings_that_differ_from_the_preset_come_first_and_are_the_changes_of_a_list() -> None:
    run = made_run(epochs=7, checkpoint={"monitor": "loss"}, early_stopping={"monitor": "loss"})
    texts = ["7 (preset: 60)", "loss (preset: val_loss)", "loss (preset: val_accuracy)", "digits-cnn"]
    assert [setting.text for setting in read_settings(run)][:4] == texts
    changes = "epochs=7 early_stopping.monitor=loss checkpoint.monitor=loss"  # keys that end alike are written in full
    assert [one.changes for one in read_overviews([run, made_run(label="no-preset")])] == [changes, ""]
    assert read_settings(made_run(has_config=False)) == []
