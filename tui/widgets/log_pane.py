"""Shows the end of ``console.log``: the output of native code, tracebacks, and what the user's code prints."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual.binding import Binding

from ..text.log_text import Message, read_messages
from ..text.marks import FAILED
from ..text.numbers import plural
from .rows_pane import LinesPane, Row, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual.binding import BindingType
    from textual.events import Key

_LEAST = 16  # minimum width of a line in cells


class LogPane(LinesPane):
    """Shows the log's messages, wrapped; its first line counts errors and folds the usual framework noise."""

    follows_newest = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {"rows--match"}
    DEFAULT_CSS = "LogPane .rows--match { text-style: reverse; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "next_error", "Next error", show=False, tooltip="Go to the next error in the log."),
        Binding("a", "toggle_noise", "All lines", show=False, tooltip="Show or fold the log's usual framework lines."),
        Binding("slash", "search", "Search", show=False, tooltip="Search the log; n and N go to other matches."),
        Binding("n", "next_match(1)", show=False),
        Binding("N", "next_match(-1)", show=False),
        Binding("escape", "end_search", show=False),
    ]

    def __init__(self) -> None:
        super().__init__("5 log", "log")
        self._lines: Sequence[str] = ()
        self._messages: list[Message] = []
        self._error_rows: list[int] = []
        self._match_rows: list[int] = []
        self._shows_noise = False
        self._is_typing = False
        self._wanted = ""

    def show(self, lines: Sequence[str]) -> None:
        """Show the log's last lines; redraws only if they changed."""
        if lines is not self._lines:
            self._lines = lines
            self._messages = read_messages(lines)
            self.rows_changed()

    def laid_out(self) -> list[Row]:
        """Wrap the messages for the pane's width."""
        rows: list[Row] = []
        self._error_rows, self._match_rows = [], []
        width, wanted = max(_LEAST, self.room), self._wanted.lower()
        for message in self._messages:
            if message.is_noise and not self._shows_noise:
                continue
            if message.is_error:
                self._error_rows.append(len(rows))
            look = "bad" if message.is_error else "faint" if message.is_noise else ""
            for line in _wrapped(message.text, width - 1, message.count):
                if wanted and wanted in line.lower():
                    self._match_rows.append(len(rows))
                rows.append(list(_marked(line, look, wanted)))
        return rows or [[("the log is empty" if not self._messages else "no other lines", "faint")]]

    def head(self) -> list[Row]:
        """Return the text being searched, or else the number of errors and of folded lines."""
        if self._is_typing or self._wanted:
            found = f"  {plural(len(self._match_rows), 'match', 'matches')} · n next · esc end"
            return [[(f"/{self._wanted}{'▏' if self._is_typing else found}", "head")]]
        if not self._messages:
            return []
        noise = sum(message.count for message in self._messages if message.is_noise)
        errors = f"{FAILED} {plural(len(self._error_rows), 'error')} (e)" if self._error_rows else ""
        folded = f"{plural(noise, 'usual line')} (a)" if noise else ""
        others = [part for part in (folded, "search (/)") if part]
        while others and cell_len(" · ".join([errors, *others])) > self.room:
            others.pop()
        return [[(errors, "bad"), (" · " if errors and others else "", "head"), (" · ".join(others), "head")]]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  Textual's own
        """Leave a search's keys to the screen while there is none."""
        return bool(self._wanted) if action in {"next_match", "end_search"} else True

    def action_next_error(self) -> None:
        """Go to the next error below the top row, or to the first one."""
        self._go(self._error_rows)

    def action_toggle_noise(self) -> None:
        """Show or fold framework noise."""
        self._shows_noise = not self._shows_noise
        self.rows_changed()

    def action_search(self) -> None:
        """Begin to type a text to search for."""
        self._is_typing, self._wanted = True, ""
        self.rows_changed()

    def action_next_match(self, by: int) -> None:
        """Go to the next or, with -1, the previous line with the text."""
        self._go(self._match_rows, by)

    def action_end_search(self) -> None:
        """Forget the text."""
        self._is_typing, self._wanted = False, ""
        self.rows_changed()

    def check_consume_key(self, key: str, character: str | None) -> bool:  # noqa: ARG002  Textual's signature
        """Take every character while a text is typed."""
        return self._is_typing and character is not None and character.isprintable()

    def on_key(self, event: Key) -> None:
        """Type a text to search for."""
        if not self._is_typing:
            return
        if event.key == "enter":
            self._is_typing = False
            self.rows_changed()
            self._go(self._match_rows)
        elif event.key == "escape":
            self.action_end_search()
        elif event.key == "backspace":
            self._wanted = self._wanted[:-1]
            self.rows_changed()
        elif self.check_consume_key(event.key, event.character):
            self._wanted += event.character or ""
            self.rows_changed()
        else:
            return
        event.stop()
        event.prevent_default()

    def on_blur(self) -> None:
        """Stop typing; the matches stay marked."""
        self._is_typing = False
        self.rows_changed()

    def _go(self, rows: Sequence[int], by: int = 1) -> None:
        """Scroll to the next of some rows, past the last one to the first."""
        if not rows:
            return
        at = round(self.scroll_offset.y)
        ahead = [row for row in rows if (row - at) * by > 0]
        if not ahead or (by > 0 and at >= self.max_scroll_y):  # at the end, or what follows is in view
            ahead = list(rows)
        self._is_following = False
        self.scroll_to(y=ahead[0] if by > 0 else ahead[-1], animate=False, immediate=True, force=True)


def _marked(line: str, look: str, wanted: str) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a line, with every match of the wanted text marked."""
    start, folded = 0, line.lower()
    while wanted and (at := folded.find(wanted, start)) >= 0:
        yield line[start:at], look
        yield line[at : at + len(wanted)], "match"
        start = at + len(wanted)
    yield line[start:], look


@lru_cache(4096)
def _wrapped(text: str, width: int, count: int) -> tuple[str, ...]:
    text += f" (×{count})" if count > 1 else ""
    if cell_len(text) <= width or not text.strip(" ^~"):  # Python's marks under a line of code
        return (text,)
    return tuple(wrapped(text, width, "  ")) or ("",)
