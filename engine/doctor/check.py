"""The result of a check. Checks are pure functions of recorded facts, with a module for each group of them."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ..findings import Finding, Severity
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


def result_of(
    check: str, title: str, severity: Severity, text: str, evidence: tuple[str, ...] = (), command: str = ""
) -> Finding:
    """Return the result of a check: its name, such as ``tpu-held``, and the command to type next, if there is one."""
    return Finding(severity, text, remedy=command, key=check, title=title, evidence=evidence)


def word_of(result: Finding) -> str:
    """Return the severity as reports and ``--json`` write it."""
    return _WORDS[result.severity]


def as_dict(result: Finding) -> dict[str, object]:
    """Return the result as JSON holds it."""
    return {
        "check": result.key,
        "title": result.title,
        "verdict": word_of(result),
        "text": result.text,
        "evidence": list(result.evidence),
        "command": result.remedy,
    }


def install_command(facts: Environment, *packages: str) -> str:
    """Return the command that adds packages, which changes none that a notebook service has installed."""
    return line_in_cell(*packages) if facts.place.is_notebook else shlex.join(["pip", "install", *packages])


def not_checked(check: str, title: str, environment: Environment, probe: str) -> Finding:
    """Return the result of a check whose facts could not be read."""
    return result_of(check, title, Severity.UNKNOWN, f"Not checked: {environment.unanswered[probe]}.")
