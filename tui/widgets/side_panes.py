"""Beside the curves or in their place: what a run does before its first step, its settings, and sample translations."""

from __future__ import annotations

import re
import textwrap
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar

from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from tpu_console.engine.runs.events import PREPARATION, Sample, Translated
from tpu_console.engine.runs.state import RunState

from ..text.cells import DONE, NOW, SPINNER
from ..text.keys import bind
from ..text.numbers import clock, duration, plural
from ..text.profile import changes_in, profile_lines
from ..text.run_lines import found
from .rows_pane import LinesPane, Row, wrapped
from .run_header import HeaderView, phase_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.binding import BindingType

    from ..following.run_settings import Setting
    from ..text.profile import Traced


_INDENT = "  "


class SettingsPane(LinesPane):
    """A name and a value per row; values that do not fit continue below."""

    def __init__(self) -> None:
        super().__init__("settings", "settings")
        self._settings: Sequence[Setting] = ()

    def show(self, settings: Sequence[Setting]) -> None:
        """Show settings."""
        self._settings = settings
        self.rows_changed()

    def laid_out(self) -> list[Row]:
        """Return the lines of all settings."""
        rows: list[Row] = []
        for is_changed, settings in groupby(self._settings, lambda one: one.preset is not None):
            if is_changed:
                rows.append([("changed from the preset", "head")])
            elif rows:
                rows += [[], [("as in the preset", "head")]]
            for setting in settings:
                rows += self._wrapped(setting, "now" if is_changed else "")
        return rows

    def _wrapped(self, setting: Setting, look: str) -> list[Row]:
        text = f"{setting.key} {setting.text}"
        first, *others = wrapped(text, max(16, self.room), _INDENT) or [text]
        key = first[: len(setting.key)]
        return [[(key, "faint"), (first[len(key) :], look)], *([(line, look)] for line in others)]


_LEAST = 16  # minimum width of a line in cells


class SamplesPane(LinesPane):
    """Each sentence, the model's translation and, if it differs, the expected one."""

    is_as_high_as_rows = True

    def __init__(self) -> None:
        super().__init__("7 translations", "samples")
        self._translated: Translated | None = None

    def show(self, translated: Translated) -> None:
        """Show the newest translations; redraws only if they changed."""
        if translated is not self._translated:
            self._translated = translated
            self.border_title = f"7 translations after epoch {translated.epoch}"
            self.rows_changed()

    def head(self) -> list[Row]:
        """Return the epoch, if no frame shows it."""
        if self._translated is None or self.styles.border_top[0]:
            return []
        return [[(f"translations after epoch {self._translated.epoch}", "head")]]

    def laid_out(self) -> list[Row]:
        """Return the lines of all sentences."""
        if self._translated is None:
            return []
        return [row for sample in self._translated.samples for row in self._sentence(sample)]

    def _sentence(self, sample: Sample) -> list[Row]:
        is_right = _words(sample.predicted) == _words(sample.expected)
        predicted = f"{DONE if is_right else NOW} {sample.predicted or '…'}"
        rows = self._wrapped(sample.source, "faint", "")
        rows += self._wrapped(predicted, "best" if is_right else "now", "  ")
        if not is_right:
            rows += self._wrapped(f"  expected: {sample.expected}", "", "    ")
        return rows

    def _wrapped(self, text: str, look: str, indent: str) -> list[Row]:
        width = max(_LEAST, self.size.width)
        return [[(line, look)] for line in wrapped(text, width, indent)]


