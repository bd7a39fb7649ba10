"""`tpu-console runs list`, `show`, `compare`, `rename`, `tag` and `delete`.

`compare` opens a screen, or prints tables or one HTML file with interactive plots by Plotly.
"""

from __future__ import annotations

import sys
from html import escape
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.machine.install import install_line
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
from ..text.tables import as_html, as_lines
from .opening import has_terminal, open_console
from .options import command, complete_run, form_options, json_option, option, run_argument, screen_options

if TYPE_CHECKING:
    from tpu_console.engine.runs.state import RunState

    from ..following.comparison import Comparison

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


def _given(names: tuple[str | None, ...]) -> list[RunDirectory]:
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


@command(
    "tpu-console runs compare",
    "tpu-console runs compare 101500-digits 143000-digits",
    "tpu-console runs compare digits-a digits-b --metric val_loss --csv > runs.csv",
    "tpu-console runs compare --html > runs.html",
)
@click.argument("names", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@option("--metric NAME", "Compare the runs by this metric. [default: one they share]", default="")
@form_options(
    json="Print a JSON object.",
    csv="Print one row per run as CSV.",
    markdown="Print Markdown tables.",
    html="Print one HTML page with interactive plots.",
)
@screen_options
def compare(names: tuple[str, ...], metric: str, form: str | None) -> int:
    """Compare the curves and results of 2 to 20 runs.

    It also shows which settings differ. With only one RUN, it is compared with the newest other runs of its preset;
    without any, the newest run is. On a terminal this opens a screen with the curves; otherwise it prints the
    tables.
    """
    if form == "html" and sys.stdout.isatty():
        raise ConsoleError(
            "The page has 5 MB, which is too much for a terminal.",
            remedy="Write it into a file: tpu-console runs compare --html > runs.html",
        )
    from ..following import comparison as compared

    runs, most = _given(names or (None,)), compared.MOST_RUNS
    if len(runs) == 1:
        runs = compared.similar_runs(runs[0])
    if not 1 < len(runs) <= most:
        alone = f"{runs[0].run_id} has no other run of its preset to compare with."
        what = f"{len(runs)} runs are too many to compare." if len(runs) > 1 else alone
        raise ConsoleError(what, remedy=f"Name 2 to {most} runs: tpu-console runs compare RUN RUN")
    if form is None and has_terminal():
        return open_console(compared=runs, metric=metric)
    comparison = compared.read_comparison(runs, metric)
    if form == "html":
        sys.stdout.buffer.write(_page(comparison).encode())  # UTF-8, as the page says, whatever the locale
        sys.stdout.flush()
    elif form == "json":
        say([compared.as_json(comparison)])
    elif form == "csv":
        say([compared.as_csv(comparison)])
    else:
        say(compared.as_markdown(comparison) if form else compared.as_text(comparison, width_of_output()))
    return 0


_PLOT_PX = 340
_COLORS = ("#1f83cc", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#8468e0", "#868b93")  # on both pages
_DASHES = ("solid", "dash", "dot")
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem; color: #1c2430; }
table { display: block; overflow-x: auto; }
th, td { padding: .25rem .75rem; border-bottom: 1px solid #d5dae1; white-space: nowrap; }
tr.best { background: #eef7ee; }
@media (prefers-color-scheme: dark) {
  :root { color-scheme: dark; }
  body { color: #d8dee6; background: #12161c; }
  th, td { border-color: #343c47; }
  tr.best { background: #1a2b20; }
  .js-plotly-plot { filter: invert(.88) hue-rotate(180deg); }
}
"""


def _page(comparison: Comparison) -> str:
    """Write a comparison as a self-contained page; raise `ConsoleError` if Plotly is not installed."""
    from ..following.comparison import notes_of, settings_of, starred_columns

    title, best = f"Comparison of {len(comparison.runs)} runs", comparison.best
    columns, settings = starred_columns(comparison), settings_of(comparison)
    results = [[column.written(run) for column in columns] for run in comparison.runs]
    place = comparison.runs.index(best) if best is not None else None
    differences = [[column.written(one) for column in settings] for one in comparison.differences.items()]
    notes = "".join(f"<p>{escape(note)}</p>" for note in notes_of(comparison))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>{_STYLE}</style></head><body><h1>{title}</h1>
{as_html(columns, results, place)}
{as_html(settings, differences) if differences else ""}
{notes}
{_plots(comparison)}
</body></html>"""


def _plots(comparison: Comparison) -> str:
    """Return the plots, one below the other; a click on a run in the legend hides it in all of them."""
    try:
        from plotly.subplots import make_subplots
    except ImportError:
        what = "Plots in HTML need Plotly, which is not installed."
        raise ConsoleError(what, remedy=install_line("plotly")) from None
    from ..charts.curve import Axis, Series
    from ..widgets.chart_grid import compared_curves

    units = {Axis.STEP: "step", Axis.EPOCH: "epoch", Axis.TIME: "seconds"}
    if not (curves := compared_curves(comparison.runs, comparison.metric)):
        return "<p>No run has a curve yet.</p>"
    figure: Any = make_subplots(
        len(curves), 1, shared_xaxes=True, vertical_spacing=0.2 / len(curves), subplot_titles=[*map(escape, curves)]
    )
    names = {run.mark: escape(f"{run.mark} {comparison.label_of(run)}") for run in comparison.runs}
    places: dict[Axis, list[Any]] = {axis: [] for axis in Axis}
    named: set[str] = set()
    for row, curve in ((row, curve) for row, several in enumerate(curves.values(), 1) for curve in several):
        lines, mark = {axis: Series(curve).raw_line(axis) for axis in Axis}, curve.name[0]
        style, color = divmod(ord(mark) - ord("A"), len(_COLORS))
        for axis, line in lines.items():
            places[axis].append(line.x.tolist())
        figure.add_scatter(
            x=places[Axis.STEP][-1],
            y=lines[Axis.STEP].y.tolist(),
            name=names[mark],
            legendgroup=mark,
            showlegend=mark not in named,
            mode="lines+markers" if len(places[Axis.STEP][-1]) < 100 else "lines",
            line={"color": _COLORS[color], "dash": _DASHES[style]},
            row=row,
            col=1,
        )
        named.add(mark)
    below = "xaxis" if len(curves) == 1 else f"xaxis{len(curves)}"
    buttons = [
        {"label": axis.value, "method": "update", "args": [{"x": x}, {f"{below}.title.text": units[axis]}]}
        for axis, x in places.items()
    ]
    figure.update_layout(
        template="plotly_white",
        paper_bgcolor="rgba(0,0,0,0)",  # that of the page, also in dark colors
        plot_bgcolor="rgba(0,0,0,0)",
        hoverlabel={"namelength": -1},
        height=_PLOT_PX * len(curves) + 120,
        margin={"t": 140},
        hovermode="x unified",
        hoverdistance=-1,
        legend={"orientation": "h", "yanchor": "bottom", "y": 1 + 75 / (_PLOT_PX * len(curves))},
        updatemenus=[{"type": "buttons", "direction": "right", "buttons": buttons, "x": 1, "xanchor": "right", "y": 1,
                      "yanchor": "bottom", "pad": {"b": 25},}],
    )  # fmt: skip
    figure.update_xaxes(showticklabels=True)
    figure.update_layout({f"{below}.title.text": units[Axis.STEP]})
    # The first of these buttons would upload the plots; the others select points, which is of no use here.
    config = {"displaylogo": False, "modeBarButtonsToRemove": ["sendChartToCloud", "select2d", "lasso2d"]}
    plots: str = figure.to_html(full_html=False, include_plotlyjs=True, config=config)
    return plots
