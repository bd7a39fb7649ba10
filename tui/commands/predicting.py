"""`tpu-console predict`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpu_console.engine.errors import ConsoleError

from ..terminal.output import complain, say
from .options import absolute, checkpoint_option, examples, run_argument, trust_option
from .trusting import run_job_with_trust, run_line

if TYPE_CHECKING:
    from collections.abc import Mapping

_STANDARD_OUTPUT = "-"


@click.command(
    epilog=examples(
        "tpu-console predict --data test.csv --out submission.csv",
        "tpu-console predict 20261120 --data photos/ --out out.csv --skip-bad",
        "tpu-console predict digits-cnn --data scans.npy --out - | head",
        "tpu-console predict ~/flowers-run --data photos/ --out out.csv --trust",
        done="the predictions were written",
        failed="nothing was written",
    )
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
    return 0


def _summary(result: Mapping[str, Any], name: str | None, *, is_shown: bool) -> list[str]:
    """Say what was written, and with which model."""
    from tpu_console.engine.storage.paths import user_path

    from ..text.numbers import listed, plural
    from ..text.tables import labelled

    rows = f"{plural(result['rows'], 'row')}: {listed(result['columns'], 8)}"
    skipped = result["skipped"]
    return [
        labelled("run", run_line(name, result["run"])),
        labelled("model", user_path(Path(result["model"]))),
        *([labelled("predictions", f"{rows}, in {user_path(Path(result['out']))}")] if is_shown else []),
        *([labelled("unpredicted", f"{plural(skipped, 'unreadable image')}")] if skipped else []),
    ]
