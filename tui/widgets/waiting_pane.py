"""Shows what a run does before its first step: the phases, how long each takes, and what they found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.widget import Widget

from tpu_console.engine.runs.events import PREPARATION

from ..text.marks import DONE, SPINNER
from ..text.numbers import clock, duration
from ..text.run_lines import found
from .run_header import HeaderView, phase_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_NAME_WIDTH, _TIME_WIDTH, _USUAL_WIDTH = 14, 8, 17
_EXPLAINED = {
    "starting": "Starting the training process.",
    "importing": "Importing Keras and its backend.",
    "connecting": "Connecting to the devices; each gets one replica.",
    "loading data": "Loading the dataset; the first run may download it.",
    "building": "Building the model.",
    "compiling": "Compiling for the device; this can take minutes for a large model.",
}


def waiting_rows(view: HeaderView, usual: Mapping[str, float], now: float, width: int) -> list[Content]:
    """Return a checklist of the phases before training.

    Args:
        view: The run.
        usual: Seconds that each phase usually takes, if known.
        now: Unix time in seconds.
        width: Cells of a row.
    """
    state = view.state
    phase, spent = phase_of(view)
    names = dict.fromkeys([*([] if state.phase else [phase]), *PREPARATION, *state.phase_s, phase])
    rows = [_total_row(view, usual, now)]
    for name in names:
        is_current = name == phase
        mark = SPINNER[view.spin % len(SPINNER)] if is_current else DONE if name in state.phase_s else "·"
        time = duration(spent) if is_current else duration(state.phase_s[name]) if name in state.phase_s else ""
        expected = f"usually {duration(usual[name])}" if name in usual else ""
        figures = f"{mark} {name:<{_NAME_WIDTH}}{time:>{_TIME_WIDTH}}   "
        said = found(name, state) if name in state.phase_s else ""
        if is_current:
            said = state.phase_detail or _EXPLAINED.get(name, "")
        look = "$text-accent" if is_current else "" if name in state.phase_s else "dim"
        row = Content.assemble((figures, look), (f"{expected:<{_USUAL_WIDTH}}" if usual else "", "dim"), (said, "dim"))
        rows.append(row if row.cell_length <= width else Content.assemble(row.truncate(max(0, width - 1)), "…"))
    return rows


def _total_row(view: HeaderView, usual: Mapping[str, float], now: float) -> Content:
    began = view.state.started_at or view.opened_at
    total = sum(usual.get(name, 0.0) for name in PREPARATION)
    # Only if every phase is known: a part of them would promise too much.
    expected = f", usually {clock(total + 0.5)} until the first step" if {*PREPARATION} <= usual.keys() else ""
    return Content.assemble((f"{clock(now - began)} elapsed", "bold"), (expected, "dim"))


class WaitingPane(Widget):
    """Draws the rows of `waiting_rows`."""

    DEFAULT_CSS = """
    WaitingPane { width: 1fr; height: 1fr; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__(id="waiting", classes="pane")
        self.border_title = "before the first step"
        self._view = HeaderView("")
        self._usual: Mapping[str, float] = {}

    def show(self, view: HeaderView) -> None:
        """Show a run, or the time that passed."""
        self._view = view
        self.refresh()

    def expect(self, usual: Mapping[str, float]) -> None:
        """Show how long each phase usually takes."""
        self._usual = usual
        self.refresh()

    def render(self) -> Content:
        """Render the checklist."""
        view = self._view
        return Content("\n").join(waiting_rows(view, self._usual, view.now, self.content_size.width or 80))
