"""`tpu-console attach`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ..terminal.output import complain
from .opening import has_terminal, open_console
from .options import examples, json_option, run_argument, screen_options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpu_console.engine.runs.run_directory import RunDirectory

    from .opening import Markers


@click.command(
    epilog=examples(
        "tpu-console attach",
        "tpu-console attach 20261120-133100-digits-cnn",
        "tpu-console attach fashion | tee training.txt",
        "tpu-console attach ssh://me@tpu-vm/fashion",
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

    ssh://[USER@]HOST[:PORT]/RUN watches a run on another machine, which needs only an SSH server. RUN is then a name
    in ~/.local/share/tpu-console/runs there or a path with a slash, such as ssh://HOST/~/folder/RUN.
    """
    has_screen = has_terminal() and not as_json
    with _found(name, asks=has_screen) as run:
        if has_screen:
            from tpu_console.engine.runs.journal_blocks import start_early

            start_early(run)  # the screen takes half a second to load
            return open_console(run=run, markers=markers, theme=theme)
        from ..following.follow import follow

        return follow(run, as_json=as_json)


@contextmanager
def _found(name: str | None, *, asks: bool) -> Iterator[RunDirectory]:
    """Find a run here or on another machine; with `asks`, SSH may ask for a password on the terminal."""
    if name is not None and name.startswith("ssh://"):
        from tpu_console.engine.remote.watch import watched_run
        from tpu_console.engine.sanitize import printable

        if asks:
            complain([f"Connecting to {printable(name)}"])
        with watched_run(name, asks=asks) as run:
            yield run
        return
    from tpu_console.engine.runs.run_directory import find_run

    yield find_run(name)
