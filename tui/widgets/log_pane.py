"""Shows the end of ``console.log``: the output of native code, tracebacks, and what the user's code prints."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len

from ..text.cells import FAILED
from ..text.keys import bind
from ..text.log_text import Message, read_messages
from ..text.numbers import plural
from .rows_pane import LinesPane, Row, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from textual.events import Key

_LEAST = 16  # minimum width of a line in cells


class LogPane(LinesPane["Sequence[str]"]):
    """Shows the log's messages, wrapped; its first line counts errors and folds the usual framework noise."""

    follows_newest = True
    BINDINGS = [
        bind("enter", "next", about="Go to the next error or match.", show=False),
        bind("all", "toggle_noise", about="Show routine lines too.", show=False),
        bind("filter", "search", about="Search the log.", show=False),
        bind("back", "end_search", about="End the search.", show=False),
    ]

    def __init__(self, pane_id: str) -> None:
        super().__init__(pane_id)
        self._messages: list[Message] = []
        self._error_rows, self._match_rows = list[int](), list[int]()
        self._shows_noise = self._is_typing = False
        self._wanted = ""

    def show(self, shown: Sequence[str]) -> None:
        """Show the log's last lines; up to 2,000 of them are wrapped again only if they changed."""
        if shown is not self.shown:
            self._messages = read_messages(shown)
            super().show(shown)

    def laid_out(self, _lines: Sequence[str]) -> list[Row]:
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
        self.set_class(bool(self._error_rows), "-errors")
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
        what, key, others = ("routine log line", "key 5", []) if is_closed else ("routine line", "a", ["search (/)"])
        others = [*([f"{plural(noise, what)} ({key})"] if noise else []), *others]
        while others and cell_len(" · ".join([errors, *others])) > self.size.width - 1:
            others.pop()
        return [[(errors, "bad"), (" · " * bool(errors and others) + " · ".join(others), "head")]]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Leave escape to the screen while there is no search."""
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
        """Show or fold framework noise."""
        self._shows_noise = not self._shows_noise
        self.rows_changed()

    def action_search(self, is_typing: bool = True) -> None:
        """Begin to type a text to search for."""
        self._is_typing, self._wanted = is_typing, ""
        self.rows_changed()

    def action_end_search(self) -> None:
        """Forget the text."""
        self.action_search(is_typing=False)

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """Take every character while a text is typed."""
        return self._is_typing and character is not None and character.isprintable()

    def on_key(self, event: Key) -> None:
        """Type a text to search for."""
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


def _marked(line: str, look: str, wanted: str) -> Iterator[tuple[str, str]]:
    """Yield the pieces of a line, with every match of the wanted text marked."""
    start, folded = 0, line.lower()
    while wanted and (at := folded.find(wanted, start)) >= 0:
        yield line[start:at], look
        yield line[at : at + len(wanted)], "match"
        start = at + len(wanted)
    yield line[start:], look


@lru_cache(4096)
def _wrapped(text: str, width: int, count: int) -> Sequence[str]:
    text += f" (×{count})" if count > 1 else ""
    if cell_len(text) <= width or not text.strip(" ^~"):  # Python's marks under a line of code
        return [text]
    return wrapped(text, width, "  ") or [""]
