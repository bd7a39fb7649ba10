"""The doctor: looks around, runs every check, and says what was found, why, and what to type next.

Every check is a pure function of `engine.machine.environment.Environment`; nothing is changed, ended or removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import gpu, machine, packages, tpu
from .check import Finding, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..machine.environment import Environment

_GROUPS: tuple[tuple[str, Sequence[Callable[[Environment], Finding | list[Finding] | None]]], ...] = (
    ("Accelerator", (*tpu.CHECKS, *gpu.CHECKS)),
    ("Packages", packages.CHECKS),
    ("Machine", machine.MACHINE_CHECKS),
    ("Terminal", machine.TERMINAL_CHECKS),
)
_SHOWN = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "keras", "jax", "libtpu")


@dataclass(frozen=True, slots=True)
class Group:
    """Findings that belong together.

    Args:
        name: Such as ``Accelerator``.
        findings: At least one.
    """

    name: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Report:
    """What the doctor says.

    Args:
        header: Where this is and what it has, as names and values.
        groups: The findings.
    """

    header: tuple[tuple[str, str], ...]
    groups: tuple[Group, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Every finding, in order."""
        return tuple(finding for group in self.groups for finding in group.findings)

    @property
    def is_well(self) -> bool:
        """Whether no check found a problem."""
        return all(finding.verdict is not Verdict.PROBLEM for finding in self.findings)

    def count(self, verdict: Verdict) -> int:
        """Return how many findings have a verdict."""
        return sum(finding.verdict is verdict for finding in self.findings)

    @property
    def summary(self) -> str:
        """How many findings have which verdict, the worst first."""
        parts = []
        for verdict, noun in ((Verdict.PROBLEM, "problem"), (Verdict.WARNING, "warning"), (Verdict.NOTE, "note")):
            if count := self.count(verdict):
                parts.append(f"{count} {noun}{'s' if count > 1 else ''}")
        if unknown := self.count(Verdict.UNKNOWN):
            parts.append(f"{unknown} could not be told")
        return ", ".join([*parts, f"{self.count(Verdict.OK)} ok"]) + "."

    def as_dict(self) -> dict[str, object]:
        """Return it as ``--json`` writes it."""
        return {
            "ok": self.is_well,
            "environment": dict(self.header),
            "findings": [{"group": group.name} | f.as_dict() for group in self.groups for f in group.findings],
        }


def examine(facts: Environment) -> Report:
    """Run every check.

    Args:
        facts: What `engine.machine.environment.look_around` found.
    """
    groups = []
    for name, checks in _GROUPS:
        findings: list[Finding] = []
        for check in checks:
            found = check(facts)
            findings += found if isinstance(found, list) else [found] if found is not None else []
        if findings:
            groups.append(Group(name, tuple(findings)))
    return Report(_header(facts), tuple(groups))


def _header(facts: Environment) -> tuple[tuple[str, str], ...]:
    rows = [("where", str(facts.place))]
    seen = [str(facts.tpu)] if facts.tpu is not None else []
    seen += [str(facts.gpus)] if facts.gpus is not None else []
    if not seen and "gpus" not in facts.unanswered:
        seen = ["none found"]
    if seen:
        rows.append(("accelerator", "; ".join(seen)))
    if (resources := facts.resources) is not None:
        memory = f", {resources.memory_bytes / 1e9:.1f} GB of memory" if resources.memory_bytes else ""
        rows.append(("cores", f"{resources.cores:g}{memory}"))
    if (found := facts.packages) is not None:
        versions = [f"{name} {found.version(name)}" for name in _SHOWN if found.version(name)]
        rows.append(("software", ", ".join([f"Python {found.python}", *versions])))
    return tuple(rows)
