"""Writes a run as plain Keras: the job of `tpu-console export --script` and `--notebook`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.reading import load_config
from ..errors import ConfigError, ConsoleError
from ..jobs.predicting.record import read_record
from ..runs.follower import StateReader
from ..runs.run_directory import find_run
from ..storage.files import write_whole
from ..storage.paths import user_path
from .script import script_of

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..messages import Reporter
    from ..runs.run_directory import RunDirectory


def export_run(reporter: Reporter, run: str | None, out: str, form: str, *, force: bool = False) -> dict[str, Any]:
    """Write a run as a script or a notebook of plain Keras; no code that its files name is run.

    Returns:
        The run, the file, and what differs from the run.

    Raises:
        ConsoleError: The file exists, or the run cannot be exported as code.
    """
    path = Path(out)
    check_place(path, force=force)
    found = find_run(run)
    reporter.progress("writing the code", 0, None, "seconds")
    config = config_of(found)
    record = read_record(found.inputs, config.dataset) if found.inputs.exists() else {}
    script = script_of(config, StateReader(found).catch_up(), record, found.run_id)
    write_whole(path, script.text if form == "script" else script.notebook)
    return {"run": found.run_id, "out": str(path), "marks": script.marks}


def check_place(path: Path, *, force: bool) -> None:
    """Raise `ConsoleError` if a file or folder must not be written."""
    if path.exists() and not force:
        raise ConsoleError(f"{user_path(path)} exists already.", remedy="Choose another name, or replace it: --force")
    if not path.parent.is_dir():
        raise ConsoleError(f"There is no folder {user_path(path.parent)}.", remedy="Create it, or choose another one.")


def config_of(run: RunDirectory) -> RunConfig:
    """Return a run's configuration; raise `ConsoleError` if it has none."""
    try:
        return load_config(run.config)
    except ConfigError as error:
        if run.config.exists():
            raise
        raise ConsoleError(
            f"The run {run.run_id} has no configuration.",
            why="It was trained by a notebook or script, or imported.",
            remedy="Its code is there.",
        ) from error
