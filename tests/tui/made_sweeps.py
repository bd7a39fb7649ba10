"""Writes sweeps with finished runs in a moment, for tests of their tables and their screen."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.tui.made_runs import made_run
from tpu_console.engine.sweeps.cells import cells_of, parse_axes
from tpu_console.engine.sweeps.folder import Definition, Sweep, create_sweep
from tpu_console.presets.catalog import find_preset


def made_sweep(
    over: Sequence[str] = ("accelerator=cpu,sim:8", "batch_size=16,32"),
    speeds: Mapping[int, float] | None = None,
    scores: Mapping[int, float] | None = None,
    **options: Any,
) -> Sweep:
    """Write a sweep of digits: speeds and best accuracies by number of the cell; one without a speed is untrained."""
    definition = Definition(config=find_preset("digits-cnn").config, over=tuple(over), **options)
    sweep = create_sweep(definition)
    cells = [] if definition.search else cells_of(definition.config, parse_axes(over), definition.repeat)
    for cell in cells:
        if cell.number in (speeds or {}) and cell.config is not None:
            best = (scores or {}).get(cell.number, 0.9)
            replicas = cell.config.requested.simulated or 1
            changes = cell.config.model_dump(include={"batch_size", "accelerator", "seed"})
            logs = [{"val_accuracy": best / 2}, {"val_accuracy": best}]
            run = made_run(logs, speed=(speeds or {})[cell.number], replicas=replicas, **changes)
            sweep.note(cell.number, run)
    return sweep
