"""Makes foreign text safe to show: it cannot control the terminal or disguise other text.

Text is foreign if it comes from a file, a folder's listing, another process or user code. It is cleaned once, where it
enters the program, and nearly always clean already, which `str.isprintable` finds out quickly. What is replaced:

- White space other than the space becomes a space: the words beside it stay apart, and one text stays one line.
- Color codes (``ESC [ … m``) are removed: Keras, TensorFlow and progress bars print them, and a rest such as ``[31m``
  would only be noise.
- Every other control character (C0, DEL, C1), every invisible format character (bidirectional overrides, zero-width
  space, BOM, tag characters and so on) and every lone surrogate becomes U+FFFD: without a mark, two different names
  could look the same.
- U+200C and U+200D (the zero-width non-joiner and joiner) stay: Persian, Indic scripts and emoji need them. So do
  variation selectors, and the few Arabic format characters that are visible.

The types of foreign numbers are here, too: a damaged or hostile journal may have epoch 10**30.
"""

import re
from typing import Annotated, Any

from msgspec import Meta

MOST_COUNT = 2**53  # the largest whole number that a float64, and so a curve, holds exactly
MOST_REPLICAS = 16_384  # the largest TPU has 9,216 chips
MOST_METRICS = 200  # of a run; further ones are dropped

# Numbers that can be drawn and added. Metrics and learning rates are plain floats: they may be any number.
Count = Annotated[int, Meta(ge=0, le=MOST_COUNT)]
Measure = Annotated[float, Meta(ge=-1e15, le=1e15)]  # seconds, bytes per second and so on; not NaN

REPLACEMENT = "\ufffd"

LONGEST_TEXT = 20_000  # longer texts are cut off; this program writes none
DEEPEST = 64  # values nested more deeply are refused; this program writes none
# Compiled when they are first needed, which for most commands is never.
_COLOR = r"\x1b\[[0-9;:]*m"
_SPACE = r"[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]"
_LINE_END = r"\r\n?|[\v\f\x85\u2028\u2029]"
_UNSAFE = (
    "[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"  # controls
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # format characters
    "\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e007f]"
)


class TooDeepError(ValueError):
    """Values are nested too deeply."""


def printable(text: str) -> str:
    """Return a text, also one with lone surrogates, as one line that is safe to show."""
    if text.isprintable():
        return text
    return re.sub(_UNSAFE, REPLACEMENT, re.sub(_SPACE, " ", re.sub(_COLOR, "", text)))


def printable_lines(text: str) -> str:
    r"""Return a text of several lines that is safe to show; every kind of line end becomes ``\n``."""
    if text.isprintable():
        return text
    lines = re.sub(_LINE_END, "\n", text).split("\n")
    return "\n".join(map(printable, lines))


def printable_values(value: Any, longest: int = LONGEST_TEXT, *, keeps_lines: bool = False) -> Any:
    """Return plain values, as from JSON, with every text and key safe to show, cut off after so many characters.

    With `keeps_lines` texts keep their line feeds; keys never do. Raises `TooDeepError` for more than `DEEPEST` levels.
    """
    shown = printable_lines if keeps_lines else printable

    def clean(value: Any, levels: int) -> Any:
        if isinstance(value, str):
            return shown(value) if len(value) <= longest else shown(value[:longest]) + "…"
        if not isinstance(value, dict | list | tuple):
            return value
        if not levels:
            raise TooDeepError(f"nested more than {DEEPEST} levels deep")
        if isinstance(value, dict):
            return {printable(str(key))[:longest]: clean(inner, levels - 1) for key, inner in value.items()}
        return [clean(inner, levels - 1) for inner in value]

    return clean(value, DEEPEST)


def unsafe_character(text: str) -> str:
    """Return the first character that a setting may not contain, as ``U+001B``, or ""; tabs and line feeds are fine."""
    if text.isprintable():
        return ""
    found = re.search(_UNSAFE, text) or re.search(_SPACE, text.replace("\t", "").replace("\n", ""))
    return f"U+{ord(found[0]):04X}" if found else ""
