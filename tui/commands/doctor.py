"""`tpu-console doctor`: describes this machine, what prevents training, and the command to run next."""

from __future__ import annotations

import os
import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpu_console.engine.doctor.check import word_of

from ..terminal.output import complain, say, say_json, width_of_output
from ..text.tables import fields
from .options import complete_accelerator, examples, json_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from tpu_console.engine.doctor.doctor import Report
    from tpu_console.engine.findings import Finding

_COLOURS = {"note": "cyan", "warning": "yellow", "problem": "red", "could not tell": "magenta"}
_INDENT = " " * 9
_LIMIT_S = 300.0
_ACCELERATOR = re.compile(r"cpu|gpu|tpu|sim:[1-9]\d?")


@click.command(
    epilog=examples(
        "tpu-console doctor",
        "tpu-console doctor --json | jq '.findings[] | .command'",
        "tpu-console doctor --train",
        "tpu-console doctor --train --accelerator sim:8 --json",
        done="no problem found; there may be notes and warnings",
        failed="at least one problem was found",
    )
)
@click.option("--train", is_flag=True, help="Train digits on every accelerator and backend.")
@click.option(
    "--accelerator",
    "accelerators",
    metavar="A",
    multiple=True,
    shell_complete=complete_accelerator,
    help="With --train, what to test: gpu, tpu, cpu or sim:N; repeatable. [default: all found, else cpu]",
)
@click.option(
    "--limit",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=_LIMIT_S,
    show_default=True,
    help="With --train, the time for one accelerator and backend.",
)
@json_option("Print a JSON object.")
def doctor(train: bool, accelerators: tuple[str, ...], limit: float, as_json: bool) -> int:
    """Check this machine.

    Reports the environment (Colab, Kaggle, a TPU VM, GKE or other), accelerators, package conflicts, processes that
    use the TPU, disks and the terminal, each with the command to run next. Changes nothing; takes at most 3 seconds.

    With --train it also trains a small model on every accelerator with every backend, which takes a few minutes.
    """
    from tpu_console.engine.doctor.doctor import examine
    from tpu_console.engine.machine.environment import look_around

    if accelerators and not train:
        raise click.UsageError("--accelerator needs --train.")
    report = examine(look_around())
    more: dict[str, Any] = {}
    last: list[str] = []
    was_interrupted = False
    if train:
        report, more, last, was_interrupted = _trained(report, accelerators, limit)
    width = width_of_output()
    if as_json:
        say_json({**report.as_dict(), **more})
    else:
        coloured = width is not None and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        say(report_lines(report, width, coloured=coloured))
    complain(last)
    return 130 if was_interrupted else 0 if report.is_well else 1


def _trained(
    report: Report, accelerators: Sequence[str], limit: float
) -> tuple[Report, dict[str, Any], list[str], bool]:
    """Train; return the whole report, what ``--json`` adds, the last lines, and whether Ctrl-C ended it."""
    import shutil
    import tempfile

    from tpu_console.engine.doctor.self_test import legs_of
    from tpu_console.engine.machine.devices import detect_hardware
    from tpu_console.engine.storage.paths import HOME_VARIABLE

    from ..jobs.self_test import SelfTest
    from ..text.numbers import duration, plural

    if unknown := [name for name in accelerators if not _ACCELERATOR.fullmatch(name)]:
        raise click.UsageError(f"--accelerator: '{unknown[0]}' is not cpu, gpu, tpu or sim:N.")
    hardware = detect_hardware()
    legs = legs_of(hardware, accelerators)
    folder = Path(tempfile.mkdtemp(prefix="tpu-console-doctor-"))
    # These runs, and their records of this machine, are kept apart from the user's.
    os.environ[HOME_VARIABLE] = str(folder)
    complain([f"{plural(len(legs), 'training')}, each of at most {duration(limit)}; Ctrl-C stops."])
    test = SelfTest(legs, hardware, limit)
    test.run()
    last: list[str] = []
    if replace(report, groups=tuple(test.groups)).is_well and not test.was_interrupted:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        last = [f"The runs with their logs are kept in {folder}."]
    whole = replace(report, groups=(*report.groups, *test.groups))
    return whole, {"trainings": test.figures}, last, test.was_interrupted


def report_lines(report: Report, width: int | None, *, coloured: bool) -> list[str]:
    """Write a report as lines of at most `width` cells, None for no limit."""
    lines = [line for name, value in report.header for line in _row(name, value, width)]
    for group in report.groups:
        lines += ["", group.name]
        for result in group.results:
            lines += _lines_of(result, width, coloured=coloured)
    return [*lines, "", report.summary]


def severity_label(result: Finding) -> str:
    """Return a severity in at most seven letters."""
    return "unknown" if result.severity == "unknown" else word_of(result)


def _row(name: str, value: str, width: int | None) -> list[str]:
    wrapped = value if width is None else "\n".join(textwrap.wrap(value, max(20, width - 13)))
    return fields([(f"{name:<11}", wrapped)], indent="")


def _lines_of(result: Finding, width: int | None, *, coloured: bool) -> Iterator[str]:
    label = severity_label(result)
    is_ok = result.severity == "ok"
    read = "; ".join(result.evidence)
    aside = f" ({read})" if is_ok and read else ""
    first, *others = _wrapped(f"{result.title}: {result.text}{aside}", width)
    colour = _COLOURS.get(word_of(result))
    painted = click.style(label, fg=colour, bold=True) if coloured and colour else label
    yield f"{painted}{' ' * (len(_INDENT) - len(label))}{first}"
    yield from (_INDENT + line for line in others)
    if read and not is_ok:
        yield from (_INDENT + line for line in _wrapped(f"found: {read}", width))
    if result.remedy:  # never wrapped, so that it can be copied
        yield f"{_INDENT}run: {result.remedy}"


def _wrapped(text: str, width: int | None) -> list[str]:
    if width is None:
        return [text]
    return textwrap.wrap(text, max(30, width - len(_INDENT)), break_on_hyphens=False)
