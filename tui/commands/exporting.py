"""`tpu-console export`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..terminal.output import complain, say
from .options import examples, run_argument

if TYPE_CHECKING:
    from collections.abc import Mapping

_STANDARD_OUTPUT = "-"
_ENDINGS = {"script": ".py", "notebook": ".ipynb"}


@click.command(
    epilog=examples(
        "tpu-console export digits-cnn --script",
        "tpu-console export 20261120 --script train.py",
        "tpu-console export 20261120 --notebook",
        done="the file was written",
        failed="nothing was written",
    )
)
@run_argument
@click.option("--script", is_flag=False, flag_value="", metavar="[FILE]", help="Write plain Keras. [default: NAME.py]")
@click.option(
    "--notebook", is_flag=False, flag_value="", metavar="[FILE]", help="The same as a notebook. [default: NAME.ipynb]"
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def export(name: str | None, script: str | None, notebook: str | None, force: bool) -> int:
    """Write RUN as code that does not need tpu-console.

    Without RUN, the newest run is used.

    --script and --notebook write plain Keras that trains the same way: the data, the model, the devices, the optimizer,
    and the same examples in the same order. FILE may be - for standard output.
    """
    forms = {"script": script, "notebook": notebook}
    chosen = {form: file for form, file in forms.items() if file is not None}
    if len(chosen) != 1:
        raise click.UsageError("Choose one of --script and --notebook.")
    ((form, file),) = chosen.items()
    options = {"run": name, "form": form, "force": force}
    if file != _STANDARD_OUTPUT:
        return _export(options, file or f"{_default_name(name)}{_ENDINGS[form]}")
    with tempfile.TemporaryDirectory(prefix="tpu-console-") as folder:
        path = Path(folder) / "exported"
        _export(options, str(path), is_shown=False)
        say(path.read_text(encoding="utf-8").splitlines())
    return 0


def _default_name(name: str | None) -> str:
    """Return the run's name without its time, such as ``digits-cnn``."""
    from tpu_console.engine.runs.run_directory import find_run

    run_id = find_run(name).run_id
    return run_id[16:] if run_id[:8].isdecimal() and len(run_id) > 16 else run_id


def _export(options: Mapping[str, Any], out: str, *, is_shown: bool = True) -> int:
    from tpu_console.engine.storage.paths import user_path

    from ..jobs.command_job import run_job
    from ..text.tables import labelled

    path = os.path.abspath(Path(out).expanduser())  # noqa: PTH100  without following links
    result = run_job("export", {**options, "out": path})
    lines = [labelled("run", result["run"])]
    if is_shown:
        lines.append(labelled(str(options["form"]), user_path(Path(result["out"]))))
    (say if is_shown else complain)([*lines, *(labelled("differs", mark) for mark in result["marks"])])
    return 0
