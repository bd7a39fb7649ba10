"""`tpu-console runs show`: everything about one run."""

from __future__ import annotations

import click

from ..terminal.output import say, say_json, speaks_utf8, width_of_output
from .options import examples, json_option, run_argument


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
        from .plain_plots import plot_lines

        lines = plot_lines(details.state, width_of_output(), is_ascii=not speaks_utf8())
        say(lines or ["The run has no curves yet."])
    else:
        say(page(details, width_of_output()))
    return 0
