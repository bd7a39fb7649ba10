"""The list of runs; recorded runs show their states and columns."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Static

from tests.hostile_runs import HOSTILE, UNSAFE
from tests.tui.live_fakes import FakeEngine, screen_text, shows, until
from tests.tui.made_runs import made_run
from tpu_console.engine.process.trash import deleted_runs
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.runs.run_directory import (
    Annotations,
    RunDirectory,
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
        self.open_run, self.new_run_like = self.opened.append, self.posted.append
        self.compare_runs = lambda runs: self.posted.append([run.run_id for run in runs])
        self.resume_run = lambda run, is_finished: self.posted.append((run, is_finished))

    def on_mount(self) -> None:
        self.push_screen(RunsScreen(look_s=0.2))

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


@asynccontextmanager
async def listed(size: tuple[int, int] = (120, 40)) -> AsyncIterator[tuple[Pilot[None], Host]]:
    """The screen, once it has read all runs."""
    app = Host()
    async with app.run_test(size=size) as pilot:
        await until(pilot, app.is_read)
        yield pilot, app


async def test_an_empty_list_names_the_folder_of_runs() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        chosen = app.screen.query_one("#chosen", Static)
        await until(pilot, lambda: "No runs in" in str(chosen.render()))
        await until(pilot, lambda: not isinstance(app.screen, RunsScreen), after="escape")


async def test_a_running_run_moves_on_and_a_new_one_appears(engine: FakeEngine) -> None:
    engine.begin(1)
    app = Host()
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: all(text in str(app.cells()) for text in ("running", "1/10")))
        engine.train(2)
        await until(pilot, lambda: "2/10" in app.cells()[0])
        made_run(label="another")
        await until(pilot, lambda: len(app.cells()) == 2)
        engine.finish()
        await until(pilot, lambda: all("✓ finished" in row for row in app.cells()))
        await until(pilot, lambda: [run.run_id for run in app.opened] == [app.table.chosen], after="enter")


async def test_runs_are_sorted_and_filtered_and_the_cursor_stays_on_its_run() -> None:
    for label, accuracy in (("one", 0.5), ("two", 0.9), ("three", 0.7)):
        made_run([{"val_accuracy": accuracy}], label=label)
    async with listed() as (pilot, app):
        assert app.labels() == ["three", "two", "one"]
        for _ in ("name", "preset", "state", "best"):
            await pilot.press("o")
        assert app.labels() == ["two", "three", "one"]
        assert app.table.chosen.endswith("three")
        await shows(pilot, "No run matches.", after=("slash", *"0.0", "enter"))
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
    async with listed((200, 50)) as (pilot, app):
        await pilot.press("number_sign", *"a b", "enter", "t", *"best", "enter", "w", *"hm", "enter")
        assert read_annotations(run.path) == Annotations("best", ("a", "b"), "hm")
        assert app.cells()[0][0] == "best"
        assert "a b" in app.cells()[0]
        await shows(pilot, "#a · #b · hm")
        await pilot.press("e")
        assert read_annotations(run.path).archived
        assert app.cells() == []
        await shows(pilot, "archived · #a · #b · hm", after="a")
        await pilot.press("e")
        assert not read_annotations(run.path).archived
        for key, is_archived in (("e", True), ("U", False)):
            await pilot.press(key)
            assert read_annotations(run.path).archived is is_archived


async def test_one_selected_run_is_tagged_whichever_is_under_the_cursor() -> None:
    other, selected = made_run(), made_run()
    write_annotations(other.path, Annotations(tags=("other",)))
    write_annotations(selected.path, Annotations(tags=("mine",)))
    async with listed() as (pilot, app):
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
    async with listed() as (pilot, app):
        await until(pilot, lambda: app.posted == [[runs[2].run_id, runs[0].run_id]], after="c")
        await until(pilot, lambda: app.posted[1:] == [[runs[2].run_id, runs[1].run_id]], after=("space", "space", "c"))


async def test_a_run_is_deleted_after_a_question_and_restored() -> None:
    run, other = made_run(label="one"), made_run(label="two")
    async with listed() as (pilot, app):
        await pilot.press("down", "D", "n")
        assert {*list_runs()} == {run, other}
        await until(pilot, lambda: app.labels() == ["two"], after=("D", "y"))
        assert [kept.run_id for kept in deleted_runs()] == [run.run_id]
        await until(pilot, lambda: app.labels() == ["two", "one"], after="U")


async def test_a_run_that_trains_is_not_deleted() -> None:
    run = made_run(end=None)
    write_heartbeat(run, os.getpid())
    async with listed() as (pilot, _):
        await shows(pilot, f"{run.run_id} is still training.", after=("D", "y"))
        assert list_runs() == [run]


async def test_runs_are_repeated_and_continued_whether_they_were_interrupted_or_finished() -> None:
    crashed, done = made_run(end=None, epochs=7, label="crashed"), made_run(epochs=9)
    async with listed() as (pilot, app):
        assert app.table.chosen == done.run_id
        await until(
            pilot,
            lambda: app.posted == [(done, True), done, crashed, (crashed, False)],
            after=("R", "r", "down", "r", "R"),
        )


async def test_hostile_annotations_are_harmless() -> None:
    run = made_run()
    write_annotations(run.path, Annotations(HOSTILE, (HOSTILE,), HOSTILE))
    run.annotations.write_text(json.dumps({"title": HOSTILE, "tags": [HOSTILE], "note": HOSTILE}))
    app = Host()
    async with app.run_test(size=(200, 50)) as pilot:
        await shows(pilot, "[red]")
        assert not UNSAFE & {*screen_text(pilot)}
