"""Removes what a run's process leaves behind if it is killed: decoded examples, drafts."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

from ..storage.files import inside, remove_drafts
from .liveness import Liveness, look_once
from .run_directory import list_runs

if TYPE_CHECKING:
    from .run_directory import RunDirectory


def discard_cache(run: RunDirectory) -> None:
    """Delete a run's decoded examples; no other run can use them."""
    with suppress(OSError):
        shutil.rmtree(run.cache)


def discard_leftovers(run: RunDirectory) -> None:
    """Delete what an earlier process of a run left behind; only the process that has its lock may do that."""
    discard_cache(run)
    for folder in ("", "checkpoints/", "control/"):
        with suppress(OSError):
            remove_drafts(inside(run.path, folder), is_owner=True)


def runs_with_old_caches() -> list[RunDirectory]:
    """Return the runs with decoded examples that no process uses any more."""
    caches = {run: inside(run.path, "cache") for run in list_runs()}
    runs = [run for run, cache in caches.items() if cache.is_dir() and not cache.is_symlink()]
    return [run for run, life in zip(runs, look_once(runs), strict=True) if life.liveness is Liveness.DEAD]
