"""`tpu-console export`, `predict`, `tfrecord` and `runs import`: what goes out to other tools, and comes from them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpu_console.engine.data.places import is_remote, locate
from tpu_console.engine.errors import ConsoleError, did_you_mean
from tpu_console.engine.storage.paths import user_path
from tpu_console.presets.files import preset_files

from ..jobs.job_process import run_job
from ..terminal.output import complain, say, width_of_output
from ..text.numbers import listed, plural, size
from ..text.tables import Column, labelled, table
from .options import absolute, checkpoint_option, command, run_argument, trust_option
from .preset_choice import chosen_preset, run_job_with_trust, run_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpu_console.presets.catalog import Preset

_STANDARD_OUTPUT = "-"
_CODE = {"script", "notebook"}


@command(
    "tpu-console export digits-cnn --script",
    "tpu-console export 20261120 --notebook train.ipynb",
    "tpu-console export 20261120 --tflite digits.tflite",
    done="it was written",
    failed="nothing was written",
)
@run_argument
@click.option("--script", is_flag=False, flag_value="", metavar="[FILE]", help="Write plain Keras. [default: NAME.py]")
@click.option(
    "--notebook", is_flag=False, flag_value="", metavar="[FILE]", help="The same as a notebook. [default: NAME.ipynb]"
)
@click.option("--savedmodel", metavar="DIR", help="Convert the model to a SavedModel of TensorFlow.")
@click.option("--tflite", metavar="FILE", help="Convert the model to TFLite.")
@click.option("--onnx", metavar="FILE", help="Convert the model to ONNX.")
@checkpoint_option
@click.option("--force", is_flag=True, help="Overwrite the file or folder.")
@trust_option
def export(name: str | None, checkpoint: str, force: bool, **forms: str | None) -> int:
    """Write RUN as code, or its model in another format.

    Without RUN, the newest run is used. For code, FILE may be - for standard output.

    --script and --notebook write plain Keras that trains the same way without tpu-console: the same data, model,
    devices and optimizer, and the same examples in the same order.

    --savedmodel, --tflite and --onnx convert the trained model with Keras's `export`.
    """
    chosen = {form: file for form, file in forms.items() if file is not None}
    if len(chosen) != 1:
        raise click.UsageError("Choose one of --script, --notebook, --savedmodel, --tflite and --onnx.")
    ((form, file),) = chosen.items()
    options = {"run": name, "form": form, "force": force}
    job, out = "export", absolute(file) if file else None
    if form not in _CODE:
        job, options = "convert", {**options, "checkpoint": checkpoint}
    elif file == _STANDARD_OUTPUT:
        with tempfile.TemporaryDirectory(prefix="tpu-console-") as folder:
            path = Path(folder) / "exported"
            if code := _write(job, {**options, "out": str(path)}, is_shown=False):
                return code
            say(path.read_text(encoding="utf-8").splitlines())
        return 0
    return _write(job, {**options, "out": out})


def _write(job: str, options: Mapping[str, Any], *, is_shown: bool = True) -> int:
    """Run a job that writes a file, and say what it wrote; unless that is shown, on standard error and without it."""
    result = run_job_with_trust(job, options)
    if result is None:
        return 1
    lines = [labelled("run", run_line(options["run"], result["run"]))]
    lines += [labelled("model", user_path(Path(result["model"])))] if "model" in result else []
    if is_shown:
        weighs = f", {size(result['bytes'])}" if "bytes" in result else ""
        lines.append(labelled(str(options["form"]), f"{user_path(Path(result['out']))}{weighs}"))
    (say if is_shown else complain)([*lines, *(labelled("differs", mark) for mark in result.get("marks", ()))])
    return 0


@command(
    "tpu-console runs import logs/",
    "tpu-console runs import training.csv other.csv",
    name="import",
    done="everything was imported, now or before",
    failed="a file could not be imported",
)
@click.argument("places", metavar="FILE_OR_FOLDER...", nargs=-1, required=True)
def import_(places: tuple[str, ...]) -> int:
    """Import the trainings of other tools as runs.

    Event files of TensorBoard and files of Keras's CSVLogger become finished runs, which `runs`, `show`, `compare` and
    `attach` show like others. Folders are searched. Nothing is imported twice.
    """
    result = run_job("import", {"places": [*map(absolute, places)]}, "Runs that were imported are kept.")
    for run in result["runs"]:
        known = "imported before as " if run["is_known"] else ""
        say([labelled("run", f"{known}{run['run']}, from {run['source']}")])
    complain(f"Error: {text}" for text in result["errors"])
    return 1 if result["errors"] else 0


@command(
    "tpu-console predict --data test.csv --out submission.csv",
    "tpu-console predict 20261120 --data photos/ --out out.csv --skip-bad",
    "tpu-console predict digits-cnn --data scans.npy --out - | head",
    "tpu-console predict ~/flowers-run --data photos/ --out out.csv --trust",
    done="the predictions were written",
    failed="nothing was written",
)
@run_argument
@click.option(
    "--data",
    metavar="PATH",
    multiple=True,
    required=True,
    help="Data to predict: a table, images (folder or file), arrays, texts, or file.py:function. Images: repeatable.",
)
@click.option("--out", metavar="FILE", required=True, help="CSV file to write; - for standard output.")
@checkpoint_option
@click.option("--images", metavar="FOLDER", help="Image folder of a table. [default: as in training]")
@click.option("--skip-bad", is_flag=True, help="Skip unreadable images.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@trust_option
def predict(name: str | None, data: tuple[str, ...], out: str, **options: Any) -> int:
    """Predict new data with the model of RUN, the newest by default.

    Without RUN, the newest run that has a model is used, and the output says which.

    The data must be of the kind the run was trained on; it is read and scaled in the same way, and rows keep their
    order. A run on an image table with one column per class writes those columns, as competitions want them.

    A model can contain code, such as a Lambda layer or a SavedModel. Code from your own runs on this machine is
    allowed. Other code runs only with --trust, or if you confirm on a terminal.
    """
    options |= {"run": name, "data": list(data)}
    if out != _STANDARD_OUTPUT:
        return _predict(options, out)
    with tempfile.TemporaryDirectory(prefix="tpu-console-") as folder:
        path = Path(folder) / "predictions.csv"
        if code := _predict(options, str(path), is_shown=False):
            return code
        if path.with_suffix(".npz").exists():
            raise ConsoleError("Predicted images do not fit into a table.", remedy="Name a file with --out.")
        with path.open(encoding="utf-8") as file:
            say(line.rstrip("\n") for line in file)
    return 0


def _predict(options: Mapping[str, Any], out: str, *, is_shown: bool = True) -> int:
    result = run_job_with_trust("predict", {**options, "out": absolute(out)})
    if result is None:
        return 1
    (say if is_shown else complain)(_summary(result, options["run"], is_shown=is_shown))
    if not result["is_whole"]:
        complain(["Interrupted. The rows predicted so far are kept."])
        return 130
    return 0


def _summary(result: Mapping[str, Any], name: str | None, *, is_shown: bool) -> list[str]:
    """Say what was written, and with which model."""
    rows = f"{plural(result['rows'], 'row')}: {listed(result['columns'], 8)}"
    skipped = result["skipped"]
    return [
        labelled("run", run_line(name, result["run"])),
        labelled("model", user_path(Path(result["model"]))),
        *([labelled("predictions", f"{rows}, in {user_path(Path(result['out']))}")] if is_shown else []),
        *([labelled("unpredicted", f"{plural(skipped, 'unreadable image')}")] if skipped else []),
    ]


_FORMATS = ("image-csv", "image-folder")
_FLAGS = {"images": "--images", "inputs": "--id-column", "label": "--label-column"}
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
@click.option("--id-column", "inputs", metavar="NAME", help="File-name column of a CSV. [default: the first]")
@click.option(
    "--label-column",
    "label",
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
    inputs: str | None,
    label: tuple[str, ...],
    shard_mb: float,
    skip_bad: bool,
) -> int:
    """Convert the images of SOURCE into TFRecord shards in DEST.

    SOURCE is a folder with one subfolder of images per class, a CSV of file names and labels, or a preset that trains
    on either. SOURCE and DEST may be remote, such as gs://bucket/folder.

    Images are shuffled with a fixed seed and stored unchanged. Every record is verified; schema.json is written last.
    If interrupted, the same command continues with the next shard.
    """
    given = {"images": images, "inputs": inputs, "label": label or None}
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
        parts = [error.what, error.why, error.remedy]
        for key, flag in {**_FLAGS, "path": "SOURCE"}.items():  # this command has options for the configuration's keys
            parts = [part.replace(f"data.options.{key}", flag) for part in parts]
        raise ConsoleError(parts[0], why=parts[1], remedy=parts[2]) from error
    say(_shard_lines(result))
    return 0


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


def _shard_lines(result: Mapping[str, Any]) -> list[str]:
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
