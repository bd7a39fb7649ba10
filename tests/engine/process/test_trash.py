"""Runs go to the trash and come back; one that trains stays."""

import os
from pathlib import Path

import pytest

from tests.helpers import leave_dead, private_mode
from tpu_console.engine.errors import ConsoleError, RunNotFoundError
from tpu_console.engine.process.trash import delete_runs, deleted_runs, empty_trash, restore_run, trash_of
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, RunningError, create_run, find_run, list_runs, lock_run


def made(folder: Path, label: str = "run", *, is_over: bool = True) -> RunDirectory:
    run = create_run(label, folder)
    journal = JournalWriter(run.journal)
    if is_over:
        journal.write(RunFinished("completed", "", {}))
    journal.close()
    return run


def test_a_deleted_run_is_in_the_trash_until_it_is_restored(tmp_path: Path) -> None:
    run = made(tmp_path)
    before = run.journal.read_bytes()
    delete_runs([run])
    assert list_runs(tmp_path) == []
    assert [kept.run_id for kept in deleted_runs(tmp_path)] == [run.run_id]
    assert private_mode(trash_of(tmp_path)) == 0o700
    assert restore_run(run.run_id[9:], tmp_path) == run
    assert list_runs(tmp_path) == [run]
    assert run.journal.read_bytes() == before


def test_two_deleted_runs_of_one_name_both_stay_until_the_trash_is_emptied(tmp_path: Path) -> None:
    run = made(tmp_path)
    delete_runs([run])
    run.path.mkdir()
    run.journal.touch()
    leave_dead(run)
    delete_runs([run])
    assert sorted(kept.run_id for kept in deleted_runs(tmp_path)) == [run.run_id, f"{run.run_id}-2"]
    assert restore_run(run.run_id, tmp_path) == run
    assert [empty_trash(tmp_path), empty_trash(tmp_path)] == [1, 0]
    assert not trash_of(tmp_path).exists()


@pytest.mark.parametrize("sign", ["heartbeat", "lock", "starting"])
def test_a_run_that_trains_is_refused_and_so_are_those_with_it(tmp_path: Path, sign: str) -> None:
    other, run = made(tmp_path, "other"), made(tmp_path, is_over=sign == "lock")
    lock = lock_run(run) if sign == "lock" else -1
    if sign == "heartbeat":
        write_heartbeat(run, os.getpid())
    with pytest.raises(RunningError, match="is still training"):
        delete_runs([other, run])
    assert {*list_runs(tmp_path)} == {other, run}
    if sign == "lock":
        os.close(lock)
        delete_runs([run])
        assert list_runs(tmp_path) == [other]


def test_an_unknown_name_in_the_trash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunNotFoundError, match="There is no run 'x' in the trash"):
        restore_run("x", tmp_path)
    delete_runs([made(tmp_path, "one"), run := made(tmp_path, "one")])
    with pytest.raises(RunNotFoundError, match=rf"no run '{run.run_id}x' in the trash; did you mean '{run.run_id}'"):
        restore_run(f"{run.run_id}x", tmp_path)
    with pytest.raises(RunNotFoundError, match=r"'one' matches 2 runs in the trash\."):
        restore_run("one", tmp_path)


def test_a_trash_that_is_a_link_is_not_used(tmp_path: Path) -> None:
    runs, elsewhere = tmp_path / "runs", tmp_path / "elsewhere"
    run, _ = made(runs), made(elsewhere)
    trash_of(runs).symlink_to(elsewhere)
    for use in (lambda: delete_runs([run]), lambda: empty_trash(runs), lambda: deleted_runs(runs)):
        with pytest.raises(ConsoleError, match="is a link"):
            use()
    assert list_runs(runs) == [run]
    assert len(list_runs(elsewhere)) == 1


def test_only_the_link_to_a_run_is_deleted(tmp_path: Path) -> None:
    run, link = made(tmp_path / "disk"), tmp_path / "runs" / "20260101-000000-linked"
    link.parent.mkdir()
    link.symlink_to(run.path)
    delete_runs([find_run(str(link))])
    assert run.journal.exists()
    assert list_runs(link.parent) == []
    restore_run(link.name, link.parent)
    assert [found.path for found in list_runs(link.parent)] == [link]
