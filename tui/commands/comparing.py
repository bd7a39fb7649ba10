"""`tpu-console runs compare`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tpu_console.engine.errors import ConsoleError

from ..terminal.output import say, width_of_output
from .opening import has_terminal, open_console
from .options import complete_run, examples, screen_options

if TYPE_CHECKING:
    from tpu_console.engine.runs.run_directory import RunDirectory

    from .opening import Markers


@click.command(
    epilog=examples(
        "tpu-console runs compare",
        "tpu-console runs compare 101500-digits 143000-digits",
        "tpu-console runs compare digits-a digits-b --metric val_loss --csv > runs.csv",
        "tpu-console runs compare --html > runs.html",
    )
)
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@click.option("--metric", metavar="NAME", default="", help="Compare the runs by this metric. [default: one they share]")
@click.option("--json", "form", flag_value="json", help="Print a JSON object.")
@click.option("--csv", "form", flag_value="csv", help="Print one row per run as CSV.")
@click.option("--markdown", "form", flag_value="markdown", help="Print Markdown tables.")
@click.option("--html", "form", flag_value="html", help="Print one HTML page with interactive plots.")
@screen_options
def compare(names: tuple[str, ...], metric: str, form: str | None, markers: Markers | None, theme: str | None) -> int:
    """Compare 2 to 20 runs: their curves, their results, and the settings that differ.

    With only one RUN, it is compared with the newest other runs of its preset; without any, the newest run is. On a
    terminal this opens a screen with the curves; otherwise it prints the tables.
    """
    if form == "html" and sys.stdout.isatty():
        raise ConsoleError(
            "The page has 5 MB, which is too much for a terminal.",
            remedy="Write it into a file: tpu-console runs compare --html > runs.html",
        )
    runs = _runs(names)
    if form is None and has_terminal():
        return open_console(compared=runs, metric=metric, markers=markers, theme=theme)
    from ..following import comparison_tables as tables
    from ..following.comparison import read_comparison

    comparison = read_comparison(runs, metric)
    if form == "json":
        say([tables.as_json(comparison)])
    elif form == "csv":
        say([tables.as_csv(comparison)])
    elif form == "html":
        from .comparison_html import as_html

        sys.stdout.buffer.write(as_html(comparison).encode())  # UTF-8, as the page says, whatever the locale
        sys.stdout.flush()
    elif form == "markdown":
        say(tables.as_markdown(comparison))
    else:
        say(tables.as_text(comparison, width_of_output()))
    return 0


def _runs(names: tuple[str, ...]) -> list[RunDirectory]:
    """Return the runs to compare; raise `ConsoleError` if a name is unclear, or the runs are too few or too many."""
    from tpu_console.engine.runs.run_directory import find_run

    from ..following.comparison import MOST_RUNS, similar_runs

    runs = list(dict.fromkeys(find_run(name) for name in names or (None,)))
    if len(runs) == 1:
        runs = similar_runs(runs[0])
        if len(runs) == 1:
            raise ConsoleError(
                f"There is no other run to compare with {runs[0].run_id}.",
                why="No other run has its preset.",
                remedy="Name the runs: tpu-console runs compare RUN RUN",
            )
    if len(runs) > MOST_RUNS:
        raise ConsoleError(f"{len(runs)} runs are too many to compare.", remedy=f"Name at most {MOST_RUNS}.")
    return runs
