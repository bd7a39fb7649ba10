from __future__ import annotations

import json
import os
import socket

import pytest
from textual.app import App
from textual.widgets import Static

from tests.helpers import leave_dead
from tests.hostile_runs import HOSTILE, UNSAFE
from tests.tui.live_fakes import FakeEngine, screen_text, until
from tests.tui.made_runs import made_run
from tpu_console.engine.process.trash import deleted_runs
from tpu_console.engine.runs.events import EpochEnded, FitStarted, RunFailed, RunFinished, RunStarted
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import (
    Annotations,
    RunDirectory,
    create_run,
    list_runs,
    read_annotations,
    write_annotations,
)
from tpu_console.tui.screens.parts import Title
from tpu_console.tui.screens.runs import RunsScreen
from tpu_console.tui.widgets.record_table import RecordTable


class Host(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.opened: list[RunDirectory] = []
        self.posted: list[object] = []

    def on_mount(self) -> None:
        self.push_screen(RunsScreen(look_s=0.2))

    def action_help(self) -> None:
        pass

    def open_run(self, run: RunDirectory) -> None:
        self.opened.append(run)

    def compare_runs(self, runs: list[RunDirectory]) -> None:
        self.posted.append([run.run_id for run in runs])

    def resume_run(self, run: RunDirectory, *, is_finished: bool) -> None:
        self.posted.append(run)

    def new_run_like(self, run: RunDirectory) -> None:
        self.posted.append(run)

    @property
    def table(self) -> RecordTable:
        return self.screen.query_one(RecordTable)

    def cells(self) -> list[list[str]]:
        """The rows that fit, each cell without the padding."""
        rows = [map(str, self.table.get_row_at(index)) for index in range(self.table.row_count)]
        return [[text.strip() for text in row if text.strip()] for row in rows]

    def labels(self) -> list[str]:
        return [row[0].partition("-")[2] for row in self.cells()]

    def is_read(self) -> bool:
        return bool(self.cells()) and "reading" not in str(self.screen.query_one(Title).content)


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


async def test_runs_are_listed_with_their_state() -> None:
    make_run("done", epochs=5, end=RunFinished("completed", "", {}))
    make_run("halted", epochs=2, end=RunFinished("stopped", "", {}))
    make_run("broken", epochs=0, end=RunFailed("a", "b", "c", "d"))
    make_run("gone", epochs=1, end=None)
    make_run("going", epochs=3, end=None, is_alive=True)
    app = Host()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: len(app.cells()) == 5 and app.is_read())
        shown = dict(zip(app.labels(), app.cells(), strict=True))
        states = {label: row[1].split()[1] for label, row in shown.items()}
        assert states == {
            "done": "finished",
            "halted": "stopped",
            "broken": "failed",
            "gone": "crashed",
            "going": "running",
        }
        assert {"0.5500 val_accuracy", "5/5", "1m 10s"} <= {*shown["done"]}
        assert {"–", "0/5"} <= {*shown["broken"]}
        await until(pilot, lambda: app.table.chosen in str(app.screen.query_one("#chosen", Static).render()))
        await pilot.press("enter")
        await until(pilot, lambda: [run.run_id for run in app.opened] == [app.table.chosen])


async def test_an_empty_list_names_the_folder_of_runs() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        chosen = app.screen.query_one("#chosen", Static)
        await until(pilot, lambda: "No runs in" in str(chosen.render()))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, RunsScreen))


async def test_a_running_run_moves_on_and_a_new_one_appears(engine: FakeEngine) -> None:
    engine.begin(1)
    app = Host()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "1/10" in app.cells()[0] if app.cells() else False)
        engine.train(2)
        await until(pilot, lambda: "2/10" in app.cells()[0])
        made_run(label="another")
        await until(pilot, lambda: len(app.cells()) == 2)
        engine.finish()
        await until(pilot, lambda: all("✓ finished" in row for row in app.cells()))


async def test_runs_are_sorted_and_filtered_and_the_cursor_stays_on_its_run() -> None:
    for label, accuracy in (("one", 0.5), ("two", 0.9), ("three", 0.7)):
        made_run([{"val_accuracy": accuracy}], label=label)
    app = Host()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, app.is_read)
        assert app.labels() == ["three", "two", "one"]
        for _ in ("name", "preset", "state", "best"):
            await pilot.press("o")
        assert app.labels() == ["two", "three", "one"]
        assert app.table.chosen.endswith("three")
        await pilot.press("slash", *"0.0", "enter")
        await until(pilot, lambda: "No run matches." in screen_text(pilot))
        await pilot.press("R", "t", "w", "e", "D")
        assert not app.has_class("-entering")
        assert app.posted == []
        await pilot.press("escape")
        await pilot.press("slash", *"O", "backspace", *"One")
        assert app.labels() == ["one"]
        await pilot.press("escape")
        assert len(app.labels()) == 3


