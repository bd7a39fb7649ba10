"""How the live screen writes durations, sizes and scores, and the glyphs it draws with."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters that stand for things, for one kind of font.

    Attributes:
        full: A done part of a bar.
        empty: The part of a bar that is left.
        star: Marks the best epoch.
        now: Marks the epoch that runs.
        done: Went well.
        failed: Went wrong.
        note: Draws attention.
        stopped: Was stopped.
        dot: Separates facts on a line.
        times: Multiplies.
        ellipsis: Stands for what did not fit.
        spinner: Frames of something that goes on.
        levels: Bars of a sparkline, the lowest first.
    """

    full: str
    empty: str
    star: str
    now: str
    done: str
    failed: str
    note: str
    stopped: str
    dot: str
    times: str
    ellipsis: str
    spinner: str
    levels: str


_UNICODE = Glyphs("━", "─", "★", "▸", "✓", "✗", "▲", "■", "·", "×", "…", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "▁▂▃▄▅▆▇█")
_NO_BRAILLE = Glyphs("━", "─", "★", "▸", "✓", "✗", "▲", "■", "·", "×", "…", "▖▘▝▗", "▁▂▃▄▅▆▇█")
_ASCII = Glyphs("=", "-", "*", ">", "+", "x", "!", "#", "-", "x", "~", "|/-\\", "_.:-=+*#")


def glyphs_for(marker: str) -> Glyphs:
    """Return the glyphs that go with a chart marker: ``braille``, ``block`` or ``ascii``."""
    return {"block": _NO_BRAILLE, "ascii": _ASCII}.get(marker, _UNICODE)


def plain(text: str, glyphs: Glyphs) -> str:
    """Write text as the font can: without characters outside ASCII when the glyphs have none."""
    if glyphs is not _ASCII:
        return text
    return text.replace("×", "x").replace("–", "-").replace("·", "-").encode("ascii", "replace").decode("ascii")


def clock(seconds: float) -> str:
    """Write a duration as a clock does: ``0:42``, ``1:02:03``, ``2d 03:04``."""
    whole = max(0, int(seconds))
    minutes, secs = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours:02}:{minutes:02}"
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"


def seconds_text(seconds: float) -> str:
    """Write a duration in at most seven characters: ``0.84 s``, ``12.3 s``, ``5:07``."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    return f"{seconds:.1f} s" if seconds < 99.95 else clock(seconds)


def score(value: float | None) -> str:
    """Write a metric in about six characters, so that a column of them lines up; empty for None."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    size = abs(value)
    if size and size < 5e-4:
        return f"{value:.1e}".replace("e-0", "e-")
    for limit, decimals in ((10, 4), (100, 3), (1000, 2), (1e4, 1), (1e6, 0)):
        if size < limit:
            return f"{value:.{decimals}f}"
    return f"{value:.1e}".replace("e+0", "e")


def rate(value: float | None) -> str:
    """Write a learning rate in at most six characters; empty for None."""
    if value is None:
        return ""
    return f"{value:.3g}" if value >= 0.1 or not value else f"{value:.1e}".replace("e-0", "e-")


def count(value: float | None) -> str:
    """Write a whole number with thousands apart; empty for None."""
    return "" if value is None else f"{value:,.0f}"


def milliseconds(value: float | None) -> str:
    """Write milliseconds with three digits; empty for None."""
    if value is None:
        return ""
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def memory(used: int | None, limit: int | None) -> str:
    """Write memory in use, of what there is when that is known: ``3.1/15.7 GiB``."""
    largest = max(used or 0, limit or 0)
    power, unit = (2, "MiB") if largest < 1 << 30 else (3, "GiB")
    parts = [f"{value / 1024**power:.1f}" for value in (used, limit) if value is not None]
    return f"{'/'.join(parts)} {unit}" if parts else ""


def bar_cells(fraction: float, width: int) -> int:
    """Return how many of a bar's cells are full; only a finished one is full to the end."""
    if fraction >= 1:
        return width
    return min(max(width - 1, 0), int(max(0.0, fraction) * width))