class ProfilePane(LinesPane):
    """What limits a step, and where its time goes."""

    BINDINGS: ClassVar[list[BindingType]] = [bind("enter", "change")]
    is_as_high_as_rows = True

    class ChangeChosen(Message):
        """The form is to open with what the first sentence says to set."""

        def __init__(self, changes: Sequence[str]) -> None:
            super().__init__()
            self.changes = changes

    def __init__(self) -> None:
        super().__init__("8 profile", "profile")
        self._state = RunState()
        self._changes: Sequence[str] = ()
        self._before: Traced | None = None

    def compare(self, before: Traced | None) -> None:
        """Show the times of another run beside those of this one."""
        self._before = before
        self.rows_changed()

    def show(self, state: RunState) -> None:
        """Show the newest traced steps and compilations; redraws only if they changed."""
        if (state.profiled, state.compiled) != (self._state.profiled, self._state.compiled):
            self._state = state
            steps = f" of {plural(state.profiled[-1].steps, 'step')}" if state.profiled else ""
            self.border_title = f"8 profile{steps}"
            self.rows_changed()

    def laid_out(self) -> list[Row]:
        """Return the reason, wrapped, and the bars."""
        width = max(_LEAST, self.room)
        reason, *bars = profile_lines(self._state, width, before=self._before)
        self._changes = changes_in(reason)
        offer = wrapped(f"enter opens the form with {', '.join(self._changes)}", width) if self._changes else []
        lines = [(wrapped(reason, width), "now"), (offer, "faint"), (bars, "")]
        return [[(line, look)] for part, look in lines for line in part]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the form only with a change."""
        return bool(self._changes) if action == "change" else super().check_action(action, parameters)

    def action_change(self) -> None:
        """Open the form with what the first sentence says to set."""
        self.post_message(self.ChangeChosen(self._changes))


def _words(text: str) -> list[str]:
    """Return only the words: a model outputs neither capitals nor punctuation."""
    return re.findall(r"\w+", text.lower())


_NAME_WIDTH, _TIME_WIDTH = 13, 8
_EXPLAINED = {
    "starting": "Starting the training process.",
    "importing": "Importing Keras and its backend.",
    "connecting": "Connecting to the devices; each gets one replica.",
    "loading data": "Loading the dataset; the first run may download it.",
    "building": "Building the model.",
    "compiling": "Compiling for the device; this can take minutes for a large model.",
}


def waiting_rows(view: HeaderView, width: int, height: int) -> list[Content]:
    """List the phases before training. What a phase found is wrapped if there is room, else cut off."""
    if view.is_unreadable:
        return [Content("Nothing of this run can be read. The console tries again every second.")[:width]]
    state = view.state
    current, spent = phase_of(view)
    names = dict.fromkeys([*([] if state.phase else [current]), *PREPARATION, *state.phase_s, current])
    elapsed = clock(view.now - (state.started_at or view.opened_at))
    rows = [[Content.styled(f"{elapsed} elapsed", "bold")]]
    for name in names:
        is_current, is_done = name == current, name in state.phase_s
        mark = SPINNER[view.spin % len(SPINNER)] if is_current else DONE if is_done else "·"
        seconds = spent if is_current else state.phase_s.get(name)
        time = "" if seconds is None else duration(seconds)
        lead = Content.styled(
            f"{mark} {name:<{_NAME_WIDTH}}{time:>{_TIME_WIDTH}}  ",
            "$text-accent" if is_current else "" if is_done else "dim",
        )
        said = (state.phase_detail or _EXPLAINED.get(name, "")) if is_current else found(name, state) if is_done else ""
        room = max(10, width - lead.cell_length)
        first, *others = textwrap.wrap(said, room - 1, break_on_hyphens=False) or [""]  # 1 for an ellipsis
        beside = " " * lead.cell_length
        rows.append(
            [Content.assemble(lead, (first, "dim")), *(Content.styled(beside + line, "dim") for line in others)]
        )
    if sum(map(len, rows)) <= height:
        return [line for lines in rows for line in lines]
    return [Content.assemble(lines[0], ("…", "dim")) if len(lines) > 1 else lines[0] for lines in rows]


class WaitingPane(Widget):
    """Draws the rows of `waiting_rows`."""

    DEFAULT_CSS = """
    WaitingPane { width: 1fr; height: 1fr; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__(id="waiting", classes="pane")
        self.border_title = "before the first step"
        self._view = HeaderView("")

    def show(self, view: HeaderView) -> None:
        """Show a run, or the time that passed."""
        self._view = view
        self.refresh()

    def render(self) -> Content:
        """Render the checklist."""
        size = self.content_size
        return Content("\n").join(waiting_rows(self._view, size.width or 80, size.height))