async def test_a_run_is_tagged_renamed_noted_and_archived() -> None:
    run = made_run()
    app = Host()
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, app.is_read)
        await pilot.press("number_sign", *"a b", "enter", "t", *"best", "enter", "w", *"hm", "enter")
        assert read_annotations(run.path) == Annotations("best", ("a", "b"), "hm")
        assert app.cells()[0][0] == "best"
        assert "a b" in app.cells()[0]
        await until(pilot, lambda: "#a · #b · hm" in screen_text(pilot))
        await pilot.press("e")
        assert read_annotations(run.path).archived
        assert app.cells() == []
        await pilot.press("a")
        await until(pilot, lambda: "archived · #a · #b · hm" in screen_text(pilot))
        await pilot.press("e")
        assert not read_annotations(run.path).archived
        for is_archived in (True, False):
            await pilot.press("U" if not is_archived else "e")
            assert read_annotations(run.path).archived is is_archived


@pytest.mark.parametrize("width", [80, 120])
async def test_start_and_tags_are_listed_at_every_width_and_the_best_where_there_is_room(width: int) -> None:
    run = made_run()
    app = Host()
    async with app.run_test(size=(width, 24)) as pilot:
        await until(pilot, app.is_read)

        def titles() -> set[str]:
            return {str(column.label).strip() for column in app.table.ordered_columns}

        assert {"started", "state", "best"} <= titles()
        assert "tags" not in titles()
        write_annotations(run.path, Annotations(tags=("first", "second")))
        await pilot.press("f5")
        await until(pilot, lambda: "first second" in app.cells()[0])
        assert {"started", "state"} <= titles()
        assert width == 80 or "best" in titles()


async def test_one_selected_run_is_tagged_whichever_is_under_the_cursor() -> None:
    other, selected = made_run(), made_run()
    write_annotations(other.path, Annotations(tags=("other",)))
    write_annotations(selected.path, Annotations(tags=("mine",)))
    app = Host()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, app.is_read)
        assert app.table.chosen == selected.run_id
        await pilot.press("space")
        assert app.table.chosen == other.run_id
        await pilot.press("number_sign", "end", *" new", "enter")
        assert [read_annotations(run.path).tags for run in (selected, other)] == [("mine", "new"), ("other",)]
        await pilot.press("space", "number_sign", *"all", "enter")
        assert [read_annotations(run.path).tags for run in (selected, other)] == [
            ("mine", "new", "all"),
            ("other", "all"),
        ]


async def test_selected_runs_are_compared_and_one_alone_with_those_of_its_preset() -> None:
    runs = [made_run(label=label) for label in ("one", "two", "one")]
    app = Host()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, app.is_read)
        await pilot.press("c")
        await until(pilot, lambda: app.posted == [[runs[2].run_id, runs[0].run_id]])
        await pilot.press("space", "space", "c")
        await until(pilot, lambda: app.posted[1:] == [[runs[2].run_id, runs[1].run_id]])


async def test_a_run_is_deleted_after_a_question_and_restored() -> None:
    run, other = made_run(label="one"), made_run(label="two")
    app = Host()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, app.is_read)
        await pilot.press("down", "D", "n")
        assert {*list_runs()} == {run, other}
        await pilot.press("D", "y")
        await until(pilot, lambda: app.labels() == ["two"])
        assert [kept.run_id for kept in deleted_runs()] == [run.run_id]
        await pilot.press("U")
        await until(pilot, lambda: app.labels() == ["two", "one"])


async def test_a_run_that_trains_is_not_deleted() -> None:
    run = make_run("going", epochs=1, end=None, is_alive=True)
    app = Host()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, app.is_read)
        await pilot.press("D", "y")
        await until(pilot, lambda: f"{run.run_id} is still training." in screen_text(pilot))
        assert list_runs() == [run]


async def test_runs_are_repeated_and_go_on_whether_they_were_interrupted_or_finished() -> None:
    crashed, done = made_run(end=None, epochs=7, label="crashed"), made_run(epochs=9)
    app = Host()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, app.is_read)
        assert app.table.chosen == done.run_id
        await pilot.press("R", "r", "down", "r", "R")
        await until(pilot, lambda: app.posted == [done, done, crashed, crashed])


async def test_hostile_annotations_are_harmless() -> None:
    run = made_run()
    write_annotations(run.path, Annotations(HOSTILE, (HOSTILE,), HOSTILE))
    run.annotations.write_text(json.dumps({"title": HOSTILE, "tags": [HOSTILE], "note": HOSTILE}))
    app = Host()
    async with app.run_test(size=(200, 50)) as pilot:
        await until(pilot, lambda: "[red]" in screen_text(pilot))
        assert not UNSAFE & {*screen_text(pilot)}
