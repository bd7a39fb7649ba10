"""What plain output says of a run, from events alone; most of it is recorded in `tests/record/texts/plain.txt`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.helpers import epoch_ended
from tests.record import of_each, same_text
from tests.tui.calling import Call
from tests.tui.tpu_fakes import REMEDY, FakeTpu
from tpu_console.engine.runs import events
from tpu_console.engine.runs.events import Phase, PhaseStarted, Progress, RunFinished
from tpu_console.engine.runs.journal import JournalReader, decode, encode
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.storage.paths import user_path
from tpu_console.tui.following.follow import FIRST_SILENCE_S, LONGEST_SILENCE_S, PlainPrinter
from tpu_console.tui.text.outcome import crashed_lines

STARTED = events.RunStarted("digits-cnn", "host", 1, "here")
FIT = events.FitStarted(30, 44, 32, 32, 44, "auto: fits", "val_accuracy")
_REPLICAS = tuple(events.Replica(index, f"cpu:{index}", "CPU", "here") for index in range(2))
_SAMPLES = (events.Sample("I read.", "Yo leo.", "yo leo"), events.Sample("Go!", "¡Ve!", ""))


def epoch(number: int, accuracy: float = 0.975, **changes: Any) -> events.EpochEnded:
    logs = {"accuracy": 0.9687, "loss": 0.1023, "val_accuracy": accuracy, "val_loss": 0.0811}
    usual = {"seconds": 0.41, "validation_s": 0.05, "step_ms": 9.3, "examples_per_s": 3434.0, "learning_rate": 1.9e-3}
    return epoch_ended(number, logs, steps=44, **(usual | changes))


class Journal:
    """Feeds a printer with events through the journal's own encoding, each a second after the one before."""

    def __init__(self, path: Path) -> None:
        self.now = 1000.0
        self.printer = PlainPrinter(RunDirectory(path), lambda: self.now)

    def feed(self, *given: events.Event, apart_s: float = 1.0) -> list[str]:
        records = []
        for event in given:
            records.append(decode(encode(event, self.now)))
            self.now += apart_s
        return self.printer.feed([record for record in records if record is not None])

    def idle(self, after_s: float) -> list[str]:
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


def texts(folder: Path) -> str:
    (folder / "run").mkdir()
    (folder / "run" / "model.keras").touch()
    lines = {name: Journal(folder / "run").feed(*case) for name, case in CASES.items()}
    for name, run in (("a slow host that is lost", slow_run(folder)), ("waiting for the input", waiting_run(folder))):
        lines[name] = PlainPrinter(run.run).feed(JournalReader(run.run.journal).read())[1:]
    return of_each(lines).replace(user_path(folder), "<folder>")


def test_plain_lines_are_as_recorded(tmp_path: Path) -> None:
    same_text("plain.txt", texts(tmp_path))


def progress(number: int, step: int) -> Progress:
    return Progress(number, step, (number - 1) * 44 + step, step / 10, {"loss": 0.5})


def test_the_pause_between_progress_lines_grows_and_restarts_each_epoch(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.feed(STARTED, FIT, PhaseStarted(Phase.TRAINING), progress(1, 11), apart_s=0.0)
    assert journal.idle(FIRST_SILENCE_S - 0.1) == []
    assert journal.idle(0.1) == ["epoch  1/30  step 11/44  25%  loss 0.5000"]
    journal.feed(progress(1, 22), apart_s=0.0)
    assert journal.idle(2 * FIRST_SILENCE_S - 0.1) == []
    assert "step 22/44  50%" in journal.idle(0.1)[0]
    for step in (23, 24, 25):
        journal.feed(progress(1, step), apart_s=0.0)
        assert len(journal.idle(LONGEST_SILENCE_S)) == 1
    journal.feed(epoch(1), progress(2, 1), apart_s=0.0)
    assert journal.idle(FIRST_SILENCE_S - 0.1) == []
    assert len(journal.idle(0.1)) == 1
    journal.feed(RunFinished("completed", "", {}))
    assert journal.idle(1e6) == []


def test_what_takes_long_without_progress_says_what_it_is_busy_with(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.feed(STARTED, PhaseStarted(Phase.LOADING, "fetching mnist.npz, 11 MB"), apart_s=0.0)
    assert journal.idle(FIRST_SILENCE_S) == ["loading data 5.00 s  so far  fetching mnist.npz, 11 MB"]
    journal.feed(FIT, PhaseStarted(Phase.TRAINING), progress(1, 11), apart_s=0.0)
    assert "step 11/44" in journal.idle(FIRST_SILENCE_S)[0]
    assert journal.idle(LONGEST_SILENCE_S) == ["training     35.0 s  so far"]


def test_crash_shows_the_end_of_the_log_without_routine_lines(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    log = ("I0000 00:00:17.5  12 cudart_stub.cc:31] Could not find cuda drivers", "", "terminate called")
    lines = crashed_lines(RunDirectory(tmp_path), log)
    assert lines[3] == "  terminate called"
    assert not any("cudart" in line for line in lines)
    assert len(crashed_lines(RunDirectory(tmp_path), log[:2])) < len(lines) - 1


def test_show_reports_the_same_and_counts_the_devices_of_a_large_slice(tmp_path: Path, call: Call) -> None:
    run = FakeTpu(tmp_path, 2, 4)
    run.begin()
    run.second(rates=[12_000, 9_000], disk=False)
    run.lose(1)
    out = call.out("show", str(run.run.path))
    for text in (
        "JAX (a TPU is here and JAX is ready for it); DataParallel; mesh 2×4",
        "0: TPU v5 lite, TPU:0 at 0,0,0",
        "lost         host 1 (tpu-vm-1) ",
        "memory 20.1/188.0 GiB, disk n/a (the container hides its disks), examples/s 12,000",
        "tpu-vm-1: cpu n/a (the host is lost)",
        "input-bound (38% waiting for data). Cache ",
    ):
        assert text in out
    shown = call.json("show", str(run.run.path))
    assert (shown["input"]["limit"], shown["lost"][0]["process"]) == ("input", 1)
    assert [host["examples_per_s"] for host in shown["hosts"]] == [12_000, 9_000]
    large = FakeTpu(tmp_path, 16, 8)
    large.begin()
    out = call.out("show", str(large.run.path))
    assert "(tpu-vm-15): 8 × TPU" in out
    assert "TPU:127" not in out
