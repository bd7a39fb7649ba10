"""Runs every check on the facts about this machine.

Every check is a pure function of `engine.machine.environment.Environment`; nothing on the machine is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..findings import Finding, Severity
from . import machine, tpu
from .check import as_dict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..machine.environment import Environment

_GROUPS: tuple[tuple[str, Sequence[Callable[[Environment], Finding | list[Finding] | None]]], ...] = (
    ("Accelerator", (*tpu.CHECKS, *machine.GPU_CHECKS)),
    ("Packages", machine.PACKAGE_CHECKS),
    ("Machine", machine.MACHINE_CHECKS),
    ("Terminal", machine.TERMINAL_CHECKS),
)
_SHOWN = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "keras", "jax", "libtpu")


@dataclass(frozen=True, slots=True)
class Group:
    """Results that belong together."""

    name: str
    results: tuple[Finding, ...]


@dataclass(frozen=True)
class Report:
    """What the doctor reports."""

    header: tuple[tuple[str, str], ...]  # the place, its accelerators, cores and software, as names and values
    groups: tuple[Group, ...]

    @property
    def results(self) -> tuple[Finding, ...]:
        """Every result, in order."""
        return tuple(result for group in self.groups for result in group.results)

    @property
    def is_well(self) -> bool:
        """Whether no check found a problem."""
        return all(result.severity is not Severity.ERROR for result in self.results)

    def count(self, severity: Severity) -> int:
        """Count the results of a severity."""
        return sum(result.severity is severity for result in self.results)

    @property
    def summary(self) -> str:
        """The number of results of each severity, the worst first."""
        parts = []
        for severity, noun in ((Severity.ERROR, "problem"), (Severity.WARNING, "warning"), (Severity.INFO, "note")):
            if count := self.count(severity):
                parts.append(f"{count} {noun}{'s' if count > 1 else ''}")
        if unknown := self.count(Severity.UNKNOWN):
            parts.append(f"{unknown} unknown")
        return ", ".join([*parts, f"{self.count(Severity.OK)} ok"]) + "."

    def as_dict(self) -> dict[str, object]:
        """Return it as ``--json`` writes it."""
        return {
            "ok": self.is_well,
            "environment": dict(self.header),
            "findings": [{"group": group.name} | as_dict(f) for group in self.groups for f in group.results],
        }


def examine(facts: Environment) -> Report:
    """Run every check."""
    groups = []
    for name, checks in _GROUPS:
        results: list[Finding] = []
        for check in checks:
            found = check(facts)
            results += found if isinstance(found, list) else [found] if found is not None else []
        if results:
            groups.append(Group(name, tuple(results)))
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
