"""The terminal according to its variables: encoding, colours, and whether it survives a lost connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sources import Sources

_TRUE_COLOURS, _MANY, _FEW = 1 << 24, 256, 8


@dataclass(frozen=True, slots=True)
class Shell:
    """The terminal, according to its variables."""

    is_terminal: bool
    locale: str  # the variable that decides the encoding, such as ``LANG=C.UTF-8``; empty if none is set
    is_utf8: bool  # whether the encoding is UTF-8, which Python also uses without a locale
    colours: int
    colour_evidence: str  # the variable that decides the colours
    ssh: str  # the variable that shows an SSH connection; empty for none
    multiplexer: str  # ``tmux`` or ``screen`` when running inside one
    installed: tuple[str, ...]  # which of the two are installed


def find_shell(sources: Sources) -> Shell:
    """Read the terminal's variables."""
    environ = sources.environ
    deciding = next((name for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "")
    value = environ.get(deciding, "C.UTF-8").lower()
    colours, evidence = _colours(sources)
    multiplexer = "tmux" if environ.get("TMUX") else "screen" if environ.get("STY") else ""
    return Shell(
        is_terminal=sources.is_terminal,
        locale=f"{deciding}={environ[deciding]}" if deciding else "",
        is_utf8="utf-8" in value or "utf8" in value,
        colours=colours,
        colour_evidence=evidence,
        ssh=next((name for name in ("SSH_CONNECTION", "SSH_TTY") if environ.get(name)), ""),
        multiplexer=multiplexer,
        installed=tuple(name for name in ("tmux", "screen") if sources.which(name)),
    )


def _colours(sources: Sources) -> tuple[int, str]:
    environ = sources.environ
    term = environ.get("TERM", "")
    if environ.get("NO_COLOR"):
        return 0, f"NO_COLOR={environ['NO_COLOR']}"
    if term in ("", "dumb"):
        return 0, f"TERM={term}" if term else "TERM is not set"
    if (colorterm := environ.get("COLORTERM", "")) in ("truecolor", "24bit"):
        return _TRUE_COLOURS, f"COLORTERM={colorterm}"
    return (_MANY if "256" in term or "direct" in term else _FEW), f"TERM={term}"
