"""`tpu-console export`, `predict`, `tfrecord` and `runs import`: what goes out to other tools, and comes from them."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpu_console.engine.data.places import is_remote, locate
from tpu_console.engine.errors import ConfigError, ConsoleError, Problem, did_you_mean
from tpu_console.engine.storage.paths import user_path
from tpu_console.presets import preset_files

from ..jobs.job_process import run_job
from ..terminal.output import complain, say, width_of_output
from ..text.numbers import listed, plural, size
from ..text.tables import Column, labelled, table
from .options import (
    absolute,
    checkpoint_option,
    chosen_preset,
    command,
    option,
    run_argument,
    run_job_with_trust,
    run_line,
    trust_option,
)

if TYPE_CHECKING:
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
@option("--script [FILE]", "Write plain Keras. [default: NAME.py]", is_flag=False, flag_value="")
@option("--notebook [FILE]", "The same as a notebook. [default: NAME.ipynb]", is_flag=False, flag_value="")
@option("--savedmodel DIR", "Convert the model to a SavedModel of TensorFlow.")
@option("--tflite FILE", "Convert the model to TFLite.")
@option("--onnx FILE", "Convert the model to ONNX.")
@checkpoint_option
@option("--force", "Overwrite the file or folder.")
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
    is_code = form in _CODE
    is_shown = not (is_code and file == _STANDARD_OUTPUT)
    with tempfile.TemporaryDirectory(prefix="tpu-console-") as folder:
        out = (absolute(file) if file else None) if is_shown else str(Path(folder) / "exported")
        options: dict[str, Any] = {"run": name, "form": form, "force": force, "out": out}
        options |= {} if is_code else {"checkpoint": checkpoint}
        result = run_job_with_trust("export" if is_code else "convert", options)
        if result is None:
            return 1
        lines = [labelled("run", run_line(name, result["run"]))]
        lines += [labelled("model", user_path(Path(result["model"])))] if "model" in result else []
        if is_shown:
            weighs = f", {size(result['bytes'])}" if "bytes" in result else ""
            lines.append(labelled(form, f"{user_path(Path(result['out']))}{weighs}"))
        (say if is_shown else complain)([*lines, *(labelled("differs", one) for one in result.get("differences", ()))])
        if not is_shown:
            say(Path(result["out"]).read_text(encoding="utf-8").removesuffix("\n").split("\n"))
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
@option(
    "--data PATH",
    "Data to predict: a table, images (folder or file), arrays, texts, or file.py:function. Images: repeatable.",
    multiple=True,
    required=True,
)
@option("--out FILE", "CSV file to write; - for standard output.", required=True)
@checkpoint_option
@option("--images FOLDER", "Image folder of a table. [default: as in training]")
@option("--skip-bad", "Skip unreadable images.")
@option("--force", "Overwrite FILE.")
@trust_option
def predict(name: str | None, data: tuple[str, ...], out: str, **options: Any) -> int:
    """Predict new data with the model of RUN, the newest by default.

    Without RUN, the newest run that has a model is used, and the output says which.

    The data must be of the kind the run was trained on; it is read and scaled in the same way, and rows keep their
    order. A run on an image table with one column per class writes those columns, as competitions want them.

    A model can contain code, such as a Lambda layer or a SavedModel. Code from your own runs on this machine is
    allowed. Other code runs only with --trust, or if you confirm on a terminal.
    """
    is_shown = out != _STANDARD_OUTPUT
    with tempfile.TemporaryDirectory(prefix="tpu-console-") as folder:
        path = Path(absolute(out) if is_shown else f"{folder}/predictions.csv")
        result = run_job_with_trust("predict", options | {"run": name, "data": list(data), "out": str(path)})
        if result is None:
            return 1
        rows, skipped = f"{plural(result['rows'], 'row')}: {listed(result['columns'], 8)}", result["skipped"]
        lines = [labelled("run", run_line(name, result["run"])), labelled("model", user_path(Path(result["model"])))]
        lines += [labelled("predictions", f"{rows}, in {user_path(Path(result['out']))}")] if is_shown else []
        lines += [labelled("unpredicted", plural(skipped, "unreadable image"))] if skipped else []
        (say if is_shown else complain)(lines)
        if not is_shown and path.with_suffix(".npz").exists():
            raise ConsoleError("Predicted images do not fit into a table.", remedy="Name a file with --out.")
        if not is_shown:
            say(path.read_text(encoding="utf-8").removesuffix("\n").split("\n"))
        if not result["is_whole"]:
            complain(["Interrupted. The rows predicted so far are kept."])
            return 130
    return 0


_FORMATS = ("image-csv", "image-folder")
_FLAGS = {"images": "--images", "inputs": "--id-column", "label": "--label-column", "path": "SOURCE"}
"""What `tfrecord` calls keys of the configuration."""
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
@option("--images FOLDER", "Image folder of a CSV. [default: images, beside the CSV]")
@option("--id-column NAME", "File-name column of a CSV. [default: the first]", "inputs")
@option(
    "--label-column NAME",
    "Label column of a CSV; repeat for one column per class. [default: all but the first]",
    "label",
    multiple=True,
)
@option(
    "--shard-mb MB",
    f"Approximate shard size, {_SMALLEST_MB} to {_LARGEST_MB}.",
    type=click.FloatRange(_SMALLEST_MB, _LARGEST_MB),
    default=_USUAL_MB,
    show_default=True,
)
@option("--skip-bad", "Skip images that are missing or unreadable.")
@trust_option
def tfrecord(source: str, dest: str, label: tuple[str, ...], shard_mb: float, skip_bad: bool, **options: Any) -> int:
    """Convert the images of SOURCE into TFRecord shards in DEST.

    SOURCE is a folder with one subfolder of images per class, a CSV of file names and labels, or a preset that trains
    on either. SOURCE and DEST may be remote, such as gs://bucket/folder.

    Images are shuffled with a fixed seed and stored unchanged. Every record is verified; schema.json is written last.
    If interrupted, the same command continues with the next shard.
    """
    from tpu_console.engine.data.kinds.formats import config_for

    dataset, known = _FORMATS[not _is_table(source)], {"path": source}
    if (preset := _preset(source)) is not None:
        dataset, known = preset.config.dataset, preset.config.data.options
    if dataset not in _FORMATS:
        raise click.UsageError(f"{source} trains on {dataset}; only {' and '.join(_FORMATS)} can be converted.")
    given = options | {"label": label or None, "skip_bad": skip_bad or None}
    options = known | {key: value for key, value in given.items() if value is not None}

    def with_flags(text: str) -> str:
        for key, flag in _FLAGS.items():
            text = text.replace(f"data.options.{key}", flag)
        return text

    destination = dest if is_remote(dest) else absolute(dest)
    try:
        config_for(dataset, options)
        result = run_job(
            "tfrecord",
            {"dataset": dataset, "options": options, "destination": destination, "shard_mb": shard_mb},
            when_interrupted="Finished shards are kept; the same command continues with the next one.",
        )
    except ConfigError as error:
        raise ConfigError([Problem("", with_flags(str(problem))) for problem in error.problems]) from error
    except ConsoleError as error:
        what, why, remedy = map(with_flags, (error.what, error.why, error.remedy))
        raise ConsoleError(what, why=why, remedy=remedy) from error
    total, kept = result["images"], result["shards"] - result["written"]
    place = destination if is_remote(destination) else user_path(Path(destination))
    skipped = f"; {result['left_out']:,} skipped" if result["left_out"] else ""
    there = f", {kept:,} of them already there" if kept else ""
    counts = zip(result["classes"], result["class_counts"], strict=True)
    rows = [[name, f"{count:,}", f"{100 * count / total:.1f}%"] for name, count in counts]
    columns = [Column("class", 9), Column("images", 8, right=True), Column("share", 5, right=True)]
    say([labelled("shards", f"{plural(result['shards'], 'shard')} of {size(result['bytes'])} in {place}{there}"),
         labelled("images", f"{total:,}, all verified{skipped}"),
         labelled("to train", f'dataset = "tfrecord" and data.options.path = "{place}"'),
         "",
         *table(columns, rows, width_of_output())])  # fmt: skip
    return 0


def _is_table(source: str) -> bool:
    return source.lower().endswith((".csv", ".csv.gz"))


def _preset(source: str) -> Preset | None:
    """Return the preset that a source names; a file or folder of the same name takes precedence."""
    if source.endswith(".toml"):
        return chosen_preset(source)
    if is_remote(source) or os.sep in source or _is_table(source) or not source or Path(locate(source)).exists():
        return None
    names = preset_files()
    if source not in names:
        raise click.UsageError(f"There is no folder and no preset '{source}'; {did_you_mean(source, names)}")
    return chosen_preset(source)
