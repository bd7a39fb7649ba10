"""The doctor's checks: pure functions from recorded facts to findings, a module for each group of them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..machine.environment import Environment


class Verdict(StrEnum):
    """What a check came to."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "could not tell"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one check.

    Args:
        check: Its name, such as ``tpu-held``.
        title: What was checked, in a few words.
        verdict: What it came to.
        text: One or two sentences for a person.
        evidence: The files, variables and versions that were read.
        command: What to type next; empty where there is nothing to do.
    """

    check: str
    title: str
    verdict: Verdict
    text: str
    evidence: tuple[str, ...] = ()
    command: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return it as JSON holds it."""
        return {
            "check": self.check,
            "title": self.title,
            "verdict": self.verdict.value,
            "text": self.text,
            "evidence": list(self.evidence),
            "command": self.command,
        }


def could_not_tell(check: str, title: str, environment: Environment, probe: str) -> Finding:
    """Make the finding of a check whose probe gave no answer."""
    return Finding(check, title, Verdict.UNKNOWN, f"This was not measured: {environment.unanswered[probe]}.")
