"""`tpu-console tfrecord`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpu_console.engine.data.places import is_remote, locate
from tpu_console.engine.errors import ConsoleError, did_you_mean
from tpu_console.engine.storage.paths import user_path
from tpu_console.presets.files import preset_files

from ..jobs.job_process import run_job
from ..terminal.output import say, width_of_output
from ..text.numbers import plural, size
from ..text.tables import Column, labelled, table
from .options import absolute, command, trust_option
from .preset_choice import chosen_preset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpu_console.presets.catalog import Preset

_FORMATS = ("image-csv", "image-folder")
_FLAGS = {"images": "--images", "id_column": "--id-column", "label_columns": "--label-column"}
_SMALLEST_MB, _USUAL_MB, _LARGEST_MB = 10, 64, 100


@command(
    "tpu-console tfrecord photos/ shards/",
    "tpu-console tfrecord train.csv gs://bucket/shards --images images",
    "tpu-console tfrecord labels.csv shards/ --label-column species",
    "tpu-console tfrecord plant-pathology-cnn shards/ --skip-bad",
    done="all shards were written and verified",
    failed="not all shards were written",
)
@click.argument("source")
@click.argument("dest")
@click.option("--images", metavar="FOLDER", help="Image folder of a CSV. [default: images, beside the CSV]")
@click.option("--id-column", metavar="NAME", help="File-name column of a CSV. [default: the first]")
@click.option(
    "--label-column",
    "label_columns",
    metavar="NAME",
    multiple=True,
    help="Label column of a CSV; repeat for one column per class. [default: all but the first]",
)
@click.option(
    "--shard-mb",
    type=click.FloatRange(_SMALLEST_MB, _LARGEST_MB),
    default=_USUAL_MB,
    show_default=True,
    metavar="MB",
    help=f"Approximate shard size, {_SMALLEST_MB} to {_LARGEST_MB}.",
)
@click.option("--skip-bad", is_flag=True, help="Skip images that are missing or unreadable.")
@trust_option
def tfrecord(
    source: str,
    dest: str,
    images: str | None,
    id_column: str | None,
    label_columns: tuple[str, ...],
    shard_mb: float,
    skip_bad: bool,
) -> int:
    """Convert the images of SOURCE into TFRecord shards in DEST.

    SOURCE is a folder with one subfolder of images per class, a CSV of file names and labels, or a preset that trains
    on either. SOURCE and DEST may be remote, such as gs://bucket/folder.

    Images are shuffled with a fixed seed and stored unchanged. Every record is verified; schema.json is written last.
    If interrupted, the same command continues with the next shard.
    """
    given = {"images": images, "id_column": id_column, "label_columns": label_columns or None}
    dataset, options = _dataset(source, {key: value for key, value in given.items() if value is not None})
    if skip_bad:
        options["skip_bad"] = True

    destination = dest if is_remote(dest) else absolute(dest)
    try:
        result = run_job(
            "tfrecord",
            {"dataset": dataset, "options": options, "destination": destination, "shard_mb": shard_mb},
            when_interrupted="Finished shards are kept; the same command continues with the next one.",
        )
    except ConsoleError as error:
        parts = (_in_own_words(part) for part in (error.what, error.why, error.remedy))
        raise ConsoleError(next(parts), why=next(parts), remedy=next(parts)) from error
    say(_summary(result))
    return 0


def _in_own_words(text: str) -> str:
    """Replace configuration keys in an error by this command's options."""
    for key, flag in {**_FLAGS, "path": "SOURCE"}.items():
        text = text.replace(f"data.options.{key}", flag)
    return text


def _dataset(source: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the format of a source and its options."""
    preset = _preset(source)
    if preset is not None:
        dataset = preset.config.dataset
        if dataset not in _FORMATS:
            raise click.UsageError(f"{source} trains on {dataset}; only {' and '.join(_FORMATS)} can be converted.")
        return dataset, _checked(dataset, {**preset.config.data.options, **given})
    dataset = "image-csv" if _is_table(source) else "image-folder"
    return dataset, _checked(dataset, {"path": source, **given})


def _preset(source: str) -> Preset | None:
    """Return the preset that a source names; a file or folder of the same name takes precedence."""
    if source.endswith(".toml"):
        return chosen_preset(source)
    if is_remote(source) or os.sep in source or _is_table(source) or Path(locate(source)).exists():
        return None
    names = preset_files()
    if source not in names:
        raise click.UsageError(f"There is no folder and no preset '{source}'; {did_you_mean(source, names)}")
    return chosen_preset(source)


def _is_table(source: str) -> bool:
    return source.lower().endswith((".csv", ".csv.gz"))


def _checked(dataset: str, options: dict[str, Any]) -> dict[str, Any]:
    """Check options; name those that the format does not have in the error."""
    from pydantic import ValidationError

    from tpu_console.engine.data.kinds.table import KINDS

    section = KINDS[dataset].Options
    for key in options:
        if key not in section.model_fields:
            raise click.UsageError(f"{_FLAGS[key]} is for a CSV; for a folder, the subfolder names are the labels.")
    try:
        section.model_validate(options)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        key = str(detail["loc"][0])
        raise click.UsageError(f"{_FLAGS.get(key, 'SOURCE')}: {detail['msg'].lower()}.") from error
    return options


def _summary(result: Mapping[str, Any]) -> list[str]:
    """Say what was written, and how many images each class has."""
    dest, total = result["destination"], result["images"]
    place = dest if is_remote(dest) else user_path(Path(dest))
    kept = result["shards"] - result["written"]
    shards = f"{plural(result['shards'], 'shard')} of {size(result['bytes'])} in {place}"
    skipped = f"; {result['left_out']:,} skipped" if result["left_out"] else ""
    rows = [
        [name, f"{count:,}", f"{100 * count / total:.1f}%"]
        for name, count in zip(result["classes"], result["class_counts"], strict=True)
    ]
    columns = [Column("class", 9), Column("images", 8, right=True), Column("share", 5, right=True)]
    return [
        labelled("shards", f"{shards}, {kept:,} of them already there" if kept else shards),
        labelled("images", f"{total:,}, all verified{skipped}"),
        labelled("to train", f'dataset = "tfrecord" and data.options.path = "{place}"'),
        "",
        *table(columns, rows, width_of_output()),
    ]
