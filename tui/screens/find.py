"""The dialog that finds a preset, a setting of the form, files or the name of a dataset.

For files and names, it describes how a first run would train on them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from textual import on
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import DirectoryTree, Input, OptionList

from tpu_console.engine.data.places import KAGGLE_INPUT, ON_THIS_MACHINE, locate
from tpu_console.engine.errors import ConsoleError

from ..text.keys import bind
from ..text.plan_text import PlanLine
from ..widgets.basics import FactLines, call_back
from .parts import HELP, close

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from tpu_console.engine.data.kinds.kind import Question
    from tpu_console.presets.catalog import Preset

    from ..forms.field_row import FieldSpec

_LABEL = 9
_LISTING = "Find · loading dataset names …"
_LONGEST_LISTING_S = 5.0
_MOST_HERE, _MOST = 20, 50


class PathSuggester(Suggester):
    """Completes the path of a file or folder."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)

    async def get_suggestion(self, value: str) -> str | None:
        folder, name = os.path.split(value)
        try:
            names = sorted(each.name for each in Path(folder or ".").expanduser().iterdir())
        except (OSError, RuntimeError, ValueError):
            return None
        wanted = (each for each in names if name and each.startswith(name) and each != name and each.isprintable())
        return next((f"{value}{each[len(name) :]}" for each in wanted), None)


class Folders(DirectoryTree):
    """The files and folders that are not hidden, with marks that every terminal can show."""

    ICON_NODE, ICON_NODE_EXPANDED, ICON_FILE = "+ ", "- ", "  "

    def filter_paths(self, paths: Iterable[Path]) -> Iterable[Path]:
        return (path for path in paths if not path.name.startswith("."))


class Offer(Struct, frozen=True):
    """What can be found."""

    name: str  # for data, what is written into the field
    about: str
    also: str = ""  # words by which it is found as well
    taken: Preset | FieldSpec | None = None  # what is returned; None for data, which is looked at first

    @property
    def text(self) -> str:
        return f"{self.name} {self.about} {self.also}".casefold()


