"""The box on the live screen that says how a run ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from ..text.cells import end_of
from ..text.marks import DONE, FAILED, STOPPED
from .reading import Overflow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from ..text.outcome import RunOutcome

_SHORTEST_PATH = 20  # cells in which the end of a path says which file it is


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
        if self._drawn is not None:
            # Before it is laid out for the first time it has no width, and gets that of the screen less its edges.
            width = self.size.width or self.app.size.width - 3
            self.query_one(".facts", Static).update(_content(self._drawn, width))

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
    if outcome.kind == "good":
        return _two_lines(lines[0], sorted(outcome.facts, key=lambda fact: fact[0] != "why"), width)
    for label, text in outcome.facts:
        lines.append(Content.assemble((f"{label}: ", "dim"), _fitting(text, width - len(label) - 2)))
    return Content("\n").join(lines)


def _two_lines(headline: Content, facts: Sequence[tuple[str, str]], width: int) -> Content:
    """Write the facts for which two lines have room, each whole; of a path at least its end."""
    lines = [headline]
    for label, text in facts:
        for line in range(2):
            begin = Content.assemble(lines[line], "  ") if line < len(lines) else Content("")
            room = width - begin.cell_length - len(label) - 2
            shown = _fitting(text, room) if room >= _SHORTEST_PATH else text
            if cell_len(shown) <= room or (not begin and shown != text):
                lines[line : line + 1] = [Content.assemble(begin, (f"{label}: ", "dim"), shown)]
                break
    return Content("\n").join(lines)


def _fitting(text: str, room: int) -> str:
    """Return a path with its end in one line, so that charts keep their rows; the details show all of it."""
    is_path = text.startswith(("/", "~/")) and " " not in text
    return end_of(text, room) if is_path and room > 1 else text
