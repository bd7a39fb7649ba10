"""`tpu-console cache`."""

from __future__ import annotations

import click

from ..terminal.output import say, say_json, width_of_output
from .options import examples, json_option


@click.command(
    epilog=examples(
        "tpu-console cache", "tpu-console cache --clear", done="listed, or cleared", failed="not all cleared"
    )
)
@click.option("--clear", is_flag=True, help="Clear all caches.")
@json_option("Print a JSON array.")
def cache(clear: bool, as_json: bool) -> int:
    """List the caches, or clear them.

    What is in them is computed again when it is needed. Each cache stays below a limit by itself.
    """
    from tpu_console.engine.runs.leftovers import discard_cache, runs_with_old_caches
    from tpu_console.engine.storage.caches import CACHES, cache_files, clear_cache
    from tpu_console.engine.storage.files import folder_size
    from tpu_console.engine.storage.paths import cache_folder, user_path

    from ..text.numbers import size
    from ..text.tables import Column, table

    old = runs_with_old_caches()
    sizes = {name: [file.stat().st_size for file in cache_files(name)] for name in CACHES}
    sizes |= {"runs": [folder_size(run.cache) for run in old]}
    holds = {**CACHES, "runs": "images decoded by runs that were killed, in their folders"}
    if clear:
        for name in CACHES:
            clear_cache(name)
        for run in old:
            discard_cache(run)
    if as_json:
        say_json(
            [{"name": name, "holds": holds[name], "files": len(of), "bytes": sum(of)} for name, of in sizes.items()]
        )
        return 0
    rows = [[name, str(len(of)), size(sum(of)), holds[name]] for name, of in sizes.items()]
    columns = [Column("cache", 3), Column("files", 1, right=True), Column("size", 2, right=True), Column("holds", 0)]
    verb = "Cleared" if clear else "Kept in"
    say([*table(columns, rows, width_of_output()), f"{verb} {user_path(cache_folder())}"])
    return 0
