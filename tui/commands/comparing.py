"""`tpu-console runs compare`: opens a screen, or prints tables or one HTML file with interactive plots by Plotly."""

from __future__ import annotations

import sys
from html import escape
from typing import TYPE_CHECKING, Any

import click

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.machine.install import install_line
from tpu_console.engine.runs.run_directory import find_run

from ..terminal.output import say, width_of_output
from .opening import has_terminal, open_console
from .options import command, complete_run, form_options, option, screen_options

if TYPE_CHECKING:
    from ..following.comparison import Comparison


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

    runs, most = list(dict.fromkeys(find_run(name) for name in names or (None,))), compared.MOST_RUNS
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
    from ..following.comparison import columns_of, notes_of, settings_of
    from ..text.cells import BEST
    from ..text.tables import as_html

    title, best = f"Comparison of {len(comparison.runs)} runs", comparison.best
    columns, settings = columns_of(comparison), settings_of(comparison)
    results = [[column.written(run) for column in columns] for run in comparison.runs]
    place = comparison.runs.index(best) if best is not None else None
    if place is not None:
        results[place][0] += f" {BEST}"
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
