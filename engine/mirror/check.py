"""What can be said about a mirror without TensorFlow, so that a plan and a command can say it at once."""

from __future__ import annotations

import os
from pathlib import Path

from ..config.mirror import is_bucket

MARKER = "mirror.json"
"""A file that a run's folder has at a mirror only."""


def mirror_problem(mirror: str) -> str:
    """Return why a mirror cannot be written, in a few words; empty if it can, or if only a run can know."""
    if not mirror or is_bucket(mirror):
        return ""
    folder = Path(mirror).expanduser()
    if not folder.is_dir():
        # It is never created: without its disk, the copy would fill the one it is mounted on.
        return "it is no folder" if folder.exists() else "the folder does not exist"
    return "" if os.access(folder, os.W_OK | os.X_OK) else "the folder cannot be written"


def is_at_mirror(name: str) -> bool:
    """Return whether the name of a run is that of its copy at a mirror."""
    return is_bucket(name) or (os.sep in name and (Path(name).expanduser() / MARKER).is_file())
