from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
from textual.app import App
from textual.widgets import Static

from tests.helpers import leave_dead
from tests.tui.live_fakes import screen_text, until
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
        """The rows that fit, each cell without the padding."""
        table = self.screen.query_one(RunTable)
        return [[str(cell).strip() for cell in table.get_row_at(index)] for index in range(table.row_count)]

    def labels(self) -> list[str]:
        return [row[-1].partition("-")[2].partition("-")[2] for row in self.cells()]


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
async def test_runs_are_listed_with_their_state(size: tuple[int, int]) -> None:
    make_run("done", epochs=5, end=RunFinished("completed", "", {}))
    make_run("halted", epochs=2, end=RunFinished("stopped", "", {}))
    make_run("broken", epochs=0, end=RunFailed("a", "b", "c", "d"))
    make_run("gone", epochs=1, end=None)
    make_run("going", epochs=3, end=None, is_alive=True)
    app = Host()
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: len(app.cells()) == 5 and all("reading" not in row[0] for row in app.cells()))
        shown = dict(zip(app.labels(), app.cells(), strict=True))
        states = {label: row[0].split()[1] for label, row in shown.items()}
        assert states == {
            "done": "finished",
            "halted": "stopped",
            "broken": "failed",
            "gone": "crashed",
            "going": "running",
        }
        assert {"5/5", "0.5500 val_accuracy"} <= set(shown["done"])
        assert {"0/5", "–"} <= set(shown["broken"])
        assert size[0] == 80 or "1m 10s" in shown["done"]


async def test_little_room_drops_columns_and_never_the_end_of_a_name() -> None:
    run = make_run("a-name-that-differs-from-another-one-at-its-end-1", epochs=5, end=RunFinished("completed", "", {}))
    app = Host()
    async with app.run_test(size=(60, 24)) as pilot:
        await until(pilot, lambda: "another-one-at-its-end-1" in screen_text(pilot))
        assert app.cells()[0] == [f"…{run.run_id[-56:]}"]
        await pilot.resize_terminal(200, 50)
        await until(pilot, lambda: app.cells()[0][-1] == run.run_id)
        assert app.cells()[0][0] == "✓ finished"


async def test_enter_opens_the_run_and_the_list_is_there_on_coming_back() -> None:
    run = make_run("done", epochs=1, end=RunFinished("completed", "", {}))
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.cells()) == 1)
        chosen = app.screen.query_one("#chosen", Static)
        await until(pilot, lambda: str(chosen.render()).endswith(run.run_id))
        await pilot.press("enter")
        await until(pilot, lambda: app.opened == [run])
        assert isinstance(app.screen, RunsScreen)


async def test_refresh_shows_a_new_run_and_keeps_the_cursor() -> None:
    old = make_run("old", epochs=1, end=RunFinished("completed", "", {}))
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: app.labels() == ["old"])
        make_run("new", epochs=1, end=None, is_alive=True)
        await pilot.press("r")
        await until(pilot, lambda: sorted(app.labels()) == ["new", "old"])
        await pilot.press("enter")
        await until(pilot, lambda: app.opened == [old])


async def test_a_run_with_a_damaged_journal_is_listed() -> None:
    run = create_run("odd")
    run.journal.write_bytes(b"\xff\xfe{]\n" + b'{"v": 99, "t": 1, "type": "FromTheFuture"}\n' + b'{"v": 1, "t"')
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: [row[0] for row in app.cells()] == ["○ not started"])


async def test_an_empty_list_names_the_folder_of_runs() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        chosen = app.screen.query_one("#chosen", Static)
        await until(pilot, lambda: "No runs in" in str(chosen.render()))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, RunsScreen))
