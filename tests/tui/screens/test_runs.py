from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
from textual.app import App
from textual.widgets import Static

from tests.helpers import leave_dead
from tests.tui.live_fakes import until
from tpu_console.engine.runs.events import EpochEnded, FitStarted, RunFailed, RunFinished, RunStarted
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.tui.screens.runs import RunsScreen, RunTable

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.tui.screens.messages import OpenRun


class Host(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[RunDirectory] = []

    def on_mount(self) -> None:
        self.push_screen(RunsScreen())

    def action_help(self) -> None:
        pass

    def on_open_run(self, message: OpenRun) -> None:
        self.opened.append(message.run)

    def cells(self) -> list[list[str]]:
        table = self.screen.query_one(RunTable)
        return [[str(cell) for cell in table.get_row_at(index)] for index in range(table.row_count)]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path))


def make_run(label: str, *, epochs: int, end: RunFinished | RunFailed | None, is_alive: bool = False) -> RunDirectory:
    run = create_run(label)
    at = iter(range(1000, 2000, 10))
    journal = JournalWriter(run.journal, clock=lambda: float(next(at)))
    journal.write(RunStarted(label, "host", os.getpid(), socket.gethostname()))
    journal.write(FitStarted(5, 10, 8, 8, 1, "", "val_accuracy"))
    for epoch in range(1, epochs + 1):
        logs = {"loss": 1 / epoch, "val_accuracy": 0.5 + epoch / 100}
        journal.write(EpochEnded(epoch, epoch * 10, 10, epoch, 1, 0, 0, 1, 1, 0.1, logs))
    if end is not None:
        journal.write(end)
    journal.close()
    if is_alive:
        write_heartbeat(run, os.getpid())
    else:
        leave_dead(run)
    return run


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
async def test_runs_are_listed_with_what_became_of_them(size: tuple[int, int]) -> None:
    make_run("done", epochs=5, end=RunFinished("completed", "", {}))
    make_run("halted", epochs=2, end=RunFinished("stopped", "", {}))
    make_run("broken", epochs=0, end=RunFailed("a", "b", "c", "d"))
    make_run("gone", epochs=1, end=None)
    make_run("going", epochs=3, end=None, is_alive=True)
    app = Host()
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: len(app.cells()) == 5 and all("reading" not in row[0] for row in app.cells()))
        shown = {row[1]: row for row in app.cells()}
        states = {label: row[0].split()[1] for label, row in shown.items()}
        assert states == {
            "done": "finished",
            "halted": "stopped",
            "broken": "failed",
            "gone": "crashed",
            "going": "running",
        }
        assert shown["done"][2:5] == ["5/5", "0.5500 val_accuracy", "1m 10s"]
        assert shown["broken"][2:4] == ["0/5", "–"]


async def test_enter_opens_the_run_and_leaves_the_list() -> None:
    run = make_run("done", epochs=1, end=RunFinished("completed", "", {}))
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.cells()) == 1)
        chosen = app.screen.query_one("#chosen", Static)
        await until(pilot, lambda: str(chosen.render()).endswith(run.run_id))
        await pilot.press("enter")
        await until(pilot, lambda: app.opened == [run])
        assert not isinstance(app.screen, RunsScreen)


async def test_refresh_shows_a_new_run_and_keeps_the_cursor() -> None:
    old = make_run("old", epochs=1, end=RunFinished("completed", "", {}))
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: [row[1] for row in app.cells()] == ["old"])
        make_run("new", epochs=1, end=None, is_alive=True)
        await pilot.press("r")
        await until(pilot, lambda: sorted(row[1] for row in app.cells()) == ["new", "old"])
        await pilot.press("enter")
        await until(pilot, lambda: app.opened == [old])


async def test_a_damaged_journal_is_a_row_like_any_other() -> None:
    run = create_run("odd")
    run.journal.write_bytes(b"\xff\xfe{]\n" + b'{"v": 99, "t": 1, "type": "FromTheFuture"}\n' + b'{"v": 1, "t"')
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: [row[0] for row in app.cells()] == ["○ not started"])


async def test_without_runs_it_says_where_they_would_be_and_goes_back() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        chosen = app.screen.query_one("#chosen", Static)
        await until(pilot, lambda: "No runs in" in str(chosen.render()))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, RunsScreen))
