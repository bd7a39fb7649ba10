"""Caches the facts of journals in the cache folder, so that the next list is fast.

It is only a cache: an entry counts while its journal has the size, time and inode it had, and anything that is wrong
with the file means that the journals are read again. Whether a run is alive is never kept.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import orjson

from tpu_console.engine.storage.files import make_private_folder, read_bytes, write_whole
from tpu_console.engine.storage.paths import cache_folder

from .run_facts import Facts, facts_from

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

Stamp = tuple[int, int, int]
"""Size in bytes, time of the last change in nanoseconds, and inode of a journal."""

_VERSION = 2
_LARGEST_BYTES = 16 << 20
_MOST_RUNS = 10_000
"""So many entries of about 600 bytes are kept, those of the newest runs; older ones are read again each time."""


class RunIndex:
    """The facts of the runs of one list, the newest first; entries of other runs are dropped.

    An index of another folder does not fit. For each run, `entries` has a stamp and facts, not yet checked.
    """

    def __init__(self, folder: str, names: Sequence[str], entries: dict[str, object]) -> None:
        self._folder = folder
        self._names = names[:_MOST_RUNS]
        self._entries = entries
        self._is_changed = not set(entries) <= set(self._names)

    @classmethod
    def load(cls, runs: Sequence[RunDirectory]) -> RunIndex:
        """Read what is known of runs of one folder; nothing when the file is missing, damaged or does not fit."""
        folder = str(runs[0].path.parent) if runs else ""
        return cls(folder, [run.run_id for run in runs], _read(folder))

    def find(self, run: RunDirectory, stamp: Stamp | None) -> Facts | None:
        """Return what a journal said; None when it is not known or has changed since."""
        entry = self._entries.get(run.run_id)
        if stamp is None or not isinstance(entry, dict) or entry.get("stamp") != [*stamp]:
            return None
        return facts_from(entry.get("facts"))

    def put(self, run: RunDirectory, stamp: Stamp, facts: Facts) -> None:
        """Note what a journal says.

        The stamp was taken before it was read, so that what came meanwhile is read again.
        """
        self._entries[run.run_id] = {"stamp": [*stamp], "facts": facts.as_dict()}
        self._is_changed = True

    def save(self) -> None:
        """Write the index if something changed; a folder that cannot be written is no reason to fail."""
        if not self._is_changed:
            return
        kept = {name: self._entries[name] for name in self._names if name in self._entries}
        content = orjson.dumps({"version": _VERSION, "folder": self._folder, "runs": kept})
        with suppress(OSError):
            make_private_folder(_path().parent)
            write_whole(_path(), content)
            self._is_changed = False


def _path() -> Path:
    return cache_folder() / "runs.json"


def _read(folder: str) -> dict[str, object]:
    try:
        index = orjson.loads(read_bytes(_path(), _LARGEST_BYTES))
    except (OSError, ValueError):
        return {}
    if not isinstance(index, dict) or (index.get("version"), index.get("folder")) != (_VERSION, folder):
        return {}
    runs = index.get("runs")
    return runs if isinstance(runs, dict) else {}
