"""Above the curves: the most urgent notice about a run, and the box that says how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from tpu_console.engine.monitoring.alerts import current_alerts
from tpu_console.engine.runs.journal import VERSION

from ..text.cells import DONE, FAILED, STOPPED, WARNING, clipped, end_of
from ..text.numbers import plural, waiting_text
from ..text.steering import STOP_PENDING, WHY_SILENT, is_busy, mirror_text
from .basics import Overflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from tpu_console.engine.runs.follower import Snapshot

    from ..text.outcome import Ending


def notices_of(snapshot: Snapshot, *, is_stopping: bool = False, past_alerts: bool = True) -> tuple[str, ...]:
    """Return all notices, the most urgent first.

    The alerts of a run that is over are left out unless they are asked for; then they do not say what to do.
    """
    notices = [snapshot.trouble] if snapshot.trouble else []
    if snapshot.is_silent or snapshot.stall is not None:
        if is_stopping or snapshot.stop_waits or snapshot.state.stop is not None:
            notices.append(f"{STOP_PENDING[0].upper()}{STOP_PENDING[1:]}.")
        if snapshot.is_silent:
            notices.append(WHY_SILENT)
    elif snapshot.state.stop is not None and is_busy(snapshot.state) and not snapshot.is_over:
        notices.append(f"The run stops when it is done {snapshot.state.phase}. To kill it instead, press K.")
    if snapshot.waiting is not None and not snapshot.is_over:
        notices.append(f"{waiting_text(snapshot.waiting).capitalize()}.")
    if newer := snapshot.newer_version:
        notices.append(
            f"This run was written by a newer tpu-console (journal version {newer}, this one reads {VERSION}); "
            "some of it may be missing here. Update tpu-console to see everything."
        )
    if snapshot.damaged:
        damaged = plural(snapshot.damaged, "record")
        notices.append(f"{damaged} of the journal could not be read; everything else is shown.")
    if snapshot.state.mirror is not None and snapshot.state.mirror.problem and not snapshot.is_over:
        notices.append(f"Mirror: {mirror_text(snapshot.state)}.")
    if past_alerts or not snapshot.is_over:
        notices.extend(current_alerts(snapshot.state, is_over=snapshot.is_over))
    return (*notices, *reversed(snapshot.state.notices))


def bar_text(notices: Sequence[str], width: int) -> str:
    """Return the first notice and the number of others; one that is too long is cut off, and the details have it."""
    first, *others = notices
    more = f"  (i: {len(others)} more)" if others else ""
    whole = f"{WARNING} {first}"
    if cell_len(whole + more) <= width:
        return whole + more
    more = more or "  (i: all of it)"
    return clipped(whole, max(2, width - len(more))) + more


class NoticeBar(Static):
    """The first notice, and the number of others; takes no space if there is none."""

    DEFAULT_CSS = """
    NoticeBar { display: none; height: 1; padding: 0 1; color: $text-warning; &.-shown { display: block; } }
    """

    def __init__(self) -> None:
        super().__init__(id="notices")
        self._notices: tuple[str, ...] = ()

    def show(self, notices: tuple[str, ...]) -> None:
        """Show notices, or nothing."""
        self._notices = notices
        self.set_class(bool(notices), "-shown")
        self.on_resize()

    def on_resize(self) -> None:
        """Fit the text again."""
        if self._notices:  # it has no width before it is shown
            self.update(Content(bar_text(self._notices, self.app.size.width - 2)), layout=False)


_SHORTEST_PATH = 20  # cells in which the end of a path says which file it is
_LOOKS = {"good": (DONE, "$text-success"), "stopped": (STOPPED, "$text-warning"), "bad": (FAILED, "$text-error")}


class OutcomeBox(Overflow):
    """Shows a run's outcome; hidden until there is one. It scrolls if it is too long."""

    DEFAULT_CSS = """
    OutcomeBox {
        display: none; height: auto; max-height: 14; padding: 0 1;
        border-left: thick $success; background: $success 8%;
        scrollbar-background: $background; scrollbar-color: $foreground 25%;
        .facts { height: auto; }
        &.-good .facts { max-height: 2; text-wrap: nowrap; text-overflow: ellipsis; }
        .log { display: none; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; height: auto; }
        &.-with-log .log { display: block; }
        &.-shown { display: block; }
        &.-stopped { border-left: thick $warning; background: $warning 8%; }
        &.-bad { border-left: thick $error; background: $error 10%; }
        &:ansi { background: ansi_default; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="outcome")
        self._drawn: Ending | None = None

    def compose(self) -> ComposeResult:
        """Yield the facts, and below them the last lines of the log."""
        yield Static(classes="facts")
        yield Static(classes="log")

    def show(self, outcome: Ending | None) -> None:
        """Show an outcome, or nothing."""
        if outcome == self._drawn:
            return
        self._drawn = outcome
        self.set_class(outcome is not None, "-shown")
        if outcome is not None:
            for kind in _LOOKS:
                self.set_class(outcome.kind == kind, f"-{kind}")
            self.on_resize()
            self.set_class(bool(outcome.log), "-with-log")
            self.query_one(".log", Static).update(Content("\n".join(outcome.log)))

    def on_resize(self) -> None:
        """Fit the paths."""
        if self._drawn is not None:
            # Before it is laid out for the first time it has no width, and gets that of the screen less its edges.
            width = self.size.width or self.app.size.width - 3
            self.query_one(".facts", Static).update(_content(self._drawn, width))


def _content(outcome: Ending, width: int) -> Content:
    """Write a good end in two lines, with the facts for which they have room, and any other one whole."""
    mark, color = _LOOKS[outcome.kind]
    lines, is_good = [Content.styled(f"{mark} {outcome.headline}", f"bold {color}")], outcome.kind == "good"
    for label, text in sorted(outcome.facts, key=lambda fact: is_good and fact[0] != "why"):
        lead, room = (f"{label}: ", "dim"), width - lines[-1].cell_length - len(label) - 4
        beside = _fitting(text, room) if room >= _SHORTEST_PATH else text
        below = _fitting(text, width - len(label) - 2)
        if is_good and cell_len(beside) <= room:
            lines[-1] = Content.assemble(lines[-1], "  ", lead, beside)
        elif not is_good or (len(lines) == 1 and cell_len(below) <= width - len(label) - 2):
            lines.append(Content.assemble(lead, below))
    return Content("\n").join(lines)


def _fitting(text: str, room: int) -> str:
    """Return a path with its end in one line, so that charts keep their rows; the details show all of it."""
    is_path = text.startswith(("/", "~/")) and " " not in text
    return end_of(text, room) if is_path and room > 1 else text
