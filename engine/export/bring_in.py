"""Imports the trainings of other tools as runs: the job of `tpu-console runs import`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConsoleError
from ..storage.paths import user_path
from .csv_logs import read_csv_log
from .event_files import is_event_file, read_events, trainings
from .other_runs import Recorded, digest_of, imported_before, make_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..messages import Reporter

_MOST_FILES = 10_000


def import_runs(reporter: Reporter, places: Sequence[str]) -> dict[str, Any]:
    """Import event files and CSV logs; folders are searched.

    Returns:
        The runs, each with its source and whether it was imported before, and the errors of broken files.

    Raises:
        ConsoleError: There is nothing to import.
    """
    found = [source for place in places for source in _sources(Path(place))]
    runs: list[dict[str, Any]] = []
    errors: list[str] = []
    for number, (files, read) in enumerate(found):
        reporter.progress("importing", number, len(found), "trainings")
        try:
            digest = digest_of(files)
            known = imported_before(digest)
            run = known or make_run(read(), digest)
            runs.append({"run": run.run_id, "source": user_path(files[0]), "is_known": known is not None})
        except ConsoleError as error:
            errors.append(str(error))
        except OSError as error:
            errors.append(f"{user_path(files[0])} cannot be read: {error.strerror}.")
    reporter.progress("importing", len(found), len(found), "trainings")
    return {"runs": runs, "errors": errors}


def _sources(place: Path) -> list[tuple[list[Path], Callable[[], Recorded]]]:
    """Return the trainings in a file or folder, each with its files and the function that reads them."""
    try:
        place.stat()
    except OSError as error:
        raise ConsoleError(f"{user_path(place)} cannot be read: {error.strerror}.") from error
    files = [place]
    if place.is_dir():
        files = []
        for path in place.rglob("*"):
            if path.is_file() and not path.is_symlink() and (is_event_file(path) or path.suffix == ".csv"):
                files.append(path)
            if len(files) > _MOST_FILES:
                raise ConsoleError(f"{user_path(place)} holds more than {_MOST_FILES:,} files of trainings.")
    found: list[tuple[list[Path], Callable[[], Recorded]]] = []
    groups = trainings([path for path in files if is_event_file(path)])
    found += [(parts, partial(read_events, folder, parts)) for folder, parts in groups.items()]
    logs = [path for path in sorted(files) if path.suffix == ".csv" and (path == place or _is_log(path))]
    found += [([path], partial(read_csv_log, path)) for path in logs]
    if not found:
        raise ConsoleError(
            f"{user_path(place)} holds nothing to import.",
            remedy="To import: TensorBoard's event files, and the CSV files of Keras's CSVLogger.",
        )
    return found


def _is_log(path: Path) -> bool:
    """Return whether a CSV file in a folder looks like that of `CSVLogger`."""
    try:
        with path.open("rb") as file:
            header = file.readline(4096)
    except OSError:
        return False
    return bool(re.match(rb"(\xef\xbb\xbf)?epoch[,;\t]", header))
