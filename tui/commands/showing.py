"""`tpu-console runs show`: everything about one run, and its curves as plain text for a pipe, a log or an e-mail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..terminal.output import say, say_json, speaks_utf8, width_of_output
from .options import examples, json_option, run_argument

if TYPE_CHECKING:
    from tpu_console.engine.runs.state import RunState


@click.command(
    epilog=examples(
        "tpu-console runs show",
        "tpu-console runs show 20261120-133100-digits-cnn",
        "tpu-console runs show --plot > curves.txt",
        "tpu-console runs show --json | jq '.epoch_records[-1]'",
    )
)
@run_argument
@json_option("Print a JSON object.")
@click.option("--plot", "as_plot", is_flag=True, help="Print the curves of its metrics over the epochs.")
def show(name: str | None, as_json: bool, as_plot: bool) -> int:
    """Show everything about RUN, by default the newest.

    Prints its settings, machine, times, epochs, class scores and files, and the error if it failed.
    """
    from tpu_console.engine.runs.run_directory import find_run

    from ..following.overview import read_details
    from ..following.run_page import page, plain_values

    details = read_details(find_run(name))
    if as_json:
        say_json(plain_values(details))
    elif as_plot:
        lines = plot_lines(details.state, width_of_output(), is_ascii=not speaks_utf8())
        say(lines or ["The run has no curves yet."])
    else:
        say(page(details, width_of_output()))
    return 0


_WIDTH, _ROWS = 80, 16


def plot_lines(state: RunState, width: int | None, *, is_ascii: bool) -> list[str]:
    """Draw the metrics and the learning rate of a run over its epochs with plotext; 80 columns wide by default."""
    import plotext

    from ..charts.curve import Axis
    from ..charts.series import Series
    from ..widgets.chart_grid import RATE, curves_of, titles_of

    lines = []
    plotext.limit_size(False, False)
    for title in [name for name in titles_of(state) if name in {*state.train.metrics, *state.validation.metrics, RATE}]:
        plotext.clear_figure()
        plotext.plotsize(width or _WIDTH, _ROWS)
        plotext.title(title)
        for curve in curves_of(state, title):
            series = Series(curve)
            series.update(curve, 0.0)
            line = series.raw_line(Axis.EPOCH)
            marker = "o" if curve.is_validation else "*" if is_ascii else "braille"
            plotext.plot(line.x.tolist(), line.y.tolist(), marker=marker, label=curve.name)
        drawn: str = plotext.uncolorize(plotext.build())
        lines += [row.rstrip() for row in drawn.splitlines()]
    return lines
