"""Something a person should know, such as the plan, the preflight and the doctor report it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Severity(StrEnum):
    """How much a finding matters, the most severe first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know, with the remedy.

    Args:
        severity: An error means that the run would fail.
        text: One or two sentences.
        layer: The layer it is about; empty for the whole model.
        remedy: What to do; empty where nothing is to be done.
        key: Dotted key of the configuration it is about; empty for none.
    """

    severity: Severity
    text: str
    layer: str = ""
    remedy: str = ""
    key: str = ""


def most_severe_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return findings in the order in which a person should read them; equally severe ones keep their order."""
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))
