"""Runs every check on the facts about this machine.

Every check is a pure function of `engine.machine.environment.Environment`; nothing on the machine is changed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..findings import Finding, Severity
from .checks import CHECKS, UnansweredError, unknown

if TYPE_CHECKING:
    from ..machine.environment import Environment

_WORDS = {
    Severity.OK: "ok",
    Severity.INFO: "note",
    Severity.WARNING: "warning",
    Severity.ERROR: "problem",
    Severity.UNKNOWN: "could not tell",
}
_SHOWN = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "keras", "jax", "libtpu")


def word_of(result: Finding) -> str:
    """Return the severity as reports and ``--json`` write it."""
    return _WORDS[result.severity]


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

    @property
    def summary(self) -> str:
        """The number of results of each severity, the worst first."""
        counts = Counter(result.severity for result in self.results)
        parts = [
            f"{counts[severity]} {_WORDS[severity]}{'s' if counts[severity] > 1 else ''}"
            for severity in (Severity.ERROR, Severity.WARNING, Severity.INFO)
            if counts[severity]
        ]
        parts += [f"{counts[Severity.UNKNOWN]} unknown"] if counts[Severity.UNKNOWN] else []
        return ", ".join([*parts, f"{counts[Severity.OK]} ok"]) + "."

    def as_dict(self) -> dict[str, object]:
        """Return it as ``--json`` writes it."""
        return {
            "ok": self.is_well,
            "environment": dict(self.header),
            "findings": [
                {
                    "group": group.name,
                    "check": result.key,
                    "title": result.title,
                    "verdict": word_of(result),
                    "text": result.text,
                    "evidence": list(result.evidence),
                    "command": result.remedy,
                }
                for group in self.groups
                for result in group.results
            ],
        }


def examine(facts: Environment) -> Report:
    """Run every check."""
    groups = []
    for group, checks in CHECKS.items():
        results: list[Finding] = []
        for key, title, check in checks:
            try:
                found = check(facts)
            except UnansweredError as error:
                found = unknown(str(error))
            several = found if isinstance(found, list) else [found] if found is not None else []
            results += [replace(one, key=one.key or key, title=one.title or title) for one in several]
        if results:
            groups.append(Group(group, tuple(results)))
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
