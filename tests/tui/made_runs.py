"""Makes runs, sweeps, class reports and curves in a moment, without training."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.helpers import leave_dead
from tpu_console.engine.config.run_config import RunConfig, journal_values, to_toml
from tpu_console.engine.runs import events
from tpu_console.engine.runs.class_report import ClassReport, ClassScore, Mistake
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.metrics import metric_called
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.engine.storage.files import write_whole
from tpu_console.engine.sweeps.cells import cells_of, parse_axes
from tpu_console.engine.sweeps.folder import Definition, Sweep, create_sweep
from tpu_console.presets.catalog import find_preset
from tpu_console.tui.charts.curve import Curve, FloatArray

DONE = events.RunFinished("completed", "All epochs are done.", {})


def made_run(
    logs: Sequence[Mapping[str, float]] = ({"val_accuracy": 0.5}, {"val_accuracy": 0.9}),
    *,
    label: str = "digits-cnn",
    end: events.RunFinished | events.RunFailed | None = DONE,
    stop: str = "",
    monitor: str = "val_accuracy",
    replicas: int = 1,
    device: str = "CPU",
    speed: float = 1000.0,
    has_config: bool = True,
    **changes: Any,
) -> RunDirectory:
    """Write a run as the engine would: each of `logs` is an epoch of 2 seconds, the first one of 5.

    The preset called `label`, if there is one, with some `changes` is its configuration; without an `end`, its process
    is gone. `stop` says who asked it to stop.
    """
    run = create_run(label)
    preset = find_preset("digits-cnn").config
    config = RunConfig.model_validate(preset.model_dump() | {"name": label} | changes)
    settings = journal_values(config) if has_config else {}
    if has_config:
        write_whole(run.config, to_toml(config))
    at = iter(range(1_790_000_000, 1_800_000_000, 10))
    journal = JournalWriter(run.journal, clock=lambda: float(next(at)))
    kind = device.split(maxsplit=1)[0].lower()
    devices = tuple(events.Replica(i, f"{kind}:{i}", device, "here") for i in range(replicas))
    accelerator = f"sim:{replicas}" if kind == "cpu" and replicas > 1 else kind
    journal.write(events.RunStarted(label, "host", 1, "here", settings))
    journal.write(events.AcceleratorReady(accelerator, "why", "one", devices, {}))
    batch = config.batch_size
    journal.write(events.FitStarted(len(logs), 10, batch * replicas, batch, 1, monitor=monitor))
    for number, values in enumerate(logs, 1):
        seconds = 5.0 if number == 1 else 2.0
        done, elapsed_s = number * 10, 3.0 + 2.0 * number
        training = {name: value for name, value in values.items() if not name.startswith("val_")}
        journal.write(events.Progress(number, 5, done - 5, elapsed_s - 1, training or {"loss": 1.0}))
        journal.write(events.EpochEnded(number, done, 10, elapsed_s, seconds, 0, 0, 1, speed, 0.1, dict(values)))
    if stop:
        journal.write(events.StopRequested(stop))
    if end is not None:
        journal.write(end)
    else:
        leave_dead(run)
    journal.close()
    return run


def made_curve(
    name: str, values: Sequence[float] | FloatArray, steps: Sequence[float] | None = None, *, running: bool = False
) -> Curve:
    """A curve with a sample at each step, or at some of them; an epoch has 100 steps, and each takes 2 seconds."""
    step = np.arange(1.0, len(values) + 1) if steps is None else np.array(steps, dtype=np.float64)
    value, is_validation = np.array(values, dtype=np.float64), name.startswith("val_")
    return Curve(name, step, step / 100, step * 2, value, is_validation, running, metric_called(name))


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


def even_report(names: list[str], examples: int = 100, wrong: int = 10) -> ClassReport:
    """Of every class as many are taken for the next one; the first is worse by far."""
    count = len(names)
    missed = [min(examples, 5 * wrong) if row == 0 else wrong for row in range(count)]
    matrix = tuple(
        tuple(
            examples - missed[row] if column == row else missed[row] if column == (row + 1) % count else 0
            for column in range(count)
        )
        for row in range(count)
    )
    classes = tuple(
        ClassScore(
            name,
            precision=matrix[row][row] / max(1, sum(matrix[other][row] for other in range(count))),
            recall=matrix[row][row] / examples,
            f1=matrix[row][row] / examples,
            examples=examples,
        )
        for row, name in enumerate(names)
    )
    mistakes = tuple(
        Mistake(names[row], names[(row + 1) % count], missed[row], missed[row] / examples) for row in range(count)
    )
    right = sum(matrix[row][row] for row in range(count)) / (count * examples)
    return ClassReport(count * examples, right, right, 0, False, classes, mistakes[:10], matrix)
