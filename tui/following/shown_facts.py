"""What `tpu-console show` says of a run, as plain values; those of a finished run are kept in the cache folder.

They are what the run's own files say: how it is laid out, its annotations, its outputs and the local time are looked up
for every page. It is only a cache: an entry counts while all files it was read from are as they were.
"""

from __future__ import annotations

import json
import os
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpu_console.engine.storage.files import open_regular
from tpu_console.engine.storage.paths import cache_folder, user_presets_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.run_directory import RunDirectory

_MOST_BYTES = 32 << 20
_PACKAGE = Path(__file__).parents[2]
_CODE = ("engine/config", "engine/runs", "presets", "tui/following", "tui/text")  # what the values are made by


@dataclass(frozen=True, slots=True)
class ShownSection:
    """What stands under one title: names with their values, and whole lines below them."""

    pairs: Sequence[tuple[str, str]] = ()
    lines: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ShownRun:
    """What there is to show of a run, whatever the terminal is.

    Args:
        head: Its most important facts. ``started`` is followed by the local time of `started_at`.
        sections: Further facts by title.
        epochs: The table of epochs: one row per epoch, below a row with the titles.
        started_at: Unix time of its first event; None if it has none.
        report_problem: Why its class scores cannot be read; empty if they can.
        values: What ``--json`` prints; the class scores are in ``classes``.
    """

    head: Sequence[tuple[str, str]]
    sections: dict[str, ShownSection]
    epochs: Sequence[Sequence[str]]
    started_at: float | None
    report_problem: str
    values: dict[str, Any]


def find_shown(run: RunDirectory) -> ShownRun | None:
    """Return what is kept of a run; None if there is nothing or one of its files has changed."""
    path = _place(run)
    try:
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            checksum, _, content = file.read().partition(b"\n")
        if int(checksum) != zlib.crc32(content):
            return None
        stamp, values = json.loads(content)
        sections = {title: ShownSection(**facts) for title, facts in values.pop("sections").items()}
        shown = ShownRun(sections=sections, **values)
        if stamp != stamp_of(run):
            return None
        os.utime(path)  # used last
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    return shown


def keep_shown(run: RunDirectory, shown: ShownRun, stamp: Sequence[object]) -> None:
    """Keep what was read of a run; a folder that cannot be written is no reason to fail.

    Args:
        run: The run.
        shown: What was read.
        stamp: From `stamp_of`, taken before that.
    """
    from tpu_console.engine.storage.caches import make_room
    from tpu_console.engine.storage.files import make_private_folder, open_private, remove_drafts, whole_file

    path = _place(run)
    with suppress(OSError, ValueError, TypeError):
        content = json.dumps([stamp, asdict(shown)]).encode()
        make_private_folder(path.parent)
        remove_drafts(path.parent)
        make_room([entry for entry in path.parent.glob("*.json") if entry != path], _MOST_BYTES, len(content))
        with whole_file(path, is_synced=False) as draft, open(draft, "wb", opener=open_private) as file:
            file.write(b"%d\n%b" % (zlib.crc32(content), content))


def stamp_of(run: RunDirectory) -> list[Any]:
    """Return what changes with everything that the values are read from, and with the code that reads them."""
    files = (run.journal, run.config, run.report, cache_folder() / "preflight.json")
    folders = (*(_PACKAGE / folder for folder in _CODE), user_presets_folder())
    found = [entry for folder in folders for entry in _files_in(folder)]
    return [os.fsdecode(run.path), zlib.crc32(repr(sorted(found)).encode()), *map(_stamp, files)]


def _place(run: RunDirectory) -> Path:
    return cache_folder() / "shown" / f"{run.path.name}.json"


def _stamp(path: Path) -> list[int]:
    try:
        status = path.stat()
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _files_in(folder: Path) -> list[tuple[str, int, int]]:
    try:
        entries = [entry for entry in os.scandir(folder) if entry.name.endswith((".py", ".toml"))]
        return [(entry.path, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries]
    except OSError:
        return []
