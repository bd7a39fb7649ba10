"""Moves runs to a trash folder and back: ``.trash`` in the folder of the runs, so that moving is one rename."""

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import ConsoleError, RunNotFoundError, did_you_mean
from ..runs.follower import StateReader
from ..runs.heartbeat import Liveness, liveness_of
from ..runs.run_directory import RunDirectory, RunningError, list_runs, lock_run
from ..storage.files import LinkError, inside, make_private_folder
from ..storage.paths import runs_folder, user_path


def trash_of(folder: Path | None = None) -> Path:
    """Return the trash of a folder of runs, by default the user's; raise `ConsoleError` if it is a link."""
    try:
        return inside(folder or runs_folder(), ".trash/")
    except LinkError as error:
        raise ConsoleError(f"The trash cannot be used: {user_path(Path(error.filename))} is a link.") from None


def _has_ended(run: RunDirectory) -> bool:
    with suppress(OSError):
        return StateReader(run).catch_up().end is not None
    return False


def delete_runs(runs: Sequence[RunDirectory]) -> list[RunDirectory]:
    """Move runs to the trash of their folder, and return where they are now.

    Raises `RunningError` if one of them trains, and none is moved, or `ConsoleError` if one cannot be moved.
    """
    locks: list[int] = []
    try:
        for run in runs:
            # A process may live a little longer than its last event: the lock says whether it still writes.
            if liveness_of(run) is not Liveness.DEAD and not _has_ended(run):
                raise RunningError(run)
            try:
                locks.append(lock_run(run))
            except RunningError:
                raise
            except ConsoleError:  # a folder that cannot be locked cannot be resumed either
                continue
        return [_moved(run, trash_of(run.path.parent)) for run in runs]
    finally:
        for lock in locks:
            os.close(lock)


def _moved(run: RunDirectory, folder: Path) -> RunDirectory:
    try:
        make_private_folder(folder)
        path, number = folder / run.path.name, 1
        while os.path.lexists(path):
            number += 1
            path = folder / f"{run.path.name}-{number}"
        run.path.rename(path)
    except OSError as error:
        why = error.strerror or error
        raise ConsoleError(f"{run.run_id} cannot be moved to {user_path(folder)}: {why}.") from error
    return RunDirectory(path)


def deleted_runs(folder: Path | None = None) -> list[RunDirectory]:
    """Return the runs in the trash of a folder, newest first."""
    return list_runs(trash_of(folder))


def restore_run(name: str, folder: Path | None = None) -> RunDirectory:
    """Move a run from the trash back to where it was, and return it; the folder is that of all runs.

    Raises `RunNotFoundError` if none or several have that name, or it as a part of theirs, or `ConsoleError`.
    """
    runs = deleted_runs(folder)
    matching = [run for run in runs if run.run_id == name] or [run for run in runs if name in run.run_id]
    if len(matching) != 1:
        what = f"'{name}' matches {len(matching)} runs" if matching else f"There is no run '{name}'"
        hint = did_you_mean(name, [run.run_id for run in runs[:20]]) if runs and not matching else ""
        raise RunNotFoundError(
            f"{what} in the trash{f'; {hint}' if hint else '.'}", remedy="`tpu-console runs --deleted` lists them."
        )
    return _moved(matching[0], matching[0].path.parent.parent)


def empty_trash(folder: Path | None = None) -> int:
    """Delete everything in the trash for good; return how many runs that were."""
    trash, count = trash_of(folder), len(deleted_runs(folder))
    try:
        if trash.exists():
            shutil.rmtree(trash)
    except OSError as error:
        why = error.strerror or str(error)
        raise ConsoleError(f"The trash cannot be emptied: {user_path(trash)}: {why}.") from error
    return count
