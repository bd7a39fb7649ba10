"""`tpu-console attach`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .opening import has_terminal, open_console
from .options import examples, json_option, run_argument, screen_options

if TYPE_CHECKING:
    from .opening import Markers


@click.command(
    epilog=examples(
        "tpu-console attach",
        "tpu-console attach 20261120-133100-digits-cnn",
        "tpu-console attach fashion | tee training.txt",
        "tpu-console attach --json | jq .type",
    )
)
@run_argument
@screen_options
@json_option("Print the run's events, one JSON object per line.")
def attach(name: str | None, markers: Markers | None, theme: str | None, as_json: bool) -> int:
    """Watch RUN, running or finished; by default the newest.

    RUN is a run's name, an unambiguous part of it, or its folder. On a terminal this opens the live screen;
    otherwise it prints plain lines until the run ends. Leaving does not stop the run.
    """
    from tpu_console.engine.runs.run_directory import find_run

    run = find_run(name)
    if has_terminal() and not as_json:
        return open_console(run=run, markers=markers, theme=theme)
    from ..following.follow import follow

    return follow(run, as_json=as_json)
