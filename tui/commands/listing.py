"""`tpu-console runs` and `tpu-console presets`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tpu_console.engine.sanitize import printable

from ..terminal.output import complain, complain_about, say, width_of_output
from .options import examples, json_option, preset_file_option

_BAD_USAGE = 2

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.presets.catalog import Preset

    from ..following.overview import Overview


@click.command(epilog=examples("tpu-console runs", "tpu-console runs --json | jq '.[0]'"))
@json_option("Print a JSON array.")
def runs(as_json: bool) -> int:
    """List your runs, the newest first."""
    from tpu_console.engine.runs.run_directory import list_runs
    from tpu_console.engine.storage.paths import runs_folder, user_path

    from ..following.overview import read_overviews
    from ..text.tables import Column, table

    overviews = read_overviews(list_runs())
    if as_json:
        say([json.dumps([overview.as_dict() for overview in overviews], indent=2, ensure_ascii=False)])
        return 0
    if not overviews:
        complain([f"No runs in {user_path(runs_folder())} yet. To start one: tpu-console run digits-cnn"])
        return 0
    columns = [
        Column("run", 9),
        Column("preset", 2),
        Column("state", 8),
        Column("epochs", 6, right=True),
        Column("best", 7, right=True),
        Column("metric", 3),
        Column("duration", 5, right=True),
        Column("started", 1),
    ]
    say(table(columns, [_run_row(overview) for overview in overviews], width_of_output()))
    complain([overview.problem for overview in overviews if overview.problem])
    return 0


def _run_row(overview: Overview) -> list[str]:
    from ..text.numbers import duration, metric

    best, seconds = overview.best, overview.seconds()
    return [
        overview.run.run_id,
        overview.label,
        overview.status_text,
        f"{overview.epochs_done}/{overview.epochs}" if overview.epochs is not None else "–",
        metric(best[1]) if best is not None else "–",
        best[0] if best is not None else "",
        duration(seconds),
        f"{overview.started:%Y-%m-%d %H:%M}" if overview.started is not None else "–",
    ]


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

    from ..text.tables import Column, table

    found, broken = all_presets(preset_files)
    if as_json:
        say([json.dumps([_preset_dict(preset) for preset in found], indent=2, ensure_ascii=False)])
    else:
        columns = [
            Column("preset", 9),
            Column("from", 3),
            Column("dataset", 7),
            Column("model", 6),
            Column("title", 8),
            Column("expected score", 2),
            Column("expected time", 1),
        ]
        say(table(columns, [_preset_row(preset) for preset in found], width_of_output()))
    if not as_json and width_of_output() is not None:
        complain(["", f"Put your own presets in {user_path(user_presets_folder())}"])
    for error in broken:
        complain_about(error)
    asked_for = {user_path(path) for path in preset_files}
    return _BAD_USAGE if any(error.source in asked_for for error in broken) else 0


def _preset_row(preset: Preset) -> list[str]:
    config, about = preset.config, preset.about
    origin = "built in" if preset.is_builtin else "yours"
    return [
        preset.name,
        origin,
        config.dataset,
        config.model,
        about.title,
        about.expected_score,
        about.expected_time,
    ]


def _preset_dict(preset: Preset) -> dict[str, object]:
    about = preset.about.model_dump()
    return {
        "name": preset.name,
        "yours": not preset.is_builtin,
        "path": printable(str(preset.path)),
        **about,
        "config": preset.config.model_dump(mode="json"),
    }
