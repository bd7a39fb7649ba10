"""Checks a mirror without TensorFlow, so that a plan and a command need not wait for its import."""

from __future__ import annotations

import os
from pathlib import Path

from ..config.values import is_bucket

MARKER = "mirror.json"
"""A file that only the copy of a run at a mirror has."""


def mirror_problem(mirror: str) -> str:
    """Return why a mirror cannot be written, in a few words; empty if it can, or if only a run can know."""
    if not mirror or is_bucket(mirror):
        return ""
    folder = Path(mirror).expanduser()
    if not folder.is_dir():
        # It is never created: if its disk is not mounted, the copy would fill the disk below.
        return "it is not a folder" if folder.exists() else "the folder does not exist"
    return "" if os.access(folder, os.W_OK | os.X_OK) else "the folder cannot be written"


def is_at_mirror(name: str) -> bool:
    """Return whether the name of a run is that of its copy at a mirror."""
    return is_bucket(name) or (os.sep in name and (Path(name).expanduser() / MARKER).is_file())
