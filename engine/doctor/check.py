"""The result of a check. Checks are pure functions of recorded facts, with a module for each group of them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..findings import Severity
from ..machine.install import line_in_cell

if TYPE_CHECKING:
    from ..machine.environment import Environment

_WORDS = {
    Severity.OK: "ok",
    Severity.INFO: "note",
    Severity.WARNING: "warning",
    Severity.ERROR: "problem",
    Severity.UNKNOWN: "could not tell",
}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check."""

    check: str  # its name, such as ``tpu-held``
    title: str
    severity: Severity  # how much it matters; an error means that training here would fail
    text: str  # one or two sentences
    evidence: tuple[str, ...] = ()  # the files, variables and versions that were read
    command: str = ""  # the command to type next; empty if there is nothing to do

    @property
    def word(self) -> str:
        """The severity as reports and ``--json`` write it."""
        return _WORDS[self.severity]

    def as_dict(self) -> dict[str, object]:
        """Return the result as JSON holds it."""
        return {
            "check": self.check,
            "title": self.title,
            "verdict": self.word,
            "text": self.text,
            "evidence": list(self.evidence),
            "command": self.command,
        }


def install_command(facts: Environment, *packages: str) -> str:
    """Return the command that adds packages, which changes none that a notebook service has installed."""
    return line_in_cell(*packages) if facts.place.is_notebook else shlex.join(["pip", "install", *packages])


def not_checked(check: str, title: str, environment: Environment, probe: str) -> CheckResult:
    """Return the result of a check whose facts could not be read."""
    return CheckResult(check, title, Severity.UNKNOWN, f"Not checked: {environment.unanswered[probe]}.")
