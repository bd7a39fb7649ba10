"""Writes a run as plain Keras: the job of `tpu-console export --script` and `--notebook`.

Arguments are checked before Keras is imported.
"""

from __future__ import annotations

from contextlib import chdir, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.reading import load_config
from ..config.trust import is_own_source
from ..config.user_code import references_of
from ..errors import ConfigError, ConsoleError, UntrustedCodeError
from ..jobs.predicting.record import read_record
from ..process.resume import newest_run_named
from ..runs.follower import StateReader
from ..runs.run_directory import find_run
from ..storage.files import write_whole
from ..storage.paths import check_place

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..config.run_config import RunConfig
    from ..messages import Reporter
    from ..runs.run_directory import RunDirectory


_ENDINGS = {"script": ".py", "notebook": ".ipynb"}


def export_run(
    reporter: Reporter, run: str | None, out: str | None, form: str, *, force: bool = False, trust: bool = False
) -> dict[str, Any]:
    """Write a run as a script or a notebook of plain Keras; no code that its files name is run.

    `run` is as in `find_run`; a preset's name stands for its newest run. By default, the file is named after the run.

    Returns:
        The run, the file, and what differs from the run.

    Raises:
        UntrustedCodeError: The script would import code that none of the user's runs has used.
        ConsoleError: The file exists, or the run cannot be exported as code.
    """
    found = (newest_run_named(run) if run else None) or find_run(run)
    label = found.run_id[16:] if found.run_id[:8].isdecimal() else ""
    path = Path(out) if out else Path.cwd() / f"{label or found.run_id}{_ENDINGS[form]}"
    check_place(path, force=force)
    config = config_of(found)
    record = read_record(found.inputs, config.dataset) if found.inputs.exists() else {}
    state = StateReader(found).catch_up()
    with _working_folder(state.started.folder if state.started else ""):
        foreign = [name for _, name in references_of(config) if not is_own_source(name)]
        if foreign and not trust:
            raise UntrustedCodeError(
                f"The script would import {foreign[0]}, which none of your runs has used.",
                remedy="If you trust the run's author, add --trust.",
            )
        reporter.progress("writing the code", 0, None, "seconds")
        from .script import script_of

        script = script_of(config, state, record, found.run_id)
    write_whole(path, script.text if form == "script" else script.notebook)
    return {"run": found.run_id, "out": str(path), "marks": script.marks}


def _working_folder(folder: str) -> AbstractContextManager[None]:
    """Work in the folder where a run was started, where its relative paths begin."""
    return chdir(folder) if Path(folder).is_absolute() and Path(folder).is_dir() else nullcontext()


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
