"""What `tpu-console runs show` says of a run, as plain values; those of a finished run are kept in the cache folder.

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

UNREADABLE = (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError)
"""What reading an entry may raise, and making use of it."""

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
    """What there is to show of a run, whatever the terminal is."""

    # Its most important facts. ``started`` is followed by the local time of `started_at`.
    head: Sequence[tuple[str, str]]
    sections: dict[str, ShownSection]  # further facts by title
    epochs: Sequence[Sequence[str]]  # the table of epochs: one row per epoch, below a row with the titles
    started_at: float | None  # Unix time of its first event; None if it has none
    report_problem: str  # why its class scores cannot be read; empty if they can
    values: dict[str, Any]  # what ``--json`` prints; the class scores are in ``classes``


def find_shown(run: RunDirectory) -> ShownRun | None:
    """Return what is kept of a run; None if there is nothing or one of its files has changed."""
    path = _place(run)
    try:
        stamp, values = read_kept(path)
        sections = {title: ShownSection(**facts) for title, facts in values.pop("sections").items()}
        shown = ShownRun(sections=sections, **values)
        if stamp != stamp_of(run):
            return None
        os.utime(path)  # used last
    except UNREADABLE:
        return None
    return shown


def keep_shown(run: RunDirectory, shown: ShownRun, stamp: Sequence[object]) -> None:
    """Keep what was read of a run after `stamp_of` was; a folder that cannot be written is no reason to fail."""
    write_kept(_place(run), [stamp, asdict(shown)])


def read_kept(path: Path) -> Any:
    """Return the plain values in an entry of the cache; raise one of `UNREADABLE` if that is not possible."""
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise PermissionError(path)
        checksum, _, content = file.read().partition(b"\n")
    if int(checksum) != zlib.crc32(content):
        raise ValueError(path)
    return json.loads(content)


def write_kept(path: Path, values: Any) -> None:
    """Write an entry of the cache; a folder that cannot be written is no reason to fail."""
    from tpu_console.engine.storage.caches import make_room
    from tpu_console.engine.storage.files import make_private_folder, open_private, remove_drafts, whole_file

    with suppress(OSError, ValueError, TypeError):
        content = json.dumps(values).encode()
        make_private_folder(path.parent)
        remove_drafts(path.parent)
        make_room([entry for entry in path.parent.glob("*.json") if entry != path], _MOST_BYTES, len(content))
        with whole_file(path, is_synced=False) as draft, open(draft, "wb", opener=open_private) as file:
            file.write(b"%d\n%b" % (zlib.crc32(content), content))


def stamp_of(run: RunDirectory) -> list[Any]:
    """Return what changes with everything that the values are read from, and with the code that reads them."""
    files = (run.journal, run.config, run.report, cache_folder() / "preflight.json")
    return [os.fsdecode(run.path), code_stamp(_CODE), *map(stamp_of_file, files)]


def code_stamp(folders: Sequence[str]) -> int:
    """Return what changes with the modules and presets in folders of the package, and with the user's presets."""
    places = (*(_PACKAGE / folder for folder in folders), user_presets_folder())
    return zlib.crc32(repr(sorted(entry for place in places for entry in _files_in(place))).encode())


def stamp_of_file(path: Path) -> list[int]:
    """Return what changes with a file; empty if there is none."""
    try:
        status = path.stat()
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _place(run: RunDirectory) -> Path:
    return cache_folder() / "shown" / f"{run.path.name}.json"


def _files_in(folder: Path) -> list[tuple[str, int, int]]:
    try:
        entries = [entry for entry in os.scandir(folder) if entry.name.endswith((".py", ".toml"))]
        return [(entry.path, entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries]
    except OSError:
        return []
