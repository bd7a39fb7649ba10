"""Keeps what `tpu-console show` printed about a run that has ended.

Printing it again then needs none of the modules that read a run. It is only a cache: a page counts while nothing it was
made from has changed, which is the run's folder, the presets and this program. What is read is cleaned again, because
the cache folder may be shared.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tpu_console.engine.sanitize import printable
from tpu_console.engine.storage.caches import PAGES, make_room
from tpu_console.engine.storage.files import make_private_folder, read_text, write_whole
from tpu_console.engine.storage.paths import cache_folder, user_presets_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.engine.runs.run_directory import RunDirectory

_LARGEST, _MOST = 4 << 20, 32 << 20  # bytes of a page, and of all pages together
_PROGRAM = [Path(__file__).parents[2] / name for name in ("engine", "presets", "tui")]


class KeptPage:
    """The page of one run.

    Args:
        run: The run.
        form: What else decides how it looks, such as the width of the terminal.
    """

    def __init__(self, run: RunDirectory, *form: object) -> None:
        self._path = cache_folder() / PAGES / f"{run.run_id}.txt"
        folders = (run.path, user_presets_folder(), *_PROGRAM)
        self._made_from = repr((str(run.path), *form, *map(_stamp, folders), time.tzname, os.environ.get("HOME")))

    def read(self) -> list[str] | None:
        """Return its lines; None if there are none, or if they may be out of date."""
        try:
            made_from, *lines = read_text(self._path, _LARGEST).split("\n")
        except (OSError, ValueError):
            return None
        return [*map(printable, lines)] if made_from == self._made_from else None

    def write(self, lines: Sequence[str]) -> None:
        """Keep its lines; a folder that cannot be written is no reason to fail."""
        folder = self._path.parent
        with suppress(OSError):
            make_private_folder(folder)
            make_room([*folder.iterdir()], _MOST)
            write_whole(self._path, "\n".join([self._made_from, *lines]))


def _stamp(place: Path) -> tuple[int, int, int]:
    """Return what changes with any file under a folder: how many there are, their bytes and their times."""
    count = size = changed_ns = 0
    folders = [str(place)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name != "__pycache__":
                    status = entry.stat(follow_symlinks=False)
                    count, size, changed_ns = count + 1, size + status.st_size, changed_ns + status.st_mtime_ns
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
    return count, size, changed_ns
