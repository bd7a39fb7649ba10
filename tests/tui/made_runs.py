"""Makes finished, running and damaged runs in a moment, and curves."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.helpers import leave_dead
from tpu_console.engine.config.run_config import RunConfig, journal_values, to_toml
from tpu_console.engine.runs import events
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.metrics import metric_called
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.engine.storage.files import write_whole
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
