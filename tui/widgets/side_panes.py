"""Beside the curves or in their place: what a run does before its first step, its settings, and sample translations."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from tpu_console.engine.runs.events import PREPARATION

from ..text.cells import DONE, NOW, SPINNER
from ..text.keys import bind
from ..text.numbers import clock, duration
from ..text.profile import changes_in, profile_lines
from ..text.run_lines import found
from .rows_pane import LinesPane, Row, wrapped
from .run_header import HeaderView, phase_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.events import Translated
    from tpu_console.engine.runs.state import RunState

    from ..following.overview import Setting
    from ..text.profile import Traced


_LEAST = 16  # minimum width of a line in cells


class SettingsPane(LinesPane["Sequence[Setting]"]):
    """A name and a value per row; values that do not fit continue below."""

    def laid_out(self, shown: Sequence[Setting]) -> list[Row]:
        """Return the lines of all settings."""
        rows: list[Row] = []
        for is_changed, settings in groupby(shown, lambda one: one.preset is not None):
            if is_changed:
                rows.append([("changed from the preset", "head")])
            elif rows:
                rows += [[], [("as in the preset", "head")]]
            for setting in settings:
                text, look = f"{setting.key} {setting.text}", "now" if is_changed else ""
                first, *others = wrapped(text, max(_LEAST, self.room), "  ") or [text]
                key = first[: len(setting.key)]
                rows += [[(key, "faint"), (first[len(key) :], look)], *([(line, look)] for line in others)]
        return rows


class SamplesPane(LinesPane["Translated"]):
    """Each sentence, the model's translation and, if it differs, the expected one."""

    is_as_high_as_rows = True

    def laid_out(self, shown: Translated) -> list[Row]:
        """Return the epoch and the lines of all sentences."""
        rows: list[Row] = [[(f"translations after epoch {shown.epoch}", "head")]]
        for sample in shown.samples:
            # Only the words are compared: a model outputs neither capitals nor punctuation.
            said, right = (re.findall(r"\w+", text.lower()) for text in (sample.predicted, sample.expected))
            mark, look = (DONE, "best") if said == right else (NOW, "now")
            parts = [(sample.source, "faint", ""), (f"{mark} {sample.predicted or '…'}", look, "  ")]
            parts += [(f"  expected: {sample.expected}", "", "    ")] if said != right else []
            for text, part_look, indent in parts:
                rows += [[(line, part_look)] for line in wrapped(text, max(_LEAST, self.size.width), indent)]
        return rows


class ProfilePane(LinesPane["RunState"]):
    """What limits a step, and where its time goes."""

    BINDINGS = [bind("enter", "change")]
    is_as_high_as_rows = True

    @dataclass
    class ChangeChosen(Message):
        """The form is to open with what the first sentence says to set."""

        changes: Sequence[str]

    _changes: Sequence[str] = ()
    _before: Traced | None = None

    def compare(self, before: Traced | None) -> None:
        """Show the times of another run beside those of this one."""
        self._before = before
        self.rows_changed()

    def laid_out(self, shown: RunState) -> list[Row]:
        """Return the reason, wrapped, and the bars of the newest traced steps and compilations."""
        width = max(_LEAST, self.room)
        reason, *bars = profile_lines(shown, width, before=self._before)
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
        seconds = state.phase_s.get(name)
        mark, look, said = ("·", "dim", "") if seconds is None else (DONE, "", found(name, state))
        if name == current:
            mark, seconds, look = SPINNER[view.spin % len(SPINNER)], spent, "$text-accent"
            said = state.phase_detail or _EXPLAINED.get(name, "")
        time = "" if seconds is None else duration(seconds)
        lead = f"{mark} {name:<{_NAME_WIDTH}}{time:>{_TIME_WIDTH}}  "
        lines = textwrap.wrap(said, max(10, width - len(lead) - 1), break_on_hyphens=False) or [""]
        rows.append([Content.assemble((lead, look), (lines[0], "dim"))])
        rows[-1] += [Content.styled(" " * len(lead) + line, "dim") for line in lines[1:]]
    if sum(map(len, rows)) > height:
        rows = [[Content.assemble(lines[0], ("…", "dim")) if lines[1:] else lines[0]] for lines in rows]
    return [line for lines in rows for line in lines]


class WaitingPane(Widget):
    """Draws the rows of `waiting_rows`."""

    DEFAULT_CSS = "WaitingPane { width: 1fr; height: 1fr; padding: 0 1; }"

    def __init__(self) -> None:
        super().__init__(id="waiting", classes="pane")
        self._view = HeaderView("")

    def show(self, view: HeaderView) -> None:
        """Show a run, or the time that passed."""
        self._view = view
        self.refresh()

    def render(self) -> Content:
        """Render the checklist."""
        size = self.content_size
        return Content("\n").join(waiting_rows(self._view, size.width or 80, size.height))
