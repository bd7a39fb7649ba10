"""The dialog that takes the user's files or the name of a dataset, and says how a first run would train on them."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.suggester import Suggester
from textual.widgets import DirectoryTree, Input, OptionList, Static

from tpu_console.engine.data.places import KAGGLE_INPUT, locate
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
        OptionList { height: auto; max-height: 6; display: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [bind("back", "dismiss(None)"), HELP]

    def __init__(self) -> None:
        super().__init__()
        self._preset: Preset | None = None  # for what is in the field
        self._answers: dict[str, Any] = {}
        self._question: Question | None = None

    def compose(self) -> ComposeResult:
        """Lay out the field, the folders, and room for what is found."""
        with Vertical() as box:
            box.border_title, box.border_subtitle = "Your data", "enter: look, then take · →: complete · escape: back"
            yield Input(
                placeholder="./photos, reviews.csv, tfds:NAME, hf:USER/NAME or kaggle:OWNER/NAME",
                suggester=PathSuggester(),
                compact=True,
            )
            yield Folders(KAGGLE_INPUT if KAGGLE_INPUT.is_dir() else Path.cwd())
            with VerticalScroll(can_focus=False):
                yield Static("", id="found", markup=False)
            yield OptionList(markup=False)

    @on(Input.Changed)
    def _forget(self) -> None:
        self._preset, self._answers = None, {}
        self._ask(None)

    @on(Input.Submitted)
    def _take_or_look(self) -> None:
        if self._preset is not None:
            self.dismiss(self._preset)
        else:
            self._look_at(self.query_one(Input).value.strip())

    @on(DirectoryTree.FileSelected)
    @on(DirectoryTree.DirectorySelected)
    def _fill_in(self, event: DirectoryTree.FileSelected | DirectoryTree.DirectorySelected) -> None:
        line = self.query_one(Input)
        with line.prevent(Input.Changed):
            line.value = str(event.path)
        self._forget()
        self._look_at(line.value)

    @on(OptionList.OptionSelected)
    def _answer(self, event: OptionList.OptionSelected) -> None:
        if self._question is not None:
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
        """Offer the answers to a question, or none."""
        self._question = question
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
