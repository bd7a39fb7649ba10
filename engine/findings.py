"""What the plan, the preflight and the doctor report, and how much it matters."""

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
    OK = "ok"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know, with the remedy."""

    severity: Severity  # an error means that the run would fail
    text: str
    layer: str = ""  # the layer it is about; empty for the whole model
    remedy: str = ""  # what to do; empty for nothing
    key: str = ""  # the dotted configuration key it is about; empty for none


def most_severe_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity; equally severe ones keep their order."""
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))
