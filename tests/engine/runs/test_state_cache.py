"""The folded state of a long journal is kept, and only what was appended since is read."""

from __future__ import annotations

import mmap
import os
import stat
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.strategies import events
from tpu_console.engine.runs import state_cache
from tpu_console.engine.runs.events import FitStarted, HostSampled, Progress, RunFinished, RunStarted
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.journal import encode, parse_line
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.engine.runs.state import RunState, fold, reduce

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.events import Event

STEPS = 12_000


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """A run that reported its progress so often that its state is worth keeping."""
    run = create_run("long", tmp_path / "runs")
    append(run, RunStarted("long", "host", 1, "here", {"epochs": 3}), FitStarted(3, 6000, 32, 32, 1))
    append(run, *(progress(step) for step in range(1, STEPS + 1)))
    append(run, HostSampled(0, "here", 1.0, 50.0, 100, 200, None, why_not={"disk_read_bytes_per_s": "not mounted"}))
    assert run.journal.stat().st_size > state_cache.PAYS_FROM
    return run


def progress(step: int) -> Progress:
    done = (step - 1) % 6000 + 1
    logs = {"loss": 1 / step, "accuracy": float("nan") if step == 7 else 1 - 1 / step}
    return Progress((step - 1) // 6000 + 1, done, step, step * 0.1, logs)


def append(run: RunDirectory, *written: Event) -> None:
    with run.journal.open("ab") as file:
        file.writelines(encode(event, 100.0) for event in written)


def kept_file(home: Path) -> Path:
    (path,) = (home / "cache" / "states").iterdir()
    return path


def damage_a_line(run: RunDirectory) -> None:
    """Make one of the first lines unreadable, which only a reader from the beginning counts."""
    data = run.journal.read_bytes()
    at = data.index(b"\n", 10_000) + 1
    with run.journal.open("r+b") as file:
        file.seek(at)
        file.write(b"x")


def same(one: RunState, other: RunState) -> bool:
    """Whether two states are equal; NaN equals NaN."""
    return repr(one) == repr(other)


def test_a_second_reader_reads_only_what_was_appended(run: RunDirectory) -> None:
    RunFollower(run).catch_up()
    append(run, progress(STEPS + 1), RunFinished("completed", "all epochs are done", {"loss": 0.1}))
    expected = RunFollower(run).catch_up().state
    damage_a_line(run)
    follower = RunFollower(run)
    assert same(follower.catch_up().state, expected)
    assert follower.states.journal.skipped == 0
    assert expected.end is not None
    assert len(expected.train) == STEPS + 1


def test_a_kept_state_goes_on_growing_and_keeps_what_the_reader_counted(run: RunDirectory) -> None:
    damage_a_line(run)
    with run.journal.open("ab") as file:
        file.write(b'{"v":9,"t":3.0,"type":"Teleported"}\n{"v":1,')  # the last line is not complete
    first = RunFollower(run)
    first.catch_up()
    assert state_cache.load(run) is not None
    with run.journal.open("ab") as file:
        file.write(b'"t":3.0,"type":"Noticed","message":"hello"}\n')
    second = RunFollower(run)
    assert second.catch_up().state.notices == ("hello",)
    assert (second.states.journal.skipped, second.snapshot.newer_version) == (1, 9)
    first.catch_up()
    assert same(first.snapshot.state, second.snapshot.state)


def test_the_curves_are_mapped_from_the_file_and_outlive_it(run: RunDirectory, private_home: Path) -> None:
    expected = RunFollower(run).catch_up().state.train
    curves = RunFollower(run).catch_up().state.train
    owner: Any = curves.step.values
    while not isinstance(owner, mmap.mmap):
        owner = owner.base
    kept_file(private_home).unlink()
    assert curves == expected
    grown = curves.extended([STEPS + 1], [3], [1.0], [{"loss": 0.5, "accuracy": 0.5}])
    assert len(grown) == STEPS + 1


@pytest.mark.parametrize("change", ["edited", "replaced", "shorter", "another journal"])
def test_the_state_of_a_journal_that_changed_is_not_used(run: RunDirectory, change: str) -> None:
    RunFollower(run).catch_up()
    data = run.journal.read_bytes()
    if change == "edited":
        before = run.journal.stat()
        damage_a_line(run)
        os.utime(run.journal, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    elif change == "replaced":
        run.journal.write_bytes(data.replace(b'"label":"long"', b'"label":"else"') + data[-200:])
    elif change == "shorter":
        run.journal.write_bytes(data[: len(data) // 2])
    else:
        run.journal.write_bytes(data[:5000] + data[:5000] + data[10_000:-200] + data[-400:-200])
    assert state_cache.load(run) is None
    records = (record for line in run.journal.read_bytes().splitlines() if (record := parse_line(line)))
    assert same(RunFollower(run).catch_up().state, fold(RunState(), [*records]))


def test_a_damaged_file_is_ignored_and_replaced(run: RunDirectory, private_home: Path) -> None:
    state = RunFollower(run).catch_up().state
    path = kept_file(private_home)
    whole = path.read_bytes()
    prefix = state_cache._PREFIX.size
    places = [0, 8, 16, 24, 32, prefix, prefix + 90, prefix + 500, len(whole) - 1, len(whole) - 8 * STEPS]
    flipped = [whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :] for at in places]
    cut = [whole[:at] for at in (0, 5, prefix, prefix + 100, len(whole) - 8)]
    for damaged in [*flipped, *cut, whole + b"12345678", b"\0" * len(whole)]:
        path.write_bytes(damaged)
        assert state_cache.load(run) is None
    assert same(RunFollower(run).catch_up().state, state)
    assert path.read_bytes() == whole


def test_a_state_of_another_version_of_the_program_is_ignored(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunFollower(run).catch_up()
    monkeypatch.setattr(state_cache, "_PROGRAM", "newer")
    assert state_cache.load(run) is None


def test_the_file_is_private_and_outside_the_run(run: RunDirectory, private_home: Path) -> None:
    before = {*run.path.iterdir()}
    RunFollower(run).catch_up()
    path = kept_file(private_home)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {*run.path.iterdir()} == before


def test_a_pipe_in_its_place_is_not_opened(run: RunDirectory, private_home: Path) -> None:
    RunFollower(run).catch_up()
    path = kept_file(private_home)
    path.unlink()
    os.mkfifo(path)
    assert state_cache.load(run) is None


def test_the_least_recently_used_states_make_room(
    run: RunDirectory, tmp_path: Path, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = RunFollower(run).catch_up().state
    size = kept_file(private_home).stat().st_size
    monkeypatch.setattr(state_cache, "MOST_BYTES", 3 * size)
    others: list[RunDirectory] = []
    for name in "abc":
        other = create_run(name, tmp_path / "runs")
        other.journal.write_bytes(run.journal.read_bytes())
        state_cache.save(other, state_cache.KeptState(state, run.journal.stat().st_size))
        os.utime(other.kept_state, (len(others), len(others)))
        others.append(other)
        assert state_cache.load(run) is not None  # used again and again
    assert [state_cache.load(other) is not None for other in others] == [False, True, True]


def test_no_state_is_kept_on_a_disk_that_is_nearly_full(
    run: RunDirectory, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_cache, "free_bytes", lambda folder: state_cache.MOST_BYTES)
    RunFollower(run).catch_up()
    assert not [*(private_home / "cache" / "states").iterdir()]


def test_a_state_is_kept_again_only_if_much_was_appended() -> None:
    mib = 1 << 20
    assert not state_cache.pays(mib - 1, 0, is_over=True)
    assert state_cache.pays(mib, 0, is_over=False)
    assert not state_cache.pays(110 * mib, 100 * mib, is_over=False)
    assert state_cache.pays(126 * mib, 100 * mib, is_over=False)
    assert state_cache.pays(102 * mib, 100 * mib, is_over=True)
    assert not state_cache.pays(101 * mib, 100 * mib, is_over=True)


@given(st.lists(events, max_size=20))
def test_any_state_is_the_same_after_it_was_kept(history: list[Event]) -> None:
    state = RunState()
    for number, event in enumerate(history):
        state = reduce(state, event, float(number))
    packer = state_cache._Packer()
    text = orjson.dumps(packer.packed(state))
    again = state_cache._unpacked(orjson.loads(text), packer.columns)
    assert same(again, state)
