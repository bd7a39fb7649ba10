"""The panes of the live screen around the curves: what each shows, and the key, data and help of the lower ones."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from rich.cells import cell_len
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from tpu_console.engine.runs.events import PREPARATION, Translated

from ..text.keys import bind
from ..text.numbers import clock, duration, plural
from ..text.outcome import Message as LogMessage
from ..text.outcome import read_messages
from ..text.profile import changes_in, profile_lines
from ..text.run_lines import found
from ..text.tables import DONE, FAILED, NOW, SPINNER
from .basics import LinesPane, Row, RowsPane, wrapped
from .epoch_table import EpochTable
from .host_panes import ReplicaPanel, SystemPane
from .run_header import HeaderView, phase_of

if TYPE_CHECKING:
    from textual.events import Key

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
        """The user wants to open the form with the settings that the pane suggests."""

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
        return bool(self._changes) if action == "change" else super().check_action(action, parameters)

    def action_change(self) -> None:
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
        size = self.content_size
        return Content("\n").join(waiting_rows(self._view, size.width or 80, size.height))


class LogPane(LinesPane["Sequence[str]"]):
    """Shows the log's messages, wrapped; its first line counts errors and folds the usual framework noise."""

    follows_newest = True
    BINDINGS = [
        bind("enter", "next", about="Go to the next error or match.", show=False),
        bind("all", "toggle_noise", about="Show routine lines too.", show=False),
        bind("filter", "search", about="Search the log.", show=False),
        bind("back", "end_search", about="End the search.", show=False),
    ]

    _messages: Sequence[LogMessage] = ()
    _error_rows: Sequence[int] = ()
    _match_rows: Sequence[int] = ()
    _shows_noise = _is_typing = False
    _wanted = ""

    def show(self, shown: Sequence[str]) -> None:
        """Show the log's last lines; up to 2,000 of them are wrapped again only if they changed."""
        if shown is not self.shown:
            self._messages = read_messages(shown)
            super().show(shown)

    def laid_out(self, _lines: Sequence[str]) -> list[Row]:
        """Wrap the messages for the pane's width."""
        rows: list[Row] = []
        errors, matches = list[int](), list[int]()
        for message in self._messages:
            if message.is_noise and not self._shows_noise:
                continue
            if message.is_error:
                errors.append(len(rows))
            look = "bad" if message.is_error else "faint" if message.is_noise else ""
            for line in _wrapped(message.text, max(_LEAST, self.room) - 1, message.count):
                # Every second piece is a match.
                pieces = re.split(f"({re.escape(self._wanted)})", line, flags=re.I) if self._wanted else [line]
                matches += [len(rows)] if len(pieces) > 1 else []
                rows.append([(piece, "match" if number % 2 else look) for number, piece in enumerate(pieces)])
        self._error_rows, self._match_rows = errors, matches
        self.set_class(bool(errors), "-errors")
        return rows or [[("the log is empty" if not self._messages else "no other lines", "faint")]]

    def head(self) -> list[Row]:
        """Return the text being searched, or else the number of errors and of folded lines."""
        if self._is_typing or self._wanted:
            found = f"  {plural(len(self._match_rows), 'match', 'matches')} · enter next · esc end"
            return [[(f"/{self._wanted}{'▏' if self._is_typing else found}", "head")]]
        is_closed = self.size.height < 2  # one line: the newest one that is not folded
        if not self._messages or (is_closed and not all(message.is_noise for message in self._messages)):
            return []
        noise = sum(message.count for message in self._messages if message.is_noise)
        errors = f"{FAILED} {plural(len(self._error_rows), 'error')} (enter)" if self._error_rows else ""
        what, key = ("routine log line", "key 5") if is_closed else ("routine line", "a")
        others = [f"{plural(noise, what)} ({key})"] * bool(noise) + ["search (/)"] * (not is_closed)
        while others and cell_len(" · ".join([errors, *others])) > self.size.width - 1:
            others.pop()
        return [[(errors, "bad"), (" · " * bool(errors and others) + " · ".join(others), "head")]]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return bool(self._wanted) if action == "end_search" else True

    def action_next(self) -> None:
        """Go to the next match of the search, or else to the next error; after the last one, to the first."""
        rows = self._match_rows if self._wanted else self._error_rows
        if not rows:
            return
        at = round(self.scroll_offset.y)
        ahead = [row for row in rows if at < row and at < self.max_scroll_y]  # at the end, what follows is in view
        self._is_following = False
        self.scroll_to(y=(ahead or rows)[0], animate=False, immediate=True, force=True)

    def action_toggle_noise(self) -> None:
        self._shows_noise = not self._shows_noise
        self.rows_changed()

    def action_search(self, is_typing: bool = True) -> None:
        self._is_typing, self._wanted = is_typing, ""
        self.rows_changed()

    def action_end_search(self) -> None:
        self.action_search(is_typing=False)

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Take every character while a text is typed."""
        return self._is_typing and character is not None and character.isprintable()

    def on_key(self, event: Key) -> None:
        if not self._is_typing:
            return
        if event.key == "enter":
            self.on_blur()
            self.action_next()
        elif event.key == "escape":
            self.action_end_search()
        elif event.key == "backspace" or self.check_consume_key(event.key, event.character):
            self._wanted = self._wanted[:-1] if event.key == "backspace" else self._wanted + (event.character or "")
            self.rows_changed()
        else:
            return
        event.stop()
        event.prevent_default()

    def on_blur(self) -> None:
        """Stop typing; the matches stay marked."""
        self._is_typing = False
        self.rows_changed()


@lru_cache(4096)
def _wrapped(text: str, width: int, count: int) -> Sequence[str]:
    text += f" (×{count})" if count > 1 else ""
    if cell_len(text) <= width or not text.strip(" ^~"):  # Python's marks under a line of code
        return [text]
    return wrapped(text, width, "  ") or [""]


class LivePane(Struct, frozen=True):
    """One pane, which is made when the screen is composed."""

    key: int  # the number key that zooms it
    name: str  # its id, and its name on the screen
    help: str  # what it shows
    make: Callable[[str], RowsPane]  # from its id
    has_data: Callable[[RunState], bool] = lambda _: True  # until then, it is not there
    show: Callable[[Any, HeaderView], None] = lambda pane, view: pane.show(view.state)  # its part of a snapshot

    @property
    def label(self) -> str:
        return f"{self.key} {self.name}"


LEFT: tuple[LivePane, ...] = (
    LivePane(
        3,
        "epochs",
        "Times, speed, learning rate and metrics of each epoch; the best one is marked.",
        EpochTable,
        show=lambda pane, view: pane.show(view.state, view.pace),
    ),
)
"""Under the left charts."""

RIGHT: tuple[LivePane, ...] = (  # from top to bottom
    LivePane(
        4,
        "replicas",
        "The devices with their speed and memory, lost and slow hosts, and why a figure is missing.",
        ReplicaPanel,
    ),
    LivePane(
        6,
        "system",
        "What the input, the processor, the memory and the disk of a host do, along the axis of the charts.",
        SystemPane,
        lambda state: bool(state.hosts) or state.input is not None,
    ),
    LivePane(
        7,
        "samples",
        "Translations of a few sentences after the last epoch.",
        SamplesPane,
        lambda state: state.translated is not None,
        lambda pane, view: pane.show(view.state.translated),
    ),
    LivePane(
        8,
        "profile",
        "Where the time of traced steps went, what compiled a step again, and what to do; S traces steps.",
        ProfilePane,
        lambda state: bool(state.profiled) or any(one.part for one in state.compiled),
    ),
    LivePane(
        5,
        "log",
        "What the training process and your code print; errors are marked.",
        LogPane,
        show=lambda pane, view: pane.show(view.snapshot.log),
    ),
)

PANES = sorted((*LEFT, *RIGHT), key=lambda pane: pane.key)
