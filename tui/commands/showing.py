"""`tpu-console runs show`: everything about one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tpu_console.engine.sanitize import printable

from ..terminal.output import say, say_json, width_of_output
from .options import examples, json_option, run_argument

if TYPE_CHECKING:
    from tpu_console.engine.runs.annotations import Annotations
    from tpu_console.engine.runs.run_directory import RunDirectory

    from ..following.shown_facts import ShownRun

_SECTIONS = (
    "", "Settings", "Machine", "Time", "Epochs", "Classes", "Steering", "Alerts", "Notes", "Files", "Failure"
)  # fmt: skip
_MISTAKES = 5


@click.command(
    epilog=examples(
        "tpu-console runs show",
        "tpu-console runs show 20261120-133100-digits-cnn",
        "tpu-console runs show --json | jq '.epoch_records[-1]'",
    )
)
@run_argument
@json_option("Print a JSON object.")
def show(name: str | None, as_json: bool) -> int:
    """Show everything about RUN, by default the newest.

    Prints its settings, machine, times, epochs, class scores and files, and the error if it failed.
    """
    from tpu_console.engine.runs.annotations import read_annotations
    from tpu_console.engine.runs.run_directory import find_run

    from ..following.shown_facts import find_shown

    run = find_run(name)
    shown = find_shown(run)
    if shown is None:
        from ..following.shown_reading import read_shown

        shown = read_shown(run)
    written = read_annotations(run.path)
    if as_json:
        say_json(_as_dict(run, shown, written))
    else:
        say(_sections(run, shown, written))
    return 0


def _sections(run: RunDirectory, shown: ShownRun, written: Annotations) -> list[str]:
    from ..text.tables import fields, paragraphs

    bodies = {title: [*fields(facts.pairs), *facts.lines] for title, facts in shown.sections.items()}
    bodies |= {"": _headline(run, shown, written), "Epochs": _epochs(shown), "Classes": _classes(shown)}
    bodies["Files"] = _files(run)
    return paragraphs([*([title] if title else []), *bodies[title]] for title in _SECTIONS if bodies[title])


def _headline(run: RunDirectory, shown: ShownRun, written: Annotations) -> list[str]:
    from ..text.numbers import local_time
    from ..text.tables import fields

    texts = (("title", written.title), ("tags", " ".join(written.tags)), ("note", written.note))
    when = "" if shown.started_at is None else f"{local_time(shown.started_at):%Y-%m-%d %H:%M:%S}, "
    pairs = []
    for name, text in shown.head:
        pairs.append((name, f"{when}{text}" if name == "started" else text))
        if name == "preset":
            pairs += [(name, text) for name, text in texts if text]
    return [f"{run.run_id}{' (archived)' if written.archived else ''}", *fields(pairs)]


def _epochs(shown: ShownRun) -> list[str]:
    from ..text.tables import Column, table

    if not shown.epochs:
        return []
    titles, *rows = shown.epochs
    return [f"  {line}" for line in table([Column(title, 0, right=True) for title in titles], rows, None)]


def _classes(shown: ShownRun) -> list[str]:
    """Show the class scores and confusions that fit on a terminal."""
    if shown.values["classes"] is None:
        return [f"  {shown.report_problem}"] if shown.report_problem else []
    from tpu_console.engine.runs.class_report import report_from

    from ..text.confusion import headline, matrix_lines, mistake_text, score_lines
    from ..text.tables import paragraphs

    report = report_from(shown.values["classes"])
    width = width_of_output()
    room = None if width is None else width - 2
    blocks = [
        block
        for output in report.of_outputs
        for block in (
            [headline(output)],
            score_lines(output, room),
            matrix_lines(output, room),
            [mistake_text(one) for one in output.mistakes[:_MISTAKES]],
        )
    ]
    return paragraphs([f"  {line}" for line in block] for block in blocks)


def _files(run: RunDirectory) -> list[str]:
    from tpu_console.engine.storage.paths import user_path

    from ..text.outputs import output_pairs
    from ..text.tables import fields

    return fields([("folder", user_path(run.path)), *output_pairs(run)])


def _as_dict(run: RunDirectory, shown: ShownRun, written: Annotations) -> dict[str, Any]:
    from dataclasses import asdict

    from tpu_console.engine.storage.files import folder_size

    from ..text.numbers import local_time
    from ..text.outputs import output_places

    started = None if shown.started_at is None else local_time(shown.started_at).isoformat(timespec="seconds")
    return {
        **shown.values,
        **asdict(written),
        "size_bytes": folder_size(run.path),
        "started": started,
        "files": {name: printable(str(path)) for name, path in output_places(run).items()},
    }
