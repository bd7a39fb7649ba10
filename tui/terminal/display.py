"""What a terminal shows: themes, every screen in ASCII, and a call for attention by its bell."""

from contextlib import suppress
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

from tpu_console.engine.sanitize import printable
from tpu_console.engine.storage.files import make_private_folder, read_text, write_whole
from tpu_console.engine.storage.paths import runs_folder

from .output import LOOKALIKES

_COLORS = {  # of the dark and the light theme
    "primary": ("#5ca7ff", "#0058be"),
    "secondary": ("#3d6d9e", "#4a7fb5"),
    "accent": ("#7ab8ff", "#0058be"),
    "foreground": ("#d7dde5", "#1d242c"),
    "background": ("#0f1318", "#f7f8fa"),
    "surface": ("#171c23", "#eceff3"),
    "panel": ("#1e252e", "#e2e6ec"),
    "success": ("#5ed08c", "#0a6e3c"),
    "warning": ("#f0b454", "#8a5a00"),
    "error": ("#ff6e6e", "#b30018"),
    "footer-background": ("#171c23", "#e6eaf0"),
    "footer-key-foreground": ("#7ab8ff", "#0058be"),
    "footer-description-foreground": ("#a9b4c0", "#4a5561"),
}


def _theme(name: str, colors: dict[str, str]) -> Theme:
    variables = {key: colors.pop(key) for key in [*colors] if key.startswith("footer-")}
    shades: dict[str, Any] = colors
    return Theme(name, dark=name == "console-dark", variables=variables, **shades)


DARK = _theme("console-dark", {key: dark for key, (dark, _) in _COLORS.items()})
LIGHT = _theme("console-light", {key: light for key, (_, light) in _COLORS.items()})


def kept_theme() -> str:
    """Return the name of the theme that was chosen last; empty if none was."""
    with suppress(OSError, ValueError):
        return read_text(_theme_file(), 200).strip()
    return ""


def keep_theme(name: str) -> None:
    """Keep a theme for the next time."""
    with suppress(OSError):
        make_private_folder(_theme_file().parent)
        write_whole(_theme_file(), name, is_synced=False)


def _theme_file() -> Path:
    return runs_folder().parent / "theme"


class AsciiOnly(LineFilter):
    """Replaces every other character by a similar ASCII character or a question mark."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002  Textual's signature
        """Return a line's segments in ASCII, as wide as before."""
        return [
            segment if segment.text.isascii() else Segment(in_ascii(segment.text), segment.style, segment.control)
            for segment in segments
        ]


_LOOKALIKES = {**LOOKALIKES, "★": "@"}  # not *, of which curves consist


def in_ascii(text: str) -> str:
    """Return a text in ASCII, as wide as before."""
    return "".join(c if c.isascii() else _LOOKALIKES.get(c, "?" * cell_len(c)) for c in text)


def attention(text: str) -> str:
    """Return the control sequence: the bell, and a notification with a text."""
    return f"\a\x1b]9;{printable(text)[:200]}\x1b\\"
