"""Lays out the doctor's report, for the command and the screen."""

import sys
import textwrap

from msgspec import Struct

from tpu_console.engine.doctor.doctor import Report, word_of
from tpu_console.engine.findings import Severity

from .tables import wrapped

_LABEL_CELLS = 9
GROUP = "group"


class ReportLine(Struct, frozen=True):
    """One line of the report."""

    text: str
    label: str = ""  # what it begins with, padded to a column
    look: str = ""  # what its label, or a line without one, is colored by: the severity's word, or `GROUP`

    def __str__(self) -> str:
        return f"{self.label}{self.text}"


def report_lines(report: Report, width: int | None) -> list[ReportLine]:
    """Return the report in lines of at most `width` cells, None for no limit; commands to copy are never wrapped."""
    room = sys.maxsize if width is None else max(30, width - _LABEL_CELLS)
    lines = [
        ReportLine(line) for name, value in report.header.items() for line in wrapped(name, value, width or sys.maxsize)
    ]
    for group, results in report.groups.items():
        lines += [ReportLine(""), ReportLine(group, look=GROUP)]
        for result in results:
            read, is_ok = "; ".join(result.evidence), result.severity is Severity.OK
            label = "unknown" if result.severity is Severity.UNKNOWN else word_of(result)
            aside = f" ({read})" if is_ok and read else ""
            texts = [f"{result.title}: {result.text}{aside}", f"found: {read}" if read and not is_ok else ""]
            first, *others = [line for text in texts for line in textwrap.wrap(text, room, break_on_hyphens=False)]
            others += [f"run: {result.remedy}"] if result.remedy else []
            lines.append(ReportLine(first, f"{label:<{_LABEL_CELLS}}", word_of(result)))
            lines += [ReportLine(line, " " * _LABEL_CELLS) for line in others]
    return [*lines, ReportLine(""), ReportLine(report.summary)]
