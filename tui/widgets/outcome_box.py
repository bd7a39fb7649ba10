"""The box on the live screen that says how a run ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content
from textual.widgets import Static

from ..text.cells import end_of
from ..text.marks import DONE, FAILED, STOPPED
from .reading import Overflow

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from ..text.outcome import RunOutcome


class OutcomeBox(Overflow):
    """Shows a run's outcome; hidden until there is one. It scrolls if it is too long."""

    DEFAULT_CSS = """
    OutcomeBox {
        display: none;
        height: auto;
        max-height: 14;
        padding: 0 1;
        border-left: thick $success;
        background: $success 8%;
        scrollbar-background: $background;
        scrollbar-color: $foreground 25%;
        .facts { height: auto; }
        &.-good .facts { height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
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
        self._drawn: RunOutcome | None = None

    def compose(self) -> ComposeResult:
        """Yield the facts, and below them the last lines of the log."""
        yield Static(classes="facts")
        yield Static(classes="log")

    def show(self, outcome: RunOutcome | None) -> None:
        """Show an outcome, or nothing."""
        if outcome == self._drawn:
            return
        self._drawn = outcome
        self.set_class(outcome is not None, "-shown")
        if outcome is None:
            return
        self.set_class(outcome.kind == "good", "-good")
        self.set_class(outcome.kind == "stopped", "-stopped")
        self.set_class(outcome.kind == "bad", "-bad")
        self._draw_facts()
        self.set_class(bool(outcome.log), "-with-log")
        self.query_one(".log", Static).update(Content("\n".join(outcome.log)))

    def _draw_facts(self) -> None:
        if self._drawn is not None and self.size.width:  # it has none before it is laid out for the first time
            self.query_one(".facts", Static).update(_content(self._drawn, self.size.width))

    def on_resize(self) -> None:
        """Fit the paths."""
        self._draw_facts()


def _content(outcome: RunOutcome, width: int) -> Content:
    mark, color = {
        "good": (DONE, "$text-success"),
        "stopped": (STOPPED, "$text-warning"),
        "bad": (FAILED, "$text-error"),
    }[outcome.kind]
    lines = [Content.assemble((f"{mark} {outcome.headline}", f"bold {color}"))]
    if outcome.kind == "good":  # charts need the rows
        facts = [
            Content.assemble((f"{label}: ", "dim"), text)
            for label, text in sorted(outcome.facts, key=lambda fact: fact[0] != "why")
        ]
        return Content("  ").join([*lines, *facts])
    for label, text in outcome.facts:
        lines.append(Content.assemble((f"{label}: ", "dim"), _fitting(text, width - len(label) - 2)))
    return Content("\n").join(lines)


def _fitting(text: str, room: int) -> str:
    """Return a path with its end in one line, so that charts keep their rows; the details show all of it."""
    is_path = text.startswith(("/", "~/")) and " " not in text
    return end_of(text, room) if is_path and room > 1 else text
