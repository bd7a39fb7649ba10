"""`tpu-console runs import`."""

from __future__ import annotations

import click

from ..terminal.output import complain, say
from .options import absolute, examples


@click.command(
    "import",
    epilog=examples(
        "tpu-console runs import logs/",
        "tpu-console runs import training.csv other.csv",
        done="everything was imported, now or before",
        failed="a file could not be imported",
    ),
)
@click.argument("places", metavar="FILE_OR_FOLDER...", nargs=-1, required=True)
def import_(places: tuple[str, ...]) -> int:
    """Import the trainings of other tools as runs.

    Event files of TensorBoard and files of Keras's CSVLogger become finished runs, which `runs`, `show`, `compare` and
    `attach` show like others. Folders are searched. Nothing is imported twice.
    """
    from ..jobs.command_job import run_job
    from ..text.tables import labelled

    result = run_job("import", {"places": [*map(absolute, places)]}, "Runs that were imported are kept.")
    for run in result["runs"]:
        known = "imported before as " if run["is_known"] else ""
        say([labelled("run", f"{known}{run['run']}, from {run['source']}")])
    complain(f"Error: {text}" for text in result["errors"])
    return 1 if result["errors"] else 0
