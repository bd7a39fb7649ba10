"""Runs every check on the facts about this machine, and makes the report."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

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


class Report(Struct, frozen=True):
    """What the doctor reports."""

    header: dict[str, str]  # the place, its accelerators, cores and software, by name
    groups: dict[str, tuple[Finding, ...]]  # the results that belong together, by the group's name

    @property
    def results(self) -> tuple[Finding, ...]:
        """Every result, in order."""
        return tuple(result for group in self.groups.values() for result in group)

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
        findings = [
            {
                "group": group,
                "check": result.key,
                "title": result.title,
                "verdict": word_of(result),
                "text": result.text,
                "evidence": list(result.evidence),
                "command": result.remedy,
            }
            for group, results in self.groups.items()
            for result in results
        ]
        return {"ok": self.is_well, "environment": self.header, "findings": findings}


def examine(facts: Environment) -> Report:
    """Run every check."""
    groups = {}
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
            groups[group] = tuple(results)
    header = {"where": str(facts.place)}
    seen = [str(one) for one in (facts.tpu, facts.gpus) if one is not None]
    if seen or "gpus" not in facts.unanswered:
        header["accelerator"] = "; ".join(seen) or "none found"
    if (resources := facts.resources) is not None:
        memory = f", {resources.memory_bytes / 1e9:.1f} GB of memory" if resources.memory_bytes else ""
        header["cores"] = f"{resources.cores:g}{memory}"
    if (packages := facts.packages) is not None:
        versions = [f"{name} {packages.version(name)}" for name in _SHOWN if packages.version(name)]
        header["software"] = ", ".join([f"Python {packages.python}", *versions])
    return Report(header, groups)
