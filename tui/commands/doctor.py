"""`tpu-console doctor`: describes this machine, what prevents training, and the command to run next."""

from __future__ import annotations

import json
import os
import textwrap
from typing import TYPE_CHECKING

import click

from ..terminal.output import say, width_of_output
from ..text.tables import fields
from .options import examples, json_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpu_console.engine.doctor.check import CheckResult
    from tpu_console.engine.doctor.doctor import Report

_COLOURS = {"note": "cyan", "warning": "yellow", "problem": "red", "could not tell": "magenta"}
_INDENT = " " * 9


@click.command(
    epilog=examples(
        "tpu-console doctor",
        "tpu-console doctor --json | jq '.findings[] | .command'",
        done="no problem found; there may be notes and warnings",
        failed="at least one problem was found",
    )
)
@json_option("Print a JSON object.")
def doctor(as_json: bool) -> int:
    """Check this machine.

    Reports the environment (Colab, Kaggle, a TPU VM, GKE or other), accelerators, package conflicts, processes that
    use the TPU, disks and the terminal, each with the command to run next. Changes nothing; takes at most 3 seconds.
    """
    from tpu_console.engine.doctor.doctor import examine
    from tpu_console.engine.machine.environment import look_around

    report = examine(look_around())
    width = width_of_output()
    if as_json:
        say([json.dumps(report.as_dict(), indent=2, ensure_ascii=False)])
    else:
        coloured = width is not None and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        say(report_lines(report, width, coloured=coloured))
    return 0 if report.is_well else 1


def report_lines(report: Report, width: int | None, *, coloured: bool) -> list[str]:
    """Write a report as lines.

    Args:
        report: The doctor's report.
        width: Width of a line in cells; None for no limit.
        coloured: Whether to colour the severities.
    """
    lines = [line for name, value in report.header for line in _row(name, value, width)]
    for group in report.groups:
        lines += ["", group.name]
        for result in group.results:
            lines += _lines_of(result, width, coloured=coloured)
    return [*lines, "", report.summary]


def severity_label(result: CheckResult) -> str:
    """Return a severity in at most seven letters."""
    return "unknown" if result.severity == "unknown" else result.word


def _row(name: str, value: str, width: int | None) -> list[str]:
    wrapped = value if width is None else "\n".join(textwrap.wrap(value, max(20, width - 13)))
    return fields([(f"{name:<11}", wrapped)], indent="")


def _lines_of(result: CheckResult, width: int | None, *, coloured: bool) -> Iterator[str]:
    label = severity_label(result)
    is_ok = result.severity == "ok"
    read = "; ".join(result.evidence)
    aside = f" ({read})" if is_ok and read else ""
    first, *others = _wrapped(f"{result.title}: {result.text}{aside}", width)
    colour = _COLOURS.get(result.word)
    painted = click.style(label, fg=colour, bold=True) if coloured and colour else label
    yield f"{painted}{' ' * (len(_INDENT) - len(label))}{first}"
    yield from (_INDENT + line for line in others)
    if read and not is_ok:
        yield from (_INDENT + line for line in _wrapped(f"found: {read}", width))
    if result.command:  # never wrapped, so that it can be copied
        yield f"{_INDENT}run: {result.command}"


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [text]
    return textwrap.wrap(text, max(30, width - len(_INDENT)), break_on_hyphens=False)