class Find(ModalScreen["Preset | FieldSpec | None"]):
    """The dialog; returns a preset that was given or is for data, a field, or None.

    The given presets and fields are offered in their order.
    """

    DEFAULT_CSS = """
    Find {
        align: center middle;
        & > Vertical {
            width: 96; max-width: 100%; height: auto; max-height: 100%; padding: 0 2;
            border: round $primary; border-subtitle-color: $text-muted; background: $surface;
        }
        Input { background: $surface-lighten-1; }
        Input:focus { background: $primary 30%; }
        DirectoryTree {
            height: 8; background: $surface; scrollbar-size-vertical: 1;
            scrollbar-background: $surface; scrollbar-color: $foreground 25%;
        }
        VerticalScroll { height: auto; max-height: 10; scrollbar-gutter: stable; }
        #found.-failed { color: $text-error; }
        OptionList { height: auto; max-height: 8; display: none; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """
    BINDINGS = [bind("down", "move(1)"), bind("up", "move(-1)"), bind("back", "dismiss(None)", about="Go back."), HELP]

    def __init__(self, presets: Iterable[Preset], fields: Iterable[FieldSpec], fields_first: bool) -> None:
        super().__init__()
        found = [Offer(one.name, f"preset: {one.about.title}", one.about.reproduces, one) for one in presets]
        settings = [Offer(f"{one.group}: {one.label}", f"setting: {one.help}", one.key, one) for one in fields]
        self._given = [*settings, *found] if fields_first else [*found, *settings]
        self._folder = KAGGLE_INPUT if KAGGLE_INPUT.is_dir() else Path.cwd()
        self._here: list[Offer] = []  # what lies in the folder
        self._names: list[Offer] | None = None  # names of data; None until they are known
        self._offers: list[Offer] = []  # those that fit what was typed
        self._preset: Preset | None = None  # for what is in the field
        self._answers: dict[str, Any] = {}
        self._question: Question | None = None

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = _LISTING
            box.border_subtitle = "↑↓: offers · enter: choose · →: complete · escape: back"
            words = "words of a preset, setting or dataset; or ./photos, reviews.csv, hf:USER/NAME"
            yield Input(placeholder=words, suggester=PathSuggester(), compact=True)
            yield OptionList(markup=False, compact=True)
            yield Folders(self._folder)
            with VerticalScroll(can_focus=False):
                yield FactLines(id="found")

    def on_mount(self) -> None:
        threading.Thread(target=self._list, name="list data", daemon=True).start()

    def _list(self) -> None:
        """List what lies in the folder, then the names that are known, for which a package may have to be asked."""
        from tpu_console.engine.data.kinds.formats import lying_in
        from tpu_console.engine.data.kinds.table import known_names

        ends_at, here = time.monotonic() + _LONGEST_LISTING_S, f"{Path.cwd()}{os.sep}"
        with suppress(RuntimeError, OSError):  # the console was left meanwhile, or the folder cannot be read
            depth = 1 if self._folder == Path.cwd() else 3  # Kaggle's datasets have folders in folders
            for path, what in islice(lying_in(self._folder, depth), _MOST_HERE):
                self._here = [*self._here, Offer(path.removeprefix(here), what)]
                call_back(self, self._offer)
                if time.monotonic() > ends_at:
                    break
        with suppress(RuntimeError):
            names = (Offer(*each) for each in known_names().items())
            self._names = sorted(names, key=lambda offer: ON_THIS_MACHINE not in offer.about)
            call_back(self, self._offer)

    @property
    def _typed(self) -> str:
        return self.query_one(Input).value.strip()

    def _offer(self) -> None:
        """Offer what is in the folder for an empty field, or else everything that contains all of the words."""
        self.query_one(Vertical).border_title = _LISTING if self._names is None else "Find"
        if self._question is not None or self._preset is not None:
            return
        text, listed, self._offers = self._typed, self.query_one(OptionList), self._here
        if words := text.casefold().split():
            everything = (*self._given, *self._here, *(self._names or ()))
            self._offers = [one for one in everything if all(word in one.text for word in words)][:_MOST]
        listed.set_options(Content.assemble(offer.name, "  ", (offer.about, "dim")) for offer in self._offers)
        listed.display = bool(self._offers)
        may_be_data = ":" in text or (text and Path(locate(text)).exists())
        listed.highlighted = 0 if self._offers and not may_be_data else None

    def action_move(self, step: int) -> None:
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
            close(self, self._preset)
        elif self._offers and offered is not None:
            self._choose(self._offers[offered])
        else:
            self._look()

    def _choose(self, offer: Offer) -> None:
        if offer.taken is None:
            self._fill_in(offer.name)
        else:
            close(self, offer.taken)

    @on(DirectoryTree.FileSelected)
    @on(DirectoryTree.DirectorySelected)
    def _choose_path(self, event: DirectoryTree.FileSelected | DirectoryTree.DirectorySelected) -> None:
        self._fill_in(str(event.path))

    def _fill_in(self, data: str) -> None:
        line = self.query_one(Input)
        with line.prevent(Input.Changed):
            line.value = data
        self._preset, self._answers = None, {}
        self._ask(None)
        self._look()

    @on(OptionList.OptionSelected)
    def _answer(self, event: OptionList.OptionSelected) -> None:
        if self._question is None:
            self._choose(self._offers[event.option_index])
        else:
            answers = [*self._question.answers.values()]
            self._answers[f"data.options.{self._question.option}"] = answers[event.option_index]
            self._look()

    def _look(self) -> None:
        if not (data := self._typed):
            return
        self._say([PlanLine("", "looking …")])
        answers = tuple(self._answers.items())

        def look() -> None:
            from tpu_console.engine.data.kinds.formats import UndecidedError
            from tpu_console.engine.data.kinds.table import is_name
            from tpu_console.presets.catalog import preset_for_data

            def arrived(news: object) -> None:
                call_back(self, self._say, [PlanLine("", str(news))])

            found: Preset | ConsoleError
            try:
                found, question = preset_for_data(data if is_name(data) else locate(data), answers, arrived), None
            except ConsoleError as error:
                found, question = error, error.question if isinstance(error, UndecidedError) else None
            with suppress(RuntimeError):  # the console was left meanwhile
                call_back(self, self._show, (data, dict(answers)), found, question)

        # A name is asked for elsewhere, which may take two minutes: leaving does not wait for this thread.
        threading.Thread(target=look, name="look at data", daemon=True).start()

    def _show(self, given: tuple[str, dict[str, Any]], found: Preset | ConsoleError, question: Question | None) -> None:
        if given != (self._typed, self._answers):
            return
        self._ask(question)
        if question is not None:
            self._say([PlanLine("", question.text, text_style="bold")])
        elif isinstance(found, ConsoleError):
            self._say([PlanLine("✗ ", str(found))], has_failed=True)
        else:
            self._preset = found
            self._say([PlanLine(label.ljust(_LABEL), text) for label, text in found.notes])
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

    def _say(self, entries: list[PlanLine], *, has_failed: bool = False) -> None:
        found = self.query_one(FactLines)
        found.set_class(has_failed, "-failed")
        found.show(entries)
