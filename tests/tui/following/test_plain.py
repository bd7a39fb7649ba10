"""What plain output says of a run, from events alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import small_config
from tests.tui.tpu_fakes import REMEDY, FakeTpu
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning.plan import make_plan
from tpu_console.engine.runs.events import (
    AcceleratorReady,
    DataReady,
    EpochEnded,
    Event,
    FitStarted,
    InputMeasured,
    ModelBuilt,
    Phase,
    PhaseStarted,
    Progress,
    Replica,
    RunFinished,
    RunStarted,
    Sample,
    Translated,
)
from tpu_console.engine.runs.journal import JournalReader, decode, encode
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.runs.run_history import PastRun
from tpu_console.tui.following.follow import FIRST_SILENCE_S, LONGEST_SILENCE_S, PlainPrinter
from tpu_console.tui.text.plan_text import plan_lines
from tpu_console.tui.text.run_lines import crashed_lines, epoch_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.tui.calling import Call

STARTED = RunStarted("digits-cnn", "host", 1, "here")
FIT = FitStarted(30, 44, 32, 32, 44, "auto: fits", "val_accuracy")


def epoch(number: int, accuracy: float = 0.975, **changes: Any) -> EpochEnded:
    values: dict[str, Any] = {
        "epoch": number,
        "step": 44 * number,
        "epoch_steps": 44,
        "elapsed_s": float(number),
        "seconds": 0.41,
        "compile_s": 0.0,
        "validation_s": 0.05,
        "step_ms": 9.3,
        "examples_per_s": 3434.0,
        "learning_rate": 1.9e-3,
        "logs": {"accuracy": 0.9687, "loss": 0.1023, "val_accuracy": accuracy, "val_loss": 0.0811},
    }
    return EpochEnded(**values | changes)


def progress(number: int, step: int) -> Progress:
    return Progress(number, step, (number - 1) * 44 + step, step / 10, {"loss": 0.5})


class Journal:
    """Feeds a printer with events through the journal's own encoding."""

    def __init__(self, path: Path) -> None:
        self.now = 1000.0
        self.printer = PlainPrinter(RunDirectory(path), lambda: self.now)

    def feed(self, *events: Event, apart_s: float = 0.0) -> list[str]:
        records = []
        for event in events:
            records.append(decode(encode(event, self.now)) or pytest.fail("an event that cannot be read"))
            self.now += apart_s
        return self.printer.feed(records)

    def idle(self, after_s: float) -> list[str]:
        self.now += after_s
        return self.printer.idle()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path)


def test_an_epoch_line_holds_every_figure_of_the_epoch_and_no_compilation() -> None:
    assert epoch_line(epoch(3), FIT, is_best=True) == (
        "epoch  3/30  0.41 s    9.3 ms/step    3,434 examples/s  lr 0.0019  "
        "loss 0.1023 val 0.0811  accuracy 0.9687 val 0.9750 ★"
    )
    first = epoch(1, seconds=3.41, compile_s=3.0, step_ms=None, examples_per_s=None)
    assert "  0.41 s      – ms/step        – examples/s  " in epoch_line(first, FIT, is_best=False)
    unknown = FitStarted(5, None, None, None, 1)
    line = epoch_line(epoch(2, examples_per_s=None, learning_rate=None), unknown, is_best=False)
    assert line.startswith("epoch 2/5  0.41 s    9.3 ms/step  loss 0.1023")


def test_validation_is_said_once_it_takes_much_of_the_time(journal: Journal) -> None:
    lines = [journal.feed(epoch(number, seconds=2.0, validation_s=1.0)) for number in (1, 2, 3)]
    assert [["50%" in line for line in said if line.startswith("time")] for said in lines] == [[], [True], []]


def test_star_marks_only_epochs_that_are_the_best_so_far(journal: Journal) -> None:
    journal.feed(STARTED, FIT)
    lines = journal.feed(epoch(1, 0.90), epoch(2, 0.95), epoch(3, 0.93), epoch(4, 0.95), epoch(5, 0.96))
    assert [line.endswith("★") for line in lines] == [True, True, False, False, True]


