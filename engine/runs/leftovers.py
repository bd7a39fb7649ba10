"""Removes what runs leave behind: decoded examples, drafts, reserved space."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from ..storage.files import drafts_in
from .liveness import Liveness, liveness_of
from .run_directory import RunDirectory, list_runs

if TYPE_CHECKING:
    from pathlib import Path


def discard_cache(run: RunDirectory) -> None:
    """Delete a run's decoded examples; no other run can use them."""
    shutil.rmtree(run.cache, ignore_errors=True)


def discard_leftovers(folder: Path) -> None:
    """Delete the caches, drafts and reserved space of killed runs in the folder of all runs."""
    for run in list_runs(folder):
        drafts = [draft for place in (run.path, run.checkpoints, run.control) for draft in drafts_in(place)]
        leftovers = [path for path in (run.reserved_space, *drafts) if path.exists()]
        if (leftovers or run.cache.is_dir()) and liveness_of(run) is Liveness.DEAD:
            discard_cache(run)
            for leftover in leftovers:
                with suppress(OSError):
                    leftover.unlink()
