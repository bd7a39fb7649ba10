"""The files that a run has written for its user."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tpu_console.engine.storage.files import inside
from tpu_console.engine.storage.paths import user_path

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory


def output_places(run: RunDirectory) -> dict[str, Path]:
    """Return the paths of the run's outputs that exist, by name."""
    names = {
        "model": "model.keras",
        "best model": "checkpoints/best.keras",
        "weights": "model.weights.h5",
        "best weights": "checkpoints/best.weights.h5",
        "history": "history.csv",
        "summary": "summary.json",
        "class report": "report.json",
        "tensorboard": "tensorboard/",
        "log": "console.log",
    }
    found = {}
    for name, file in names.items():
        with suppress(OSError):  # its folder is a link
            if (path := inside(run.path, file)).exists() and not path.is_symlink():
                found[name] = path
    return found


def output_pairs(run: RunDirectory) -> list[tuple[str, str]]:
    """Return the names of the run's outputs and their paths, shortened for display."""
    return [(name, user_path(path)) for name, path in output_places(run).items()]
