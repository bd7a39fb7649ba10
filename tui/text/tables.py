"""Tables, described once by their columns and written as text, CSV, Markdown, HTML or plain values; bars; symbols."""

import csv
import io
import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, replace
from rich.cells import cell_len, set_cell_size

from .numbers import NONE

_FORMULA = re.compile(r"[=+\-@\t\r]")
_MARKDOWN = re.compile(r"([\\`*\[\]<>|~&#!])")
_GAP = "  "
_TABLE = "border-collapse:collapse;margin:.5em 0;font-variant-numeric:tabular-nums"
_BEST_ROW = ' class="best" style="font-weight:bold"'
NAME_CELLS = 13  # the column in which `labelled` starts its text

BAR, BAR_LEFT = "━", "─"  # the full and the empty part of a progress bar
BEST, NOW, DONE, FAILED, WARNING, STOPPED, DOWNLOAD = "★", "▸", "✓", "✗", "▲", "■", "↓"
SPINNER = "▖▘▝▗"  # its frames; not braille, because some fonts lack it
LEVELS = "▁▂▃▄▅▆▇█"  # bars of a sparkline, lowest first


def widest(texts: Iterable[str]) -> int:
    """Return the width of the widest text."""
    return max(map(cell_len, texts), default=0)


def clipped(text: str, cells: int) -> str:
    """Cut a text that is too wide off, with an ellipsis."""
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def end_of(text: str, cells: int) -> str:
    """Cut the beginning of a text that is too wide off: names and paths differ at their end."""
    return text if cell_len(text) <= cells else "…" + set_cell_size(text[::-1], cells - 1).rstrip()[::-1]


class Column(Struct, frozen=True):
    """One column of a table of records."""

    title: str  # its heading
    importance: int  # if there is too little room, the most important columns are kept
    right: bool = False  # whether its values are aligned to the right
    width: int = 0  # its width in cells, if that is fixed
    key: str = ""  # its name in JSON and CSV
    value: Callable[[Any], Any] = lambda _: None  # the value of a record; None if it has none
    text: Callable[[Any], str] = str  # writes such a value
    plain: Callable[[Any], Any] = lambda value: value  # turns such a value into one for CSV and JSON
    look: Callable[[Any], Any] = lambda _: ""  # the style of a record's cell on the screen, as Textual knows it

    def written(self, record: Any, none: str = NONE) -> str:
        """Return the text of a record's cell; `none` if it has no value."""
        value = self.value(record)
        return none if value is None else self.text(value)

    def of(self, record: Any) -> Any:
        """Return a record's value for CSV and JSON."""
        value = self.value(record)
        return None if value is None else self.plain(value)

    def cell(self, text: str) -> str:
        """Pad a text or cut it off to the column's width."""
        if text.isascii():
            text = text[: self.width]
            return text.rjust(self.width) if self.right else text.ljust(self.width)
        left = self.width - cell_len(text)
        return " " * left + text if self.right and left > 0 else set_cell_size(text, self.width)


ColumnT = TypeVar("ColumnT", bound=Column)


def fitting(columns: Sequence[ColumnT], width: int | None, gap: int = len(_GAP)) -> list[ColumnT]:
    """Return the columns that fit side by side, preferring the most important ones; at least one is kept."""
    if width is None:
        return list(columns)
    first, *others = sorted(columns, key=lambda column: -column.importance)
    shown, room = [first], width - first.width
    for column in others:
        if column.width + gap <= room:
            shown.append(column)
            room -= column.width + gap
    return [column for column in columns if any(column is kept for kept in shown)]


def table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Lay out a table: the heading and one line per row, none wider than `width` cells; None for no limit."""
    by_column = [*zip([column.title for column in columns], *rows, strict=True)]
    wide = [replace(column, width=widest(texts)) for column, texts in zip(columns, by_column, strict=True)]
    kept = {id(column) for column in fitting(wide, width)}
    cells = [map(one.cell, texts) for one, texts in zip(wide, by_column, strict=True) if id(one) in kept]
    lines = [_GAP.join(row).rstrip() for row in zip(*cells, strict=True)]
    # One column may be wider than all the room.
    return lines if width is None or len(kept) > 1 else [clipped(line, width) for line in lines]


def as_lines(columns: Sequence[Column], records: Iterable[Any], width: int | None) -> list[str]:
    """Write a table of records as `table` does."""
    return table(columns, [[column.written(record) for column in columns] for record in records], width)


def for_json(value: Any) -> Any:
    """Return structs as dictionaries, and spell out the numbers that JSON cannot hold, as the journal does."""
    if isinstance(value, Struct):
        value = asdict(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: for_json(inner) for key, inner in value.items()}
    return [for_json(inner) for inner in value] if isinstance(value, list | tuple) else value


def as_values(record: Any, *names: str) -> dict[str, Any]:
    """Return fields of a record for JSON."""
    return {name: for_json(getattr(record, name)) for name in names}


def as_csv(columns: Sequence[Column], records: Iterable[Any]) -> str:
    """Write a table as CSV, with keys as its heading and no cell that a spreadsheet takes for a formula."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow([column.key for column in columns])
    for record in records:
        values = [column.of(record) for column in columns]
        writer.writerow([f"'{one}" if isinstance(one, str) and _FORMULA.match(one) else one for one in values])
    return output.getvalue().removesuffix("\n")