def test_each_phase_before_training_gets_one_line_when_it_ends(journal: Journal) -> None:
    replicas = Replica(0, "a", "CPU", "h"), Replica(1, "b", "CPU", "h")
    lines = journal.feed(
        STARTED,
        PhaseStarted(Phase.IMPORTING),
        PhaseStarted(Phase.CONNECTING),
        AcceleratorReady("sim:2", "asked for", "MirroredStrategy", replicas, {"keras": "3.15.1"}),
        PhaseStarted(Phase.LOADING, "digits"),
        PhaseStarted(Phase.LOADING, "fetching more"),
        DataReady(1437, 360, (8, 8, 1), 10, 29),
        PhaseStarted(Phase.BUILDING),
        ModelBuilt("cnn", 35914, 35914, 143656, 10),
        FIT,
        PhaseStarted(Phase.COMPILING),
        PhaseStarted(Phase.TRAINING),
        apart_s=1.0,
    )
    assert [(line[:13].strip(), line[13:21].strip()) for line in lines[1:]] == [
        ("importing", "1.00 s"),
        ("connecting", "2.00 s"),
        ("loading data", "3.00 s"),
        ("building", "3.00 s"),
        ("compiling", "1.00 s"),
        ("training", "30 epoch"),
    ]
    for line, text in zip(lines[2:], ("2 replicas (asked", "8×8×1, 10", "35,914", "epoch 1", "44 steps"), strict=True):
        assert text in line


def test_the_pause_between_progress_lines_grows_and_restarts_each_epoch(journal: Journal) -> None:
    journal.feed(STARTED, FIT, PhaseStarted(Phase.TRAINING), progress(1, 11))
    assert journal.idle(FIRST_SILENCE_S - 0.1) == []
    assert journal.idle(0.1) == ["epoch  1/30  step 11/44  25%  loss 0.5000"]
    journal.feed(progress(1, 22))
    assert journal.idle(2 * FIRST_SILENCE_S - 0.1) == []
    assert "step 22/44  50%" in journal.idle(0.1)[0]
    for step in (23, 24, 25):
        journal.feed(progress(1, step))
        assert len(journal.idle(LONGEST_SILENCE_S)) == 1
    journal.feed(epoch(1), progress(2, 1))
    assert journal.idle(FIRST_SILENCE_S - 0.1) == []
    assert len(journal.idle(0.1)) == 1


def test_what_takes_long_without_progress_says_what_it_is_busy_with(journal: Journal) -> None:
    journal.feed(STARTED, PhaseStarted(Phase.LOADING, "fetching mnist.npz, 11 MB"))
    assert journal.idle(FIRST_SILENCE_S) == ["loading data 5.00 s  so far  fetching mnist.npz, 11 MB"]
    journal.feed(FIT, PhaseStarted(Phase.TRAINING), progress(1, 11))
    assert "step 11/44" in journal.idle(FIRST_SILENCE_S)[0]
    assert journal.idle(LONGEST_SILENCE_S) == ["training     35.0 s  so far"]


def test_end_names_score_times_files_and_what_to_do_next(journal: Journal, tmp_path: Path) -> None:
    (tmp_path / "model.keras").touch()
    journal.feed(STARTED, FIT, PhaseStarted(Phase.TRAINING), apart_s=2.0)
    journal.feed(epoch(1), PhaseStarted(Phase.SAVING), apart_s=1.0)
    lines = journal.feed(RunFinished("completed", "all epochs are done", {}))
    said = [line.split() for line in lines[:5]]
    assert [words[0] for words in said] == ["saving", "finished", "best", "time", "model"]
    assert [words[-2:] for words in said[1:4]] == [["8.00", "s)"], ["epoch", "1"], ["1.00", "s"]]
    assert said[4][1] == f"{tmp_path}/model.keras"
    following = [line.removeprefix("next").split() for line in lines[5:]]
    assert [words[1] for words in following] == ["attach", "runs", "predict", "runs"]
    assert all(tmp_path.name in words for words in following)
    assert journal.idle(1e6) == []


def test_crash_shows_the_end_of_the_log_without_routine_lines(tmp_path: Path) -> None:
    (tmp_path / "config.toml").touch()
    log = ("I0000 00:00:17.5  12 cudart_stub.cc:31] Could not find cuda drivers", "", "terminate called")
    lines = crashed_lines(RunDirectory(tmp_path), log)
    assert lines[3] == "  terminate called"
    assert not any("cudart" in line for line in lines)
    assert len(crashed_lines(RunDirectory(tmp_path), log[:2])) < len(lines) - 1


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "about 1m 02s, from a similar run here on 2026-03-01"),
        ({"batch_size": 16}, "roughly 1m 02s, from a similar run here on 2026-03-01 with batch 32"),
        ({"early_stopping": {"patience": 1}}, "at most about 1m 02s, from a similar run here on 2026-03-01"),
        ({"dataset": "somewhere.data:load"}, ""),
    ],
)
def test_plan_says_how_long_it_takes(
    similar_run: Callable[[PastRun], None], changes: dict[str, Any], line: str
) -> None:
    similar_run(PastRun(step_ms=420.0, epoch_s=0.7, rest_s=4.0, batch=32, day="2026-03-01"))
    config = small_config(**{"epochs": 3, "batch_size": 32} | changes)
    lines = plan_lines(config, make_plan(config, Hardware()))
    assert [text.strip() for text in lines if " 2026-" in text] == ([line] if line else [])


