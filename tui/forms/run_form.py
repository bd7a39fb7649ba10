"""The form with all fields of a run, in groups; by default it shows only the essential ones."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from textual.containers import Vertical, VerticalScroll
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static

from ..text.keys import bind
from .field_row import FieldRow, FieldSpec, field_of

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.events import DescendantFocus
    from textual.widget import Widget

    from tpu_console.engine.errors import Problem

    from .fields import Draft

_FIRST = 24  # fields, more than are seen without scrolling


class FieldList(VerticalScroll, can_focus=False):
    """The list of fields; the arrow keys move between them."""

    BINDINGS = [bind("up", "go(-1)"), bind("down", "go(1)")]

    def keep_in_view(self) -> None:
        """Scroll to the focused field."""
        focused = self.screen.focused
        if focused is not None and self in focused.ancestors:
            focused.scroll_visible(animate=False)

    on_resize = keep_in_view  # the field's help may have taken lines from the list

    def action_go(self, by: int) -> None:
        chain = [widget for widget in self.screen.focus_chain if self in widget.ancestors]
        if self.screen.focused in chain:
            chain[min(max(chain.index(self.screen.focused) + by, 0), len(chain) - 1)].focus()


class RunForm(Vertical):
    """The form. It writes the input into its draft and shows the problems passed to it."""

    DEFAULT_CSS = """
    RunForm {
        FieldList {
            height: auto; max-height: 1fr; scrollbar-size-vertical: 1;
            scrollbar-background: $background; scrollbar-color: $foreground 25%;
        }
        .heading { height: auto; width: 1fr; text-style: bold; color: $text-primary; padding: 1 0 0 0; }
        .heading.-first { padding: 0; }
        #field-help { height: auto; color: $text-muted; }
    }
    """
    shows_all = reactive(False, init=False)  # whether every field is shown, or only the essential ones

    class Edited(Message):
        """The draft changed."""

    def __init__(self) -> None:
        super().__init__(id="form")
        self._draft: Draft | None = None
        self._found: set[FieldSpec] = set()  # shown although they are not essential
        self._labels: dict[str, Mapping[str, str]] = {}
        self._help_is_shown = self._shows_help = False
        self._syncing = asyncio.Lock()

    def compose(self) -> ComposeResult:
        yield FieldList()
        yield Static("", id="field-help", markup=False)

    async def load(self, draft: Draft) -> None:
        """Show a draft and write further input into it."""
        self._draft = draft
        await self._sync()
        self._say_how_to_see_more()

    async def show_all(self, shows_all: bool) -> None:
        """Show every field, or only the essential ones and those with a problem."""
        self.shows_all, rows = shows_all, self._rows()
        here = next((row for row in rows if row.has_focus_within), None)
        if not shows_all and here is not None:
            # The focus leaves a field that is about to be hidden, for the nearest one above it that stays.
            staying = [row for row in rows[: rows.index(here) + 1] if self._is_shown(row)]
            (staying or rows)[-1 if staying else 0].focus_control()
        await self._sync(_FIRST)  # what is seen at once; all of them take longer than a key press may wait
        self._say_how_to_see_more()
        self.call_after_refresh(self._sync)
        self.call_after_refresh(self.query_one(FieldList).keep_in_view)

    def label_choices(self, key: str, labels: Mapping[str, str]) -> None:
        """Show the listed values of a field with more descriptive texts, by value."""
        self._labels[key] = labels
        for row in self._rows():
            if row.spec.key == key:
                row.label_choices(labels)

    def show_problems(self, problems: Sequence[Problem]) -> None:
        """Mark the fields that have problems, and those that differ from the preset."""
        if (draft := self._draft) is None:
            return
        fields = draft.fields()
        found = [(field_of(problem, fields), problem.message) for problem in problems]
        for row in self._rows():
            row.problem = "; ".join(message for spec, message in found if spec == row.spec)
            row.is_changed = draft.is_changed(row.spec)
        self._show_wanted()

    async def focus_problem(self, problem: Problem) -> None:
        """Focus the field that a problem is about; show it if it was hidden."""
        spec = field_of(problem, self._draft.fields()) if self._draft is not None else None
        if spec is not None:
            await self.focus_field(spec)

    async def focus_field(self, spec: FieldSpec) -> None:
        """Focus a field, which is shown from now on."""
        self._found.add(spec)
        await self._sync()
        for row in self._rows():
            if row.spec == spec:
                row.focus_control()

    def focus_first(self) -> None:
        """Focus the first field that is shown."""
        if row := next((row for row in self._rows() if row.display), None):
            row.focus_control()

    async def on_field_row_typed(self, event: FieldRow.Typed) -> None:
        """Store a new text in the draft; another model or dataset may have other fields."""
        event.stop()
        row = event.row
        # Read the current text: one typed before another draft was loaded must not go into the new draft.
        if self._draft is None or not row.is_attached or not self._draft.set(row.spec, row.text):
            return
        if row.spec.key in {"dataset", "model"}:
            await self._sync()
        self.post_message(self.Edited())

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        row = next((node for node in event.widget.ancestors if isinstance(node, FieldRow)), None)
        if row is not None:
            self._help_is_shown = True
            default = f" Default: {row.spec.default}." if row.spec.default else ""
            line = self.query_one("#field-help", Static)
            line.update(row.spec.help + default)
            line.display = not self._shows_help

    def on_resize(self) -> None:
        self._shows_help = self.screen.has_class("-tall") and not self.screen.has_class("-narrow")
        self.query_one("#field-help").display = not (self._shows_help and self._help_is_shown)
        for row in self._rows():
            row.shows_help = self._shows_help

    def _rows(self) -> list[FieldRow]:
        return list(self.query(FieldRow))

    def _is_shown(self, row: FieldRow) -> bool:
        return self.shows_all or row.spec.is_essential or row.spec in self._found or bool(row.problem)

    def _say_how_to_see_more(self) -> None:
        """Until a field has had the focus, say what the form does not show."""
        if not self._help_is_shown and self._draft is not None:
            more = sum(not spec.is_essential for spec in self._draft.fields())
            text = "Fewer fields (ctrl+o)" if self.shows_all else f"{more} more fields (ctrl+o)"
            self.query_one("#field-help", Static).update(text)

    async def _sync(self, most: int | None = None) -> None:
        """Update the fields from the draft: remove, add at most so many, and set texts, only if they differ.

        Both the form and its screen call this, sometimes at the same time: one waits for the other.
        """
        async with self._syncing:
            if (draft := self._draft) is None:
                return
            with self.app.batch_update():
                there = {row.spec: row for row in self._rows()}
                # Once mounted, all fields stay: one with a problem is shown even among the essential ones.
                takes_all = self.shows_all or any(not (spec.is_essential or spec in self._found) for spec in there)
                wanted = [spec for spec in draft.fields() if takes_all or spec.is_essential or spec in self._found]
                for spec, row in there.items():
                    if spec in wanted:
                        row.text = draft.text(spec)
                    else:
                        await row.remove()
                wanted = [spec for number, spec in enumerate(wanted) if most is None or number < most or spec in there]
                places = [*dict.fromkeys(item for spec in wanted for item in (spec.group, spec))]
                known = {*there, *(heading.name for heading in self.query(".heading"))}
                fields = self.query_one(FieldList)
                await fields.mount_all(self._new_child(item) for item in places if item not in known)
                # By the field, or by the group that is a heading's name.
                at: dict[object, int] = {item: number for number, item in enumerate(places)}
                fields.sort_children(key=lambda child: at.get(getattr(child, "spec", child.name), -1))
                self._show_wanted()

    def _show_wanted(self) -> None:
        for row in self._rows():
            row.display = self._is_shown(row)
        groups = [*dict.fromkeys(row.spec.group for row in self._rows() if row.display)]
        for heading in self.query(".heading"):
            heading.display = (self.shows_all or bool(self._found)) and heading.name in groups
            heading.set_class(heading.name in groups[:1], "-first")

    def _new_child(self, item: FieldSpec | str) -> Widget:
        """Make the row of a field, or the heading of a group."""
        if isinstance(item, str):
            return Static(item, name=item, classes="heading", markup=False)
        row = FieldRow(item, self._draft.text(item) if self._draft is not None else "", self._labels.get(item.key))
        row.set_reactive(FieldRow.shows_help, self._shows_help)
        return row
