"""What was measured, beside its target, as text and as sections of a page."""

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from math import comb
from pathlib import Path
from statistics import median

_PACKAGES = ("tensorflow", "keras", "textual", "plotext", "msgspec", "numpy")
_DOUBT = 0.05
_HEADINGS = ("what", "figure", "target")
_INTRODUCTION = (
    "Written by `make bench`, or section by section with `python -m tests.bench --only`. Both sides of a comparison "
    "are measured in turn (A B A B …), each in its own process. Figures are medians over the rounds; ratios are "
    "medians of the rounds' ratios, in brackets with the interval that holds the true median with 95 % confidence "
    "(with fewer than 6 rounds: the range). ✓: target met."
)


@dataclass(frozen=True, slots=True)
class Row:
    what: str  # what was measured
    figure: str  # with its unit
    target: str = ""  # what it should reach; empty if there is none
    met: bool | None = None  # whether it does; None without a target

    @property
    def cells(self) -> tuple[str, str, str]:
        return self.what, self.figure, self.target + {True: " ✓", False: " **missed**", None: ""}[self.met]


@dataclass(frozen=True, slots=True)
class Section:
    title: str
    how: str  # how its rows were measured
    rows: tuple[Row, ...]


def ratio_row(
    what: str, ours: Sequence[float], theirs: Sequence[float], least: float | None = None, most: float | None = None
) -> Row:
    """Compare two series that were measured in turn, round by round, with the smallest or the largest ratio allowed."""
    ratios = sorted(a / b for a, b in zip(ours, theirs, strict=True))
    middle, (low, high) = median(ratios), interval(ratios)
    figure = f"{middle:.3f} ({low:.3f}–{high:.3f})"
    if most is not None:
        return Row(what, figure, f"≤ {most:g}", middle <= most)
    if least is None:
        return Row(what, figure)
    return Row(what, figure, f"≥ {least:g}", middle >= least)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the narrowest pair of values, as far from both ends, that holds the true median with 95 % confidence.

    Each value is below the true median with a chance of one half, so the number of those that are is binomial.
    """
    ordered, count = sorted(values), len(values)
    outside, skipped = 2 / 2**count, 0
    while skipped + 1 < (count + 1) // 2 and (more := outside + 2 * comb(count, skipped + 1) / 2**count) <= _DOUBT:
        outside, skipped = more, skipped + 1
    return ordered[skipped], ordered[-1 - skipped]


def limit_row(what: str, value: float, most: float | None = None, unit: str = "s", digits: int = 2) -> Row:
    """Compare a figure with the most it may be."""
    figure = f"{value:.{digits}f} {unit}"
    if most is None:
        return Row(what, figure)
    return Row(what, figure, f"≤ {most:g} {unit}", value <= most)


def as_text(section: Section) -> str:
    table = [_HEADINGS, *((*row.cells[:2], row.cells[2].replace("*", "")) for row in section.rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    return "\n".join([section.title, *(f"  {line}" for line in lines)])


def as_markdown(section: Section, facts: Mapping[str, str]) -> str:
    """Return a section of the page, with what it was measured on."""
    measured = f"Measured: {'; '.join(f'{name} {value}' for name, value in facts.items())}."
    cells = [_HEADINGS, ("---",) * len(_HEADINGS), *(row.cells for row in section.rows)]
    return "\n\n".join((section.how, measured, "\n".join(f"| {' | '.join(line)} |" for line in cells)))


def with_sections(page: str, measured: dict[str, str]) -> str:
    """Return the page, which may be empty, with new sections in place of those of the same titles."""
    before = dict(part.split("\n\n", 1) for part in page.split("\n## ")[1:])
    sections = [f"## {title}\n\n{text.strip()}" for title, text in (before | measured).items()]
    return "\n\n".join(("# Benchmarks", _INTRODUCTION, *sections)) + "\n"


def machine_facts() -> dict[str, str]:
    """Say what the figures were measured on, and when."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line for line in lines if line.startswith("model name")] or [platform.processor() or "unknown"]
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "processor": f"{names[0].partition(':')[2].strip()}, {len(os.sched_getaffinity(0))} cores",
        "memory": f"{memory:.1f} GiB",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "Python": sys.version.split()[0],
        **{name: version(name) for name in _PACKAGES},
        "load before": f"{os.getloadavg()[0]:.2f}",
    }