def test_a_plan_has_the_batch_of_all_replicas_the_steps_and_warnings() -> None:
    config = RunConfig(dataset="digits", model="cnn", batch_size=12, epochs=2, accelerator="sim:2")
    lines = plan_lines(config, make_plan(config, Hardware()))
    assert "batch 24 (12 × 2 replicas), 59 steps" in lines[2]
    assert [line.split()[0] for line in lines] == ["preset", "digits", "plan", "adam,", "warning"]


def end_epoch(run: FakeTpu, number: int) -> None:
    run.write(
        EpochEnded(number, 400 * number, 400, 40.0 * number, 40.0, 0.0, 0.0, 100.0, 10_240.0, 1e-3, {"loss": 1.0})
    )


def said(run: FakeTpu) -> list[str]:
    return PlainPrinter(run.run).feed(JournalReader(run.run.journal).read())


def test_an_epoch_says_how_much_of_it_was_waited_and_a_change_says_what_to_do(tmp_path: Path) -> None:
    run = FakeTpu(tmp_path)
    run.begin()
    for epoch, wait_s, limit in (
        (1, 0.5, "input"),
        (1, 0.3, "input"),
        (2, 0.04, "accelerator"),
        (3, 0.03, "accelerator"),
    ):
        if epoch > 1:
            end_epoch(run, epoch - 1)
        run.write(InputMeasured(epoch, 9, 9.0, 9, wait_s, 1.0, limit, REMEDY if limit == "input" else ""))
    end_epoch(run, 3)
    lines = said(run)
    epochs = [line for line in lines if line.startswith("epoch")]
    assert ["waits 40%" in epochs[0], "waits  4%" in epochs[1], "waits  3%" in epochs[2]] == [True] * 3
    bound, free = (line for line in lines if line.startswith("input"))
    assert "input-bound (30% " in bound
    assert bound.endswith(REMEDY)
    assert "compute-bound (4% " in free


def test_backend_topology_slow_and_lost_hosts_are_lines(tmp_path: Path) -> None:
    run = FakeTpu(tmp_path, 2, 4)
    run.begin()
    for epoch in (1, 2):
        run.second(rates=[12_000, 9_000])
        end_epoch(run, epoch)
    run.lose(1)
    lines = said(run)
    assert any(line.startswith("backend      JAX (") for line in lines)
    assert any(line.startswith("topology     mesh 2×4, ") for line in lines)
    (slow,) = (line for line in lines if line.startswith("slow "))
    assert "host 1 " in slow
    assert "9,000 examples/s, 14% " in slow
    assert lines[-1].startswith("lost         host 1 ")
    assert lines[-1].endswith(" 12 s")


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


def test_what_is_left_of_an_epoch_comes_behind_its_end_and_is_not_the_next_ones(tmp_path: Path) -> None:
    run = FakeTpu(tmp_path)
    run.begin()
    end_epoch(run, 1)
    run.write(InputMeasured(1, 400, 40.0, 400, 20.0, 40.0, "input", "Cache it."))
    run.write(InputMeasured(2, 800, 80.0, 400, 4.0, 40.0, "input", "Cache it."))
    end_epoch(run, 2)
    lines = said(run)[-3:]
    assert "waits" not in lines[0]
    assert "input-bound (50% " in lines[1]
    assert "waits 10%" in lines[2]


def test_translations_have_samples_and_neither_classes_nor_a_shape(tmp_path: Path) -> None:
    samples = (Sample("I read.", "Yo leo.", "yo leo"), Sample("Go!", "¡Ve!", ""))
    ready = PhaseStarted("loading data"), DataReady(2125, 375, (), 0), PhaseStarted("building")
    _, data, *lines = Journal(tmp_path).feed(RunStarted("nmt", "host", 1, "here"), *ready, Translated(3, samples))
    assert data.endswith("2,125 training examples, 375 for validation")
    assert lines == ["sample       I read. → yo leo  (expected: Yo leo.)", "sample       Go! → …  (expected: ¡Ve!)"]
