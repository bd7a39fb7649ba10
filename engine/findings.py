"""What the plan, the preflight and the doctor report, and how much it matters."""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """How much a finding matters, the most severe first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    OK = "ok"
    UNKNOWN = "unknown"


class Finding(Struct, frozen=True):
    """One thing to know, with the remedy."""

    severity: Severity  # an error means that the run would fail
    text: str  # one or two sentences
    layer: str = ""  # the layer it is about; empty for the whole model
    remedy: str = ""  # what to do, in a sentence or, from the doctor, as a command; empty for nothing
    key: str = ""  # the dotted configuration key that it is about, or the check's name; empty for none
    title: str = ""  # the check's title
    evidence: tuple[str, ...] = ()  # where it was found: lines of code, files, variables, versions
    is_change: bool = False  # whether it is a change that was tried, and with which a step fits


def most_severe_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity; equally severe ones keep their order."""
    order = list(Severity)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.severity)))
