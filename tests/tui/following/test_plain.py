"""What plain output says of a run, from events alone; most of it is recorded in `tests/record/texts/plain.txt`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import small_config
from tests.record.shown import plain_texts, same_text
from tests.tui.plain_runs import FIT, STARTED, Journal, epoch
from tests.tui.tpu_fakes import FakeTpu
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.machine.devices import Hardware
from tpu_console.engine.planning.plan import make_plan
from tpu_console.engine.runs.events import Phase, PhaseStarted, Progress, RunFinished
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.runs.run_history import PastRun
from tpu_console.tui.following.follow import FIRST_SILENCE_S, LONGEST_SILENCE_S
from tpu_console.tui.text.plan_text import plan_lines
from tpu_console.tui.text.run_lines import crashed_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.tui.calling import Call


def test_plain_lines_are_as_recorded(tmp_path: Path) -> None:
    same_text("plain.txt", plain_texts(tmp_path))


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
