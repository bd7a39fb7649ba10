"""`tpu-console runs list`, `show`, `rename`, `tag` and `delete`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from tpu_console.engine.runs.run_directory import (
    RunDirectory,
    cleaned_tags,
    find_run,
    list_runs,
    read_annotations,
    write_annotations,
)
from tpu_console.engine.storage.paths import runs_folder, user_path

from ..following.run_list import COLUMNS, COLUMNS_IN_FULL, Sort, in_order, with_tags
from ..terminal.output import complain, say, say_json, speaks_utf8, width_of_output
from ..text.tables import as_lines
from .options import command, complete_run, json_option, option, run_argument

if TYPE_CHECKING:
    from tpu_console.engine.runs.state import RunState

_PLOT_ROWS = 16


@command(
    "tpu-console runs",
    "tpu-console runs --sort best --tag baseline",
    "tpu-console runs --json | jq '.[0]'",
    name="list",
)
@option("--sort", "[default: started]", type=click.Choice([*map(str, Sort)]), default="started")
@option("--tag TAG", "List only runs with this tag; repeatable.", "tags", multiple=True)
@option("--archived", "List archived runs, too.")
@option("--deleted", "List the runs in the trash.")
@json_option("Print a JSON array.")
def list_(sort: str, tags: tuple[str, ...], archived: bool, deleted: bool, as_json: bool) -> None:
    """List your runs, the newest first."""
    from ..following.overview import read_overviews

    if deleted:
        from tpu_console.engine.process.trash import deleted_runs, trash_of

        found, place = deleted_runs(), f"The trash is empty: {user_path(trash_of())}"
    else:
        found, place = list_runs(), f"No runs in {user_path(runs_folder())} yet."
        place += " To start one: tpu-console run digits-cnn"
    known = read_overviews(found)
    overviews = in_order(with_tags(known, tags, archived=archived or deleted), Sort(sort))
    if as_json:
        say_json([overview.as_dict() for overview in overviews])
    elif not known:
        complain([place])
    else:
        width = width_of_output()
        say(as_lines(COLUMNS_IN_FULL if width is None else COLUMNS, overviews, width))
        complain([overview.problem for overview in overviews if overview.problem])
        hidden = sum(overview.annotations.archived for overview in known)
        if sys.stdout.isatty() and hidden and not (archived or deleted):
            complain([f"{hidden} archived: tpu-console runs --archived"])


@command(
    "tpu-console runs show",
    "tpu-console runs show 20261120-133100-digits-cnn",
    "tpu-console runs show --plot > curves.txt",
    "tpu-console runs show --json | jq '.epoch_records[-1]'",
)
@run_argument
@json_option("Print a JSON object.")
@option("--plot", "Print the curves of its metrics over the epochs.", "as_plot")
def show(name: str | None, as_json: bool, as_plot: bool) -> None:
    """Show everything about RUN, by default the newest.

    Prints its settings, machine, times, epochs, class scores and files, and the error if it failed.
    """
    from ..following.overview import read_details
    from ..following.run_page import page, plain_values

    details = read_details(find_run(name))
    if as_json:
        say_json(plain_values(details))
    elif as_plot:
        lines = _plot_lines(details.state, width_of_output(), is_ascii=not speaks_utf8())
        say(lines or ["The run has no curves yet."])
    else:
        say(page(details, width_of_output()))


def _plot_lines(state: RunState, width: int | None, *, is_ascii: bool) -> list[str]:
    """Draw the metrics and the learning rate of a run over its epochs with plotext; 80 columns wide by default."""
    import plotext

    from ..charts.curve import Axis, Series
    from ..widgets.chart_grid import RATE, curves_of

    lines = []
    plotext.limit_size(False, False)
    wanted = {*state.train.metrics, *state.validation.metrics, RATE}
    for title, curves in curves_of(state).items():
        if title not in wanted:
            continue
        plotext.clear_figure()
        plotext.plotsize(width or 80, _PLOT_ROWS)
        plotext.title(title)
        for curve in curves:
            line = Series(curve).raw_line(Axis.EPOCH)
            marker = "o" if curve.is_validation else "*" if is_ascii else "braille"
            if len(line.x):  # plotext fails at a curve without points, such as one of NaN
                plotext.plot(line.x.tolist(), line.y.tolist(), marker=marker, label=curve.name)
        drawn: str = plotext.uncolorize(plotext.build())
        lines += [row.rstrip() for row in drawn.splitlines()]
    return lines


def _given(names: tuple[str, ...]) -> list[RunDirectory]:
    return list(dict.fromkeys(find_run(name) for name in names))


@command("tpu-console runs rename 103748-digits 'larger batch'", "tpu-console runs rename digits ''")
@click.argument("name", metavar="RUN", shell_complete=complete_run)
@click.argument("title")
def rename(name: str, title: str) -> None:
    """Give RUN a title, which lists show instead of its name.

    An empty title removes it. The folder keeps its name.
    """
    run = find_run(name)
    write_annotations(run.path, replace(read_annotations(run.path), title=title))
    kept = read_annotations(run.path).title
    say([f"{run.run_id} is now called '{kept}'." if kept else f"{run.run_id} has no title."])


@command(
    "tpu-console runs tag digits --add baseline --note 'before the new augmentation'",
    "tpu-console runs tag 103748-digits 103737-digits --archive",
)
@click.argument("names", metavar="RUN...", nargs=-1, required=True, shell_complete=complete_run)
@option("--add, --tag TAG", "Add a tag; repeatable.", "tags", multiple=True)
@option("--remove, --untag TAG", "Remove a tag; repeatable.", "untags", multiple=True)
@option("--note TEXT", "Replace the note; an empty one removes it.")
@option("--archive/--unarchive", "Leave the runs out of lists, or list them again.", "archived", default=None)
def tag(names: tuple[str, ...], tags: tuple[str, ...], untags: tuple[str, ...], **changed: Any) -> None:
    """Tag runs, write a note on them, or archive them.

    Without an option, prints what is written on them.
    """
    changes = {name: value for name, value in changed.items() if value is not None}
    for run in _given(names):
        before = read_annotations(run.path)
        kept = cleaned_tags([*(tag for tag in before.tags if tag not in cleaned_tags(untags)), *tags])
        if (after := replace(before, tags=kept, **changes)) != before:
            write_annotations(run.path, after)
        now = read_annotations(run.path)
        parts = [now.title, " ".join(f"#{tag}" for tag in now.tags), now.note, "archived" if now.archived else ""]
        say([f"{run.run_id}: {' · '.join(part for part in parts if part) or 'nothing is written on it'}"])


@command(
    "tpu-console runs delete 103748-digits",
    "tpu-console runs delete --restore 103748-digits",
    "tpu-console runs delete --empty-trash",
)
@click.argument("names", metavar="RUN...", nargs=-1, shell_complete=complete_run)
@option("--restore", "Move the runs from the trash back.")
@option("--empty-trash", "Delete everything in the trash for good; asks first.")
@option("--yes", "Do not ask.")
@click.pass_context
def delete(ctx: click.Context, names: tuple[str, ...], restore: bool, empty_trash: bool, yes: bool) -> None:
    """Move runs to the trash, or restore them.

    The trash is a folder beside the runs. A run that trains is refused.
    """
    from tpu_console.engine.process import trash

    if empty_trash == bool(names) or (restore and empty_trash):
        ctx.fail("Name runs, or give only --empty-trash.")
    if empty_trash:
        deleted = trash.deleted_runs()
        if deleted and not yes:
            click.confirm(f"Delete {len(deleted)} runs for good?", abort=True, err=True)
        say([f"Deleted for good: {trash.empty_trash()}"])
    elif restore:
        say(f"Restored: {trash.restore_run(name).run_id}" for name in names)
    else:
        runs = _given(names)
        trash.delete_runs(runs)
        say([*(f"Moved to the trash: {run.run_id}" for run in runs),
             f"To restore: tpu-console runs delete --restore {' '.join(run.run_id for run in runs)}"])  # fmt: skip
