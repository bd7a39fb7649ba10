"""Shows the most urgent notice about the run in one row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from tpu_console.engine.monitoring.alerts import current_alerts
from tpu_console.engine.runs.journal import VERSION

from ..text.marks import WARNING
from ..text.mirror import mirror_text
from ..text.numbers import waiting_text
from ..text.silence import STOP_PENDING, WHY_SILENT
from ..text.steering import is_busy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..following.watcher import WatchUpdate


_ROWS = 1  # as many as the bar has


def notices_of(update: WatchUpdate, *, is_stopping: bool = False, past_alerts: bool = True) -> tuple[str, ...]:
    """Return all notices, the most urgent first.

    The alerts of a run that is over are left out unless they are asked for; then they do not say what to do.
    """
    notices = [update.trouble] if update.trouble else []
    snapshot = update.snapshot
    if snapshot.is_silent or snapshot.stall is not None:
        if is_stopping or snapshot.stop_waits or snapshot.state.stop is not None:
            notices.append(f"{STOP_PENDING[0].upper()}{STOP_PENDING[1:]}.")
        if snapshot.is_silent:
            notices.append(WHY_SILENT)
    elif snapshot.state.stop is not None and is_busy(snapshot.state) and not snapshot.is_over:
        notices.append(f"The run stops when it is done {snapshot.state.phase}. To kill it instead, press K.")
    if snapshot.waiting is not None and not snapshot.is_over:
        notices.append(f"{waiting_text(snapshot.waiting).capitalize()}.")
    newer = snapshot.newer_version
    if newer:
        notices.append(
            f"This run was written by a newer tpu-console (journal version {newer}, this one reads {VERSION}); "
            "some of it may be missing here. Update tpu-console to see everything."
        )
    if update.damaged:
        one = update.damaged == 1
        notices.append(
            f"{update.damaged:,} record{'' if one else 's'} of the journal could not be read and "
            f"{'was' if one else 'were'} left out; everything else is shown."
        )
    if snapshot.state.mirror is not None and snapshot.state.mirror.problem and not snapshot.is_over:
        notices.append(f"Mirror: {mirror_text(snapshot.state)}.")
    if past_alerts or not snapshot.is_over:
        notices.extend(current_alerts(snapshot.state))
    return (*notices, *reversed(snapshot.state.notices))


def bar_text(notices: Sequence[str], width: int) -> str:
    """Return the first notice and the number of others, cut off after a word if the bar has no room for all of it."""
    first, *others = notices
    whole, more = f"{WARNING} {first}", f"  (i: {len(others)} more)" if others else ""
    shown, words = f"{whole}{more}", whole.split(" ")
    while len(words) > 2 and len(Content(shown).wrap(max(1, width))) > _ROWS:
        words.pop()
        shown = f"{' '.join(words)}…{more or '  (i: all of it)'}"
    return shown


class NoticeBar(Static):
    """The first notice, and the number of others; takes no space if there is none."""

    DEFAULT_CSS = """
    NoticeBar {
        display: none;
        height: 1;
        padding: 0 1;
        color: $text-warning;
        &.-shown { display: block; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="notices")
        self._drawn: tuple[str, ...] = ()

    def show(self, notices: tuple[str, ...]) -> None:
        """Show notices, or nothing."""
        if notices == self._drawn:
            return
        self._drawn = notices
        self.set_class(bool(notices), "-shown")
        self._draw()

    def on_resize(self) -> None:
        """Fit the text again."""
        self._draw()

    def _draw(self) -> None:
        if self._drawn:
            self.update(Content(bar_text(self._drawn, self.app.size.width - 2)))  # it has no width before it is shown
