"""`tpu-console runs list` and `tpu-console presets`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tpu_console.engine.sanitize import printable

from ..following.run_list import COLUMNS, COLUMNS_IN_FULL, Sort, in_order, with_tags
from ..terminal.output import complain, complain_about, say, say_json, width_of_output
from ..text.tables import Column, as_lines
from .options import examples, json_option, preset_file_option

_BAD_USAGE = 2

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.presets.catalog import Preset


@click.command(
    "list",
    epilog=examples(
        "tpu-console runs",
        "tpu-console runs --sort best --tag baseline",
        "tpu-console runs --json | jq '.[0]'",
    ),
)
@click.option("--sort", type=click.Choice([*map(str, Sort)]), default="started", help="[default: started]")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="List only runs with this tag; repeatable.")
@click.option("--archived", is_flag=True, help="List archived runs, too.")
@click.option("--deleted", is_flag=True, help="List the runs in the trash.")
@json_option("Print a JSON array.")
def list_runs(sort: str, tags: tuple[str, ...], archived: bool, deleted: bool, as_json: bool) -> int:
    """List your runs, the newest first."""
    from tpu_console.engine.runs.run_directory import list_runs
    from tpu_console.engine.storage.paths import runs_folder, user_path

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
        return 0
    if not known:
        complain([place])
        return 0
    width = width_of_output()
    say(as_lines(COLUMNS_IN_FULL if width is None else COLUMNS, overviews, width))
    complain([overview.problem for overview in overviews if overview.problem])
    hidden = sum(overview.annotations.archived for overview in known)
    if sys.stdout.isatty() and hidden and not (archived or deleted):
        complain([f"{hidden} archived: tpu-console runs --archived"])
    return 0


@click.command(
    epilog=examples(
        "tpu-console presets",
        "tpu-console presets --preset-file ./mine.toml",
        "tpu-console presets --json | jq -r '.[].name'",
    )
)
@preset_file_option
@json_option("Print a JSON array.")
def presets(preset_files: tuple[Path, ...], as_json: bool) -> int:
    """List the presets.

    Lists the built-in presets, yours, and those of --preset-file. Files with errors are reported on standard error;
    the exit code is 2 if --preset-file named one of them.
    """
    from tpu_console.engine.storage.paths import user_path, user_presets_folder
    from tpu_console.presets.catalog import all_presets

    found, broken = all_presets(preset_files)
    width = width_of_output()
    if as_json:
        say_json([_preset_dict(preset) for preset in found])
    else:
        say(as_lines(_PRESET_COLUMNS, found, width))
    if not as_json and sys.stdout.isatty():
        complain(["", f"Put your own presets in {user_path(user_presets_folder())}"])
    for error in broken:
        complain_about(error)
    asked_for = {user_path(path) for path in preset_files}
    return _BAD_USAGE if any(error.source in asked_for for error in broken) else 0


_PRESET_COLUMNS = (
    Column("preset", 9, value=lambda one: one.name),
    Column("from", 3, value=lambda one: "built in" if one.is_builtin else "yours"),
    Column("dataset", 7, value=lambda one: one.config.dataset),
    Column("model", 6, value=lambda one: one.config.model),
    Column("title", 8, value=lambda one: one.about.title),
    Column("expected score", 2, value=lambda one: one.about.expected_score),
    Column("expected time", 1, value=lambda one: one.about.expected_time),
)


def _preset_dict(preset: Preset) -> dict[str, object]:
    return {
        "name": preset.name,
        "yours": not preset.is_builtin,
        "path": printable(str(preset.path)),
        **preset.about.model_dump(),
        "config": preset.config.model_dump(mode="json"),
    }
