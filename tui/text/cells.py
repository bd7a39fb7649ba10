"""What cells of the terminal show: symbols, and texts cut off to a width (two cells for an East Asian character)."""

from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size


def widest(texts: Iterable[str]) -> int:
    """Return the width of the widest text."""
    return max(map(cell_len, texts), default=0)


def clipped(text: str, cells: int) -> str:
    """Cut a text that is too wide off, with an ellipsis."""
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def end_of(text: str, cells: int) -> str:
    """Cut the beginning of a text that is too wide off: names and paths differ at their end."""
    return text if cell_len(text) <= cells else "…" + set_cell_size(text[::-1], cells - 1).rstrip()[::-1]


BAR, BAR_LEFT = "━", "─"  # the full and the empty part of a progress bar
BEST, NOW, DONE, FAILED, WARNING, STOPPED, DOWNLOAD = "★", "▸", "✓", "✗", "▲", "■", "↓"
SPINNER = "▖▘▝▗"  # its frames; not braille, because some fonts lack it
LEVELS = "▁▂▃▄▅▆▇█"  # bars of a sparkline, lowest first
