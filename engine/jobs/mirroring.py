"""Copies a run to its mirror and back, in a process that may load TensorFlow: nothing else can reach a bucket."""

import os
from pathlib import Path
from typing import Any

from ..config.reading import load_config
from ..config.user_code import check_started
from ..errors import ConsoleError
from ..messages import Reporter
from ..mirror.copier import Copier, MirrorTakenError, fetch_run, newest_named
from ..mirror.places import open_place
from ..process.launch import lock_run
from ..runs.events import MirrorReported
from ..runs.follower import StateReader
from ..runs.journal import JournalWriter
from ..runs.run_directory import RunDirectory
from ..storage.paths import runs_folder


def fetch(reporter: Reporter, place: str, label: str = "") -> dict[str, Any]:
    """Copy a run from its mirror; return its path here, and where it was.

    The place is the run's folder at the mirror. With a label it is the mirror, and the newest run with it is copied;
    the result is empty if there is none.
    """
    place = (newest_named(place, label) or "") if label else place
    if not place:
        return {}
    run = fetch_run(place, runs_folder(), lambda name: reporter.progress(f"copying {name}", 0, None, "seconds"))
    return {"run": str(run.path), "place": place}


def copy(reporter: Reporter, run: str, *, trust: bool = False) -> dict[str, Any]:
    """Copy a run that does not train to its mirror; return the place.

    Raises `UntrustedCodeError` if the user did not start it, and it is not trusted, and `ConsoleError` if it has no
    mirror, still trains, or the mirror cannot be written.
    """
    directory = RunDirectory(Path(run))
    config = load_config(directory.config)
    if not (mirror := config.mirror):
        remedy = "Set one when you resume it: tpu-console resume --set mirror=…"
        raise ConsoleError(f"{directory.run_id} has no mirror.", remedy=remedy)
    if not trust:
        check_started(directory.run_id, config)
    lock = lock_run(directory)
    try:
        place = open_place(f"{mirror.rstrip('/')}/{directory.path.name}")
        copier = Copier(directory, place)
        reporter.progress(f"copying to {place.name}", 0, None, "seconds")
        copier.copy()
        ended_at = StateReader(directory).catch_up().last_at
        journal = JournalWriter(directory.journal, lambda: ended_at)  # the run itself took no longer
        journal.write(MirrorReported(place.name, copier.epoch))
        journal.close()
        copier.copy()
    except MirrorTakenError as error:
        raise ConsoleError(f"{error}.") from error
    except OSError as error:
        raise ConsoleError(f"{mirror} cannot be written: {error.strerror or error}.") from error
    finally:
        os.close(lock)
    return {"place": place.name}
