"""The dialog that takes the user's files or the name of a dataset, and says how a first run would train on them."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import DirectoryTree, Input, OptionList, Static

from tpu_console.engine.data.places import KAGGLE_INPUT, ON_THIS_MACHINE, locate
from tpu_console.engine.errors import ConsoleError

from ..text.keys import bind
from ..text.plan_text import Entry, laid_out
from ..widgets.basics import is_closing
from .parts import HELP

if TYPE_CHECKING:
    from textual.app import ComposeResult
    from textual.binding import BindingType

    from tpu_console.engine.data.kinds.kind import Question
    from tpu_console.presets import Preset

_LABEL = 9
_LONGEST_LISTING_S = 5.0
_MOST_HERE, _MOST_NAMES = 20, 50


class PathSuggester(Suggester):
    """Completes the path of a file or folder."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        """Return the path with its last name completed; None if nothing begins so."""
        folder, name = os.path.split(value)
        try:
            names = sorted(each.name for each in Path(folder or ".").expanduser().iterdir())
        except (OSError, RuntimeError, ValueError):
            return None
        wanted = (each for each in names if name and each.startswith(name) and each != name and each.isprintable())
        return next((f"{value}{each[len(name) :]}" for each in wanted), None)


class Folders(DirectoryTree):
    """The files and folders, with marks that every terminal can show."""

    ICON_NODE, ICON_NODE_EXPANDED, ICON_FILE = "+ ", "- ", "  "


class YourData(ModalScreen["Preset | None"]):
    """The dialog; returns a preset for the data, or None."""

    DEFAULT_CSS = """
    YourData {
        align: center middle;
        & > Vertical {
            width: 96; max-width: 100%; height: auto; max-height: 100%; padding: 0 2;
            border: round $primary; border-subtitle-color: $text-muted; background: $surface;
        }
        Input { background: $surface-lighten-1; }
        Input:focus { background: $primary 30%; }
        DirectoryTree { height: 8; background: $surface; }
        VerticalScroll { height: auto; max-height: 10; }
        #found { height: auto; }
        #found.-failed { color: $text-error; }
        OptionList { height: auto; max-height: 8; display: none; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("down", "move(1)"),
        bind("up", "move(-1)"),
        bind("back", "dismiss(None)"),
        HELP,
    ]

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self._folder = folder or (KAGGLE_INPUT if KAGGLE_INPUT.is_dir() else Path.cwd())
        self._here: dict[str, str] = {}  # what lies in the folder, and what each is
        self._names: dict[str, str] = {}  # names of data, and a few words about each
        self._offers: list[str] = []  # those of both that fit what was typed
        self._preset: Preset | None = None  # for what is in the field
        self._answers: dict[str, Any] = {}
        self._question: Question | None = None

    def compose(self) -> ComposeResult:
        """Lay out the field, the folders, and room for what is found."""
        with Vertical() as box:
            box.border_title, box.border_subtitle = (
                "Your data",
                "↑↓: offers · enter: look, then take · →: complete · escape: back",
            )
            yield Input(
                placeholder="./photos, reviews.csv, hf:USER/NAME, kaggle:OWNER/NAME, or words of a name",
                suggester=PathSuggester(),
                compact=True,
            )
            yield OptionList(markup=False, compact=True)
            yield Folders(self._folder)
            with VerticalScroll(can_focus=False):
                yield Static("", id="found", markup=False)

    def on_mount(self) -> None:
        """Look for what can be offered."""
        threading.Thread(target=self._list, name="list data", daemon=True).start()

    def _list(self) -> None:
        """List what lies in the folder, then the names that are known, for which a package may have to be asked."""
        from tpu_console.engine.data.kinds.table import known_names
        from tpu_console.engine.data.survey.formats import lying_in

        ends_at, here = time.monotonic() + _LONGEST_LISTING_S, f"{Path.cwd()}{os.sep}"
        with suppress(RuntimeError, OSError):  # the console was left meanwhile, or the folder cannot be read
            depth = 1 if self._folder == Path.cwd() else 3  # Kaggle's datasets have folders in folders
            for path, what in islice(lying_in(self._folder, depth), _MOST_HERE):
                self.app.call_from_thread(self._take_offers, {**self._here, path.removeprefix(here): what}, {})
                if time.monotonic() > ends_at:
                    break
        with suppress(RuntimeError):
            self.app.call_from_thread(self._take_offers, self._here, known_names())

    def _take_offers(self, here: dict[str, str], names: dict[str, str]) -> None:
        self._here, self._names = here, names
        if not is_closing(self):
            self._offer()

    def _offer(self) -> None:
        """Offer what lies here for an empty field, and else the names that have all of the words in it."""
        words = self.query_one(Input).value.lower().split()
        offers = {name: what for name, what in self._names.items() if all(word in name.lower() for word in words)}
        first = sorted(offers, key=lambda name: ON_THIS_MACHINE not in offers[name])
        offers = {name: offers[name] for name in first[:_MOST_NAMES]} if words else self._here
        if self._question is None and self._preset is None:
            self._offers, listed = [*offers], self.query_one(OptionList)
            listed.set_options(Content.assemble(name, "  ", (what, "dim")) for name, what in offers.items())
            listed.display = bool(offers)
            listed.highlighted = 0 if offers and not words else None

    def action_move(self, step: int) -> None:
        """Move through what is offered, while the cursor stays in the field."""
        if self._offers:
            listed = self.query_one(OptionList)
            listed.highlighted = ((-1 if listed.highlighted is None else listed.highlighted) + step) % len(self._offers)

    @on(Input.Changed)
    def _forget(self) -> None:
        self._preset, self._answers = None, {}
        self._ask(None)
        self._offer()

    @on(Input.Submitted)
    def _take_or_look(self) -> None:
        offered = self.query_one(OptionList).highlighted
        if self._preset is not None:
            self.dismiss(self._preset)
        elif self._offers and offered is not None:
            self._fill_in(self._offers[offered])
        else:
            self._look_at(self.query_one(Input).value.strip())

    @on(DirectoryTree.FileSelected)
    @on(DirectoryTree.DirectorySelected)
    def _choose(self, event: DirectoryTree.FileSelected | DirectoryTree.DirectorySelected) -> None:
        self._fill_in(str(event.path))

    def _fill_in(self, data: str) -> None:
        line = self.query_one(Input)
        with line.prevent(Input.Changed):
            line.value = data
        self._preset, self._answers = None, {}
        self._ask(None)
        self._look_at(data)

    @on(OptionList.OptionSelected)
    def _answer(self, event: OptionList.OptionSelected) -> None:
        if self._question is None:
            self._fill_in(self._offers[event.option_index])
        else:
            answers = [*self._question.answers.values()]
            self._answers[f"data.options.{self._question.option}"] = answers[event.option_index]
            self._look_at(self.query_one(Input).value.strip())

    def _look_at(self, data: str) -> None:
        if data:
            self._say([Entry("", "looking …")])
            # A name is asked for elsewhere, which may take two minutes: leaving does not wait for this thread.
            given = (data, tuple(self._answers.items()))
            threading.Thread(target=self._look, args=given, name="look at data", daemon=True).start()

    def _look(self, data: str, answers: tuple[tuple[str, Any], ...]) -> None:
        """Look at the data."""
        from tpu_console.engine.data.kinds.table import is_name
        from tpu_console.engine.data.survey.formats import UndecidedError
        from tpu_console.presets import preset_for_data

        found: Preset | ConsoleError
        try:
            found, question = preset_for_data(data if is_name(data) else locate(data), answers), None
        except UndecidedError as error:
            found, question = error, error.question
        except ConsoleError as error:
            found, question = error, None
        with suppress(RuntimeError):  # the console was left meanwhile
            self.app.call_from_thread(self._show, (data, dict(answers)), found, question)

    def _show(self, given: tuple[str, dict[str, Any]], found: Preset | ConsoleError, question: Question | None) -> None:
        if is_closing(self) or given != (self.query_one(Input).value.strip(), self._answers):
            return
        self._ask(question)
        if question is not None:
            self._say([Entry("", question.text, text_style="bold")])
        elif isinstance(found, ConsoleError):
            self._say([Entry("✗ ", str(found))], has_failed=True)
        else:
            self._preset = found
            self._say([Entry(label.ljust(_LABEL), text) for label, text in found.notes])
            self.query_one(Input).focus()

    def _ask(self, question: Question | None) -> None:
        """Offer the answers to a question, or nothing."""
        self._question, self._offers = question, []
        answers = self.query_one(OptionList)
        answers.display = question is not None
        if question is not None:
            answers.set_options(question.answers)
            answers.highlighted = 0
            self.call_after_refresh(answers.focus)  # it has just been shown

    def _say(self, entries: list[Entry], *, has_failed: bool = False) -> None:
        found = self.query_one("#found", Static)
        found.set_class(has_failed, "-failed")
        found.update(laid_out(entries, max(16, self.query_one(VerticalScroll).size.width - 1)))
