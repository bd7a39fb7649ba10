"""The runs screen: past and running runs, to open, compare, tag, repeat, resume or delete them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from textual import on, work
from textual.screen import Screen
from textual.widgets import DataTable, Input, Static
from textual.worker import get_current_worker

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs, read_annotations, write_annotations
from tpu_console.engine.storage.paths import runs_folder, user_path

from ..following.run_list import SCREEN_COLUMNS, Sort, in_order, matches, with_tags
from ..text.keys import bind
from ..text.names import Status
from ..text.numbers import metric, plural
from ..text.tables import Column
from ..widgets.basics import call_back
from ..widgets.record_table import RecordTable
from .parts import (
    BACK,
    HELP,
    QUIT,
    Confirmation,
    KeysFooter,
    Title,
    ValueDialog,
    after,
    ask_user,
    console_of,
    show_error,
)

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ..following.overview import Overview, RunReader

_LOOK_S = 3.0  # between two looks at running runs, and for new ones
_SHOW_S = 0.3
_OVER = {Status.FINISHED, Status.STOPPED, Status.FAILED, Status.CRASHED}
_WRITTEN = {"tags": "separated by spaces", "title": "shown instead of the name", "note": "found by the filter, too"}


class RunsScreen(Screen[None]):
    """A table of runs; enter opens one.

    With `is_first`, it was opened from the first screen of the console, and leads to the form.
    """

    CSS = """
    RunsScreen {
        #runs { height: 1fr; }
        #chosen { height: auto; max-height: 4; padding: 0 1; color: $text-muted; }
        #filter { display: none; margin: 0 1; }
        &.-filtering #filter { display: block; }
        &.-filtering #chosen { display: none; }
    }
    """
    AUTO_FOCUS = "RecordTable"
    BINDINGS = [
        bind("select", about="Select the run, or deselect it."),
        bind("compare"),
        bind("filter", about="List only the runs that contain some words."),
        HELP,
        *map(bind, ("sort", "again", "resume", "delete")),
        BACK,
        bind("sweeps", "app.sweeps"),
        bind("tags", "write('tags')"),
        bind("title", "write('title')"),
        bind("note", "write('note')"),
        bind("archive"),
        bind("all", "show_archived"),
        bind("undo", "restore"),
        bind("reload", "refresh_runs"),
        QUIT,
    ]

    def __init__(self, *, is_first: bool = False, look_s: float = _LOOK_S) -> None:
        super().__init__()
        self._is_first, self._look_s = is_first, look_s
        self._runs: dict[str, RunDirectory] = {}
        self._known: dict[str, Overview] = {}
        self._readers: dict[str, RunReader] = {}
        self._selected: dict[str, None] = {}
        self._undo: Callable[[], object] | None = None  # undoes the last archiving or deletion
        self._sort = Sort.STARTED
        self._words = ""
        self._shows_archived = False
        self._listed_ns = 0
        self._is_looking = False

    def compose(self) -> ComposeResult:
        yield Title("runs, newest first")
        selected = Column(
            "", 20, width=1, value=lambda one: "●" * (one.run.run_id in self._selected), look=lambda _: "$text-accent"
        )
        yield RecordTable([selected, *SCREEN_COLUMNS], "runs")
        yield Static("", id="chosen", markup=False)
        yield Input(placeholder="words that a run's row, note or tags contain", id="filter", compact=True)
        yield KeysFooter()

    def on_mount(self) -> None:
        self.set_interval(self._look_s, self._turn, name="look at runs")

    def _turn(self) -> None:
        if not self.is_current or self._is_looking:
            return
        if self._listed_ns and _changed_ns() != self._listed_ns:
            self.action_refresh_runs()
        elif any(one.status.is_live for one in self._known.values()):
            self._is_looking = True
            self._look_again()

    def on_screen_resume(self) -> None:
        self.action_refresh_runs()

    @work(thread=True, exclusive=True, name="read runs")
    def action_refresh_runs(self) -> None:
        """Read the runs one by one, because a long journal takes a while, and show them in batches."""
        self._listed_ns = _changed_ns()
        runs = list_runs()
        call_back(self, self._show, [], runs)
        # The journal reader imports NumPy: wait until the table is shown, and do not block key presses.
        from ..following.overview import RunReader

        worker, seen, shown_at = get_current_worker(), list["Overview"](), time.monotonic()
        for run in runs:
            if worker.is_cancelled:
                return
            seen.append(self._readers.setdefault(run.run_id, RunReader(run)).overview())
            if run is runs[-1] or time.monotonic() - shown_at > _SHOW_S:
                call_back(self, self._show, seen)
                seen, shown_at = [], time.monotonic()

    @work(thread=True, group="live runs", name="look at live runs")
    def _look_again(self) -> None:
        """Read what is new of the runs that may change; a long journal takes longer than a turn."""
        try:
            live = [self._readers.get(run_id) for run_id, one in [*self._known.items()] if one.status.is_live]
            call_back(self, self._show, [reader.details() for reader in live if reader is not None])
        finally:
            self._is_looking = False

    def _show(self, seen: Sequence[Overview], runs: Sequence[RunDirectory] | None = None) -> None:
        """Fill the rows of some runs with what was read; a new list of runs keeps what is known of them."""
        if runs is not None:
            self._runs = {run.run_id: run for run in runs}
            for table in (self._known, self._readers, self._selected):
                for gone in table.keys() - self._runs.keys():
                    del table[gone]
        self._known |= {overview.run.run_id: overview for overview in seen if overview.run.run_id in self._runs}
        self._arrange()

    def _arrange(self) -> None:
        known = [self._known[run_id] for run_id in self._runs if run_id in self._known]
        listed, words = with_tags(known, (), archived=self._shows_archived), self._words.lower().split()
        shown = [one for one in listed if matches(one, words)]
        self._table.show({one.run.run_id: one for one in in_order(shown, self._sort)})
        self._describe()
        parts = ["runs, newest first" if self._sort is Sort.STARTED else f"runs, sorted by {self._sort}"]
        parts += [f"reading {len(self._runs) - len(known):,} more"] if len(known) < len(self._runs) else []
        parts += [f"{len(shown):,} of {len(known):,}"] if len(shown) < len(known) else []
        parts += [f"filter: {self._words}"] if self._words else []
        parts += [f"{len(self._selected)} selected"] if self._selected else []
        self.query_one(Title).show(" · ".join(parts))

    @property
    def _table(self) -> RecordTable:
        return self.query_one(RecordTable)

    @on(DataTable.RowHighlighted)
    def _describe(self) -> None:
        chosen: Overview | None = self._table.record
        if chosen is not None:
            written, remark = chosen.annotations, chosen.remark or chosen.problem
            best = f"best {chosen.best[0]} {metric(chosen.best[1])}" if chosen.best is not None else ""
            changed = f"changed {chosen.changes}" if chosen.changes else ""
            marks = [*(["archived"] if written.archived else []), *(f"#{tag}" for tag in written.tags)]
            lines = [user_path(chosen.run.path), f"{remark[:1].upper()}{remark[1:]}"]
            lines += [" · ".join(filter(None, parts)) for parts in ((best, changed), (*marks, written.note))]
        elif self._runs:
            lines = ["No run matches."] if self._known else []
        else:
            lines = [f"No runs in {user_path(runs_folder())} yet. Press escape to go back and start one."]
        self.query_one("#chosen", Static).update("\n".join(filter(None, lines)))
        self.refresh_bindings()

    @on(DataTable.RowSelected)
    def _open(self) -> None:
        console_of(self).open_run(self._table.record.run)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        match action:
            case "resume":
                return self._table.record is not None and self._table.record.status in _OVER
            case "compare":
                return len(self._runs) > 1
            case "restore":
                return self._undo is not None
        return True

    def _meant(self, *, is_one: bool = False) -> list[RunDirectory]:
        """Return the selected runs, or the one under the cursor if none is selected or `is_one`."""
        chosen = self._table.record
        return (not is_one and self.selected) or ([] if chosen is None else [chosen.run])

    @property
    def selected(self) -> list[RunDirectory]:
        """The runs that were selected with the space bar."""
        return [self._runs[name] for name in self._selected]

    def action_select(self) -> None:
        if chosen := self._table.chosen:
            if chosen in self._selected:
                del self._selected[chosen]
            else:
                self._selected[chosen] = None
            self._arrange()
            self._table.action_cursor_down()

    @work(thread=True, exclusive=True, group="compare", name="find similar runs")
    def action_compare(self) -> None:
        from ..following.comparison import MOST_RUNS, similar_runs

        runs = self._meant()
        if len(runs) == 1:
            runs = similar_runs(runs[0])
        if len(runs) > MOST_RUNS:
            self.notify(f"Select at most {MOST_RUNS} runs to compare; {len(runs)} are selected.", markup=False)
        else:
            call_back(self, console_of(self).compare_runs, runs)

    def action_sort(self) -> None:
        self._sort = after(tuple(Sort), self._sort)
        self._arrange()

    def action_show_archived(self) -> None:
        self._shows_archived = not self._shows_archived
        self._arrange()

    def action_again(self) -> None:
        if (chosen := self._table.record) is not None:
            console_of(self).new_run_like(chosen.run)

    def action_resume(self) -> None:
        chosen = self._table.record
        console_of(self).resume_run(chosen.run, is_finished=chosen.status is Status.FINISHED)

    def action_write(self, what: str) -> None:
        """Ask for the tags of the runs that are meant, or for the title or the note of one."""
        if not (runs := self._meant(is_one=what != "tags")):
            return
        before, is_one = read_annotations(runs[0].path), len(runs) == 1
        text = " ".join(before.tags) if what == "tags" else str(getattr(before, what))

        def value(run: RunDirectory, text: str) -> Any:
            if what != "tags":
                return text
            earlier = () if is_one else read_annotations(run.path).tags  # several runs get new tags, and keep theirs
            return (*earlier, *text.replace(",", " ").split())

        def write(text: str | None) -> None:
            if text is not None:
                self._annotate(what, {run: value(run, text) for run in runs})

        self.app.push_screen(ValueDialog(what.capitalize(), _WRITTEN[what], text=text if is_one else ""), write)

    def action_filter(self) -> None:
        self.add_class("-filtering")
        self.query_one("#filter").focus()

    @on(Input.Changed, "#filter")
    def _filter_while_typing(self, message: Input.Changed) -> None:
        self._words = message.value
        self._arrange()

    @on(Input.Submitted, "#filter")
    def _leave_filter(self) -> None:
        self.remove_class("-filtering")
        self._table.focus()

    async def action_dismiss(self, result: None = None) -> None:
        if self.has_class("-filtering") or self._words:
            self.query_one("#filter", Input).value = ""
            self._leave_filter()
        elif self._selected:
            self._selected.clear()
            self._arrange()
        elif self._is_first:
            await self.run_action("app.new_run")
        else:
            await super().action_dismiss(result)

    def _annotate(self, what: str, values: Mapping[RunDirectory, Any]) -> None:
        try:
            for run, value in values.items():
                write_annotations(run.path, replace(read_annotations(run.path), **{what: value}))
                if (overview := self._known.get(run.run_id)) is not None:
                    self._known[run.run_id] = replace(overview, annotations=read_annotations(run.path))
        except ConsoleError as error:
            show_error(self.app, error)
        self._arrange()

    def action_archive(self) -> None:
        """Archive the runs, or unarchive them if all of them are archived."""
        if not (runs := self._meant()):
            return
        before = {run: read_annotations(run.path).archived for run in runs}
        is_archived, which = all(before.values()), plural(len(runs), "run")
        self._undo = partial(self._annotate, "archived", before)
        self._annotate("archived", dict.fromkeys(runs, not is_archived))
        undone = f"Archived {which}. U undoes this; a shows archived runs."
        self.notify(f"Unarchived {which}." if is_archived else undone, markup=False)

    def action_delete(self) -> None:
        if not (runs := self._meant()):
            return
        which = runs[0].run_id if len(runs) == 1 else f"{len(runs)} runs"
        explanation = "To restore: U on this screen, or later tpu-console runs delete --restore RUN."
        question = Confirmation(f"Move {which} to the trash?", explanation, yes="Delete", no="Keep")
        ask_user(self.app, question, lambda _: self._move(runs))

    @work(thread=True, group="trash", name="delete or restore runs")
    def _move(self, runs: Sequence[RunDirectory], *, is_back: bool = False) -> None:
        from tpu_console.engine.process.trash import delete_runs, restore_run

        def take(deleted: Sequence[RunDirectory]) -> None:
            if deleted:
                self._undo = partial(self._move, deleted, is_back=True)
            self.action_refresh_runs()

        deleted: list[RunDirectory] = []
        try:
            if is_back:
                for run in runs:
                    restore_run(run.run_id, run.path.parent.parent)
            else:
                deleted = delete_runs(runs)
        except ConsoleError as error:
            self.app.call_from_thread(show_error, self.app, error)
        self.app.call_from_thread(take, deleted)

    def action_restore(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()


def _changed_ns() -> int:
    """Return when a run was last added to or removed from the folder of runs; 0 if there is none."""
    try:
        return runs_folder().stat().st_mtime_ns
    except OSError:
        return 0