def as_markdown(columns: Sequence[Column], records: Iterable[Any]) -> list[str]:
    """Write a table as Markdown."""
    rows = [[in_markdown(column.title) for column in columns], ["---" + ":" * column.right for column in columns]]
    rows += [[in_markdown(column.written(record)) for column in columns] for record in records]
    return [f"| {' | '.join(row)} |" for row in rows]


def as_html(columns: Sequence[Column], rows: Iterable[Sequence[str]], best: int | None = None) -> str:
    """Write a table of texts as HTML, with one row in bold, of the class ``best``."""
    looks = [f"text-align:{'right' if column.right else 'left'}" for column in columns]

    def row(cells: Iterable[str], kind: str, is_best: bool = False) -> str:
        marked = (f'<{kind} style="{look}">{escape(cell)}' for look, cell in zip(looks, cells, strict=True))
        return f"<tr{_BEST_ROW * is_best}>{''.join(marked)}"

    body = "".join(row(cells, "td", number == best) for number, cells in enumerate(rows))
    return f'<table style="{_TABLE}">{row([column.title for column in columns], "th")}{body}</table>'


def in_markdown(text: str) -> str:
    """Return a text that Markdown shows as it is."""
    return _MARKDOWN.sub(r"\\\1", text)


def fields(pairs: Sequence[tuple[str, str]], indent: str = "  ") -> list[str]:
    """Align names and values; the lines of a value stay in its column."""
    longest = widest([name for name, _ in pairs])
    lines = []
    for name, value in pairs:
        for number, part in enumerate(value.splitlines() or [""]):
            head = name if number == 0 else ""
            lines.append(f"{indent}{set_cell_size(head, longest)}{_GAP}{part}".rstrip())
    return lines


def filled(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs whose text is not empty."""
    return [pair for pair in pairs if pair[1]]


def paragraphs(blocks: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of blocks with an empty line between two of them; empty blocks are dropped."""
    lines: list[str] = []
    for block in filter(None, blocks):
        lines += ["", *block] if lines else block
    return lines


def labelled(name: str, text: str) -> str:
    """Write a line that begins with a name; all such texts start in the same column."""
    return f"{name:<{NAME_CELLS}}{text}".rstrip()


def labelled_lines(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Write such lines for the names that have a text."""
    return [labelled(name, text) for name, text in filled(pairs)]


def wrapped(name: str, text: str, width: int) -> list[str]:
    """Write such a line, wrapped to a width with a hanging indent."""
    first, *others = textwrap.wrap(text, max(20, width - NAME_CELLS), break_on_hyphens=False) or [""]
    return [labelled(name, first), *(labelled("", line) for line in others)]


_LONGEST, _SHORTEST = 50, 8
_EIGHTHS = "▏▎▍▌▋▊▉█"


class Bar(Struct, frozen=True):
    """One bar."""

    label: str  # what the bar shows
    value: float  # its length, not negative
    figures: tuple[str, ...]  # the texts in the columns beside the label


def bar_chart(bars: Sequence[Bar], headings: Sequence[str], width: int) -> list[str]:
    """Draw a bar chart; the longest bar is the largest value. The headings are of the labels and each column."""
    labels = [headings[0], *(bar.label for bar in bars)]
    columns = zip(headings[1:], *(bar.figures for bar in bars), strict=True)
    figures = [[text.rjust(max(map(len, texts))) for text in texts] for texts in columns]
    taken = sum(len(column[0]) + len(_GAP) for column in figures) + len(_GAP)
    label_cells = min(widest(labels), max(8, min(width // 2, width - taken - _SHORTEST)))
    cells = max(1, min(_LONGEST, width - taken - label_cells))
    top = max((bar.value for bar in bars), default=0) or 1
    fitted, drawn = (set_cell_size(clipped(label, label_cells), label_cells) for label in labels), [""]
    for bar in bars:
        # The bar of a value above 0 is always visible.
        whole, eighths = divmod(max(1, round(bar.value / top * cells * 8)) if bar.value else 0, 8)
        drawn.append("█" * whole + (_EIGHTHS[eighths - 1] if eighths else ""))
    return [_GAP.join(row).rstrip() for row in zip(fitted, *figures, drawn, strict=True)]
