"""The files that a run has written for its user."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpu_console.engine.storage.paths import user_path

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory


def output_places(run: RunDirectory) -> dict[str, Path]:
    """Return the paths of the run's outputs that exist, by name."""
    places = {
        "model": run.model,
        "best model": run.checkpoints / "best.keras",
        "weights": run.model.with_suffix(".weights.h5"),
        "best weights": run.checkpoints / "best.weights.h5",
        "history": run.history,
        "summary": run.summary,
        "class report": run.report,
        "tensorboard": run.tensorboard,
        "log": run.log,
    }
    return {name: path for name, path in places.items() if path.exists()}


def output_pairs(run: RunDirectory) -> list[tuple[str, str]]:
    """Return the names of the run's outputs and their paths, shortened for display."""
    return [(name, user_path(path)) for name, path in output_places(run).items()]
