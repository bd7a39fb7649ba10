"""Runs, event by event, whose plain lines tests record in `tests/record/texts/plain.txt`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.helpers import epoch_ended
from tests.tui.tpu_fakes import REMEDY, FakeTpu
from tpu_console.engine.runs import events
from tpu_console.engine.runs.events import Phase, PhaseStarted
from tpu_console.engine.runs.journal import JournalReader, decode, encode
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.tui.following.follow import PlainPrinter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

STARTED = events.RunStarted("digits-cnn", "host", 1, "here")
FIT = events.FitStarted(30, 44, 32, 32, 44, "auto: fits", "val_accuracy")
_REPLICAS = tuple(events.Replica(index, f"cpu:{index}", "CPU", "here") for index in range(2))
_SAMPLES = (events.Sample("I read.", "Yo leo.", "yo leo"), events.Sample("Go!", "¡Ve!", ""))


def epoch(number: int, accuracy: float = 0.975, **changes: Any) -> events.EpochEnded:
    """An epoch of 44 steps."""
    logs = {"accuracy": 0.9687, "loss": 0.1023, "val_accuracy": accuracy, "val_loss": 0.0811}
    usual = {"seconds": 0.41, "validation_s": 0.05, "step_ms": 9.3, "examples_per_s": 3434.0, "learning_rate": 1.9e-3}
    return epoch_ended(number, logs, steps=44, **(usual | changes))


class Journal:
    """Feeds a printer with events through the journal's own encoding, each a second after the one before."""

    def __init__(self, path: Path) -> None:
        self.now = 1000.0
        self.printer = PlainPrinter(RunDirectory(path), lambda: self.now)

    def feed(self, *events: events.Event, apart_s: float = 1.0) -> list[str]:
        """Return the lines of some events."""
        records = []
        for event in events:
            records.append(decode(encode(event, self.now)))
            self.now += apart_s
        return self.printer.feed([record for record in records if record is not None])

    def idle(self, after_s: float) -> list[str]:
        """Return the lines after a while without an event."""
        self.now += after_s
        return self.printer.idle()


CASES: dict[str, Sequence[events.Event]] = {
    "two replicas": [
        STARTED,
        PhaseStarted(Phase.IMPORTING),
        PhaseStarted(Phase.CONNECTING),
        events.AcceleratorReady("sim:2", "asked for", "MirroredStrategy", _REPLICAS, {"keras": "3.15.1"}),
        PhaseStarted(Phase.LOADING, "digits"),
        PhaseStarted(Phase.LOADING, "fetching more"),
        events.DataReady(1437, 360, (8, 8, 1), 10, 29),
        PhaseStarted(Phase.BUILDING),
        events.ModelBuilt("cnn", 35914, 35914, 143656, 10),
        FIT,
        PhaseStarted(Phase.COMPILING),
        PhaseStarted(Phase.TRAINING),
        epoch(1, 0.90, seconds=3.41, compile_s=3.0, step_ms=None, examples_per_s=None),
        *(epoch(number, accuracy) for number, accuracy in ((2, 0.95), (3, 0.93), (4, 0.95), (5, 0.96))),
        PhaseStarted(Phase.SAVING),
        events.RunFinished("completed", "all epochs are done", {}),
    ],
    "an unknown length, much validation": [
        events.FitStarted(5, None, None, None, 1),
        *(epoch(n, seconds=2.0, validation_s=1.0, examples_per_s=None, learning_rate=None) for n in (1, 2, 3)),
    ],
    "a translation": [
        PhaseStarted(Phase.LOADING),
        events.DataReady(2125, 375, (), 0),
        PhaseStarted(Phase.BUILDING),
        events.Translated(3, _SAMPLES),
    ],
    "requests": [
        STARTED,
        FIT,
        events.Noticed("Something happened."),
        events.BudgetSet(600.0, 900.0, "10m"),
        events.Steered("epochs", "by me", 3, 1200, 9.0, 10.0, 1500.0),
        events.Alerted("nan", "The loss became NaN.", 2, 20, remedy="Lower the rate."),
        *(events.MirrorReported("gs://bucket/a", 3, problem) for problem in ("", "gone", "gone")),
        events.StopRequested("by me", "epoch"),
        events.RunResumed(2, 0, 88, 3.0, 1, "here"),
        events.RunFinished("stopped", "by me", {}),
    ],
}


def end_epoch(run: FakeTpu, number: int) -> None:
    """End an epoch of 400 steps."""
    run.write(epoch_ended(number, {"loss": 1.0}, steps=400, seconds=40.0, step_ms=100.0, examples_per_s=10_240.0))


def slow_run(folder: Path) -> FakeTpu:
    """Two hosts, of which one is slow and then lost."""
    run = FakeTpu(folder, 2, 4)
    run.begin()
    for number in (1, 2):
        run.second(rates=[12_000, 9_000])
        end_epoch(run, number)
    run.lose(1)
    return run


def waiting_run(folder: Path) -> FakeTpu:
    """A run that waits for its input at first; what is left of the last epoch is measured after its end."""
    run = FakeTpu(folder)
    run.begin()
    waits = ((1, 0.5, "input"), (1, 0.3, "input"), (2, 0.04, "accelerator"), (3, 0.03, "accelerator"))
    for number, wait_s, limit in waits:
        if number > 1:
            end_epoch(run, number - 1)
        run.write(events.InputMeasured(number, 9, 9.0, 9, wait_s, 1.0, limit, REMEDY if limit == "input" else ""))
    end_epoch(run, 3)
    run.write(events.InputMeasured(3, 1200, 120.0, 400, 20.0, 40.0, "input", "Cache it."))
    run.write(events.InputMeasured(4, 1600, 160.0, 400, 4.0, 40.0, "input", "Cache it."))
    end_epoch(run, 4)
    return run


def plain_lines(folder: Path) -> dict[str, list[str]]:
    """Return the lines of all cases by name; the runs are made in a folder."""
    (folder / "run").mkdir()
    (folder / "run" / "model.keras").touch()
    lines = {name: Journal(folder / "run").feed(*case) for name, case in CASES.items()}
    for name, run in (("a slow host that is lost", slow_run(folder)), ("waiting for the input", waiting_run(folder))):
        lines[name] = PlainPrinter(run.run).feed(JournalReader(run.run.journal).read())[1:]
    return lines
