import shutil
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.helpers import LIMIT_S
from tests.tui.live_fakes import FakeEngine
from tpu_console.engine.runs.follower import Snapshot
from tpu_console.engine.runs.heartbeat import Liveness
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.tui.following.follow import FASTEST_S, SLOWEST_S, RunWatcher
from tpu_console.tui.text.outcome import outcome_of


class Updates:
    """Collects what a watcher sends, and waits for what a test expects."""

    def __init__(self) -> None:
        self.all: list[Snapshot] = []
        self._changed = threading.Condition()

    def add(self, update: Snapshot) -> None:
        with self._changed:
            self.all.append(update)
            self._changed.notify_all()

    def wait(self, condition: Callable[[Snapshot], object]) -> Snapshot:
        with self._changed:
            assert self._changed.wait_for(lambda: self.all and condition(self.all[-1]), timeout=LIMIT_S), self.all
            return self.all[-1]


@pytest.fixture
def watch() -> Iterator[Callable[[RunDirectory], Updates]]:
    watchers = []

    def start(run: RunDirectory) -> Updates:
        updates = Updates()
        watchers.append(RunWatcher(run, updates.add))
        watchers[-1].start()
        return updates

    yield start
    for watcher in watchers:
        watcher.stop()
        assert not watcher.is_alive()


def test_it_reports_events_once_a_log_and_a_death_that_changes_no_file(
    tmp_path: Path, watch: Callable[..., Updates]
) -> None:
    engine = FakeEngine(tmp_path)
    engine.begin()
    updates = watch(engine.run)
    first = updates.wait(lambda update: update.state.fit is not None)
    assert not first.state.epochs
    count = len(updates.all)
    engine.run.log.write_text("one line\n")
    updates.wait(lambda update: update.log == ("one line",))
    assert len(updates.all) == count + 1, "it says nothing while nothing changes"
    engine.train(1)
    second = updates.wait(lambda update: update.state.epochs)
    assert (len(second.state.train), second.is_reading, second.liveness) == (5, False, Liveness.ALIVE)
    engine.die()
    assert updates.wait(lambda update: update.crashed)


def test_it_says_that_the_folder_was_removed(tmp_path: Path, watch: Callable[..., Updates]) -> None:
    engine = FakeEngine(tmp_path)
    engine.begin()
    updates = watch(engine.run)
    updates.wait(lambda update: update.liveness is Liveness.ALIVE)
    shutil.rmtree(engine.run.path)
    snapshot = updates.wait(lambda update: update.is_removed)
    ended = outcome_of(engine.run, snapshot)
    assert ended is not None
    assert "removed" in ended.headline


def test_an_unreadable_journal_is_reported_and_read_later(tmp_path: Path, watch: Callable[..., Updates]) -> None:
    engine = FakeEngine(tmp_path)
    engine.run.journal.rename(tmp_path / "aside")
    engine.run.journal.mkdir()
    updates = watch(engine.run)
    assert "cannot be read" in updates.wait(lambda update: update.trouble).trouble
    engine.begin()  # still writes to the file that was moved aside
    engine.run.journal.rmdir()
    (tmp_path / "aside").rename(engine.run.journal)
    assert not updates.wait(lambda update: update.state.fit is not None).trouble


def test_a_long_journal_comes_in_parts(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path)
    engine.begin(1)
    engine.append(*[f'{{"v":1,"t":1.0,"type":"Other","text":"{"x" * 9000}"}}'] * 200)  # two parts are a megabyte
    engine.train(2)
    ticks, updates = count(), list[Snapshot]()

    def take(update: Snapshot) -> None:
        updates.append(update)
        if not update.is_reading:
            watcher.stop()

    watcher = RunWatcher(engine.run, take, clock=lambda: float(next(ticks)))
    watcher.run()
    assert [update.is_reading for update in updates] == [True] * (len(updates) - 1) + [False]
    assert [len(update.state.epochs) for update in (updates[0], updates[-1])] == [1, 2]


def test_drawing_is_limited_to_two_percent_of_a_core(tmp_path: Path) -> None:
    engine = FakeEngine(tmp_path)
    engine.begin()
    for cost_s, interval_s in ((0.001, FASTEST_S), (0.02, 1.0), (0.3, SLOWEST_S)):
        spent = count(step=cost_s)
        watcher = RunWatcher(engine.run, lambda _: watcher.stop(), drawing_s=lambda: next(spent))  # noqa: B023
        watcher.run()
        assert watcher.interval_s == pytest.approx(interval_s)
