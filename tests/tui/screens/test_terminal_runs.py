"""The real program in a real terminal, from the form to the end of a run: watched, left, hung up on, killed."""

from __future__ import annotations

import json
import re
import shlex
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.helpers import LIMIT_S, all_of, events_of, has, the, wait_until
from tests.tui.forked_program import FORKED, forking
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.config.run_config import to_toml
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.events import EpochEnded, RunFailed, RunFinished, RunStarted, Steering
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.heartbeat import Liveness, liveness_of
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Opener = Callable[..., Terminal]

pytestmark = pytest.mark.slow

NOISY = {"TF_CPP_MIN_LOG_LEVEL": "0"}
# A run that leaves the processor to the consoles most of the time.
SLOW = """
import time
import keras

class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        time.sleep(0.25)
"""
A_ROW = re.compile(r"^[ █].\s+(\d+) (\d\.\d{4})\s+(\d\.\d{4})\s+(\d\.\d{4})\s+(\d\.\d{4}) ", re.MULTILINE)


def end_all(home: Path) -> None:
    """Kill whatever trains in a home."""
    for run in list_runs(home / "runs"):
        try:
            host_of(run).kill()
        except (psutil.Error, OSError, ValueError):
            continue


def host_of(run: RunDirectory) -> psutil.Process:
    return psutil.Process(json.loads(run.heartbeat.read_text())["pid"])


@pytest.fixture
def home(private_home: Path) -> Iterator[Path]:
    yield private_home
    end_all(private_home)


@pytest.fixture
def open_terminal(home: Path) -> Iterator[Opener]:
    opened: list[Terminal] = []

    def start(*arguments: str, **options: object) -> Terminal:
        opened.append(Terminal(*arguments, home=home, **options))  # type: ignore[arg-type]  # passed on
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def the_run(home: Path) -> RunDirectory:
    (run,) = list_runs(home / "runs")
    return run


def epoch_shown(terminal: Terminal) -> int:
    """The number of the epoch that the header counts."""
    found = re.search(r"^ epoch\s+(\d+)/", terminal.text, re.MULTILINE)
    return int(found.group(1)) if found else 0


def wait_for_epoch(terminal: Terminal, epoch: int) -> None:
    """Wait until a terminal shows curves and at least an epoch."""
    terminal.wait_for(lambda: terminal.curves and epoch_shown(terminal) >= epoch)


def rows_shown(terminal: Terminal) -> dict[str, tuple[str, ...]]:
    """The rows of the epoch table: the metrics by epoch."""
    return {epoch: tuple(metrics) for epoch, *metrics in A_ROW.findall(terminal.text)}


def wait_for_true_rows(terminal: Terminal, run: RunDirectory) -> None:
    """Wait until the rows that are shown say what the journal says: for a moment half of a new row may stand there."""
    terminal.wait_for(lambda: rows_are_true(terminal, run))


def rows_are_true(terminal: Terminal, run: RunDirectory) -> bool:
    rows = rows_shown(terminal)
    names = ("loss", "accuracy", "val_loss", "val_accuracy")
    written = {str(event.epoch): event.logs for event in all_of(run, EpochEnded)}
    return bool(rows) and rows == {epoch: tuple(f"{written[epoch][name]:.4f}" for name in names) for epoch in rows}


def write_slow_preset(home: Path) -> None:
    """Write digits-cnn, trained slowly, as the user's own preset."""
    (home / "presets").mkdir(parents=True)
    (home / "slow.py").write_text(SLOW)
    changes = [("name", "slow"), ("callbacks", [f"{home / 'slow.py'}:Slow"])]
    config = with_changes(find_preset("digits-cnn").config, changes)
    (home / "presets" / "slow.toml").write_text(to_toml(config))


def start_run(terminal: Terminal, epochs: int = 2000, *, is_slow: bool = False) -> None:
    """Choose a number of epochs in the form, and start."""
    terminal.wait_for("Device")
    terminal.wait_for("GPU:")
    if is_slow:
        terminal.press("end")
        terminal.wait_for("Run: slow")  # the last preset
    terminal.press("enter")
    terminal.wait_for("A built-in dataset")
    terminal.press("tab", "tab", "tab")
    terminal.wait_for("Passes over the training data.")
    terminal.press(str(epochs))
    terminal.wait_for(lambda: f"{epochs:,} epochs × 89" in terminal.flat)
    terminal.press("ctrl+r")


def assert_log_stays_off_the_screen(terminal: Terminal, run: RunDirectory) -> None:
    """Of what native code printed, nothing reached the terminal."""
    printed = [line.strip() for line in run.log.read_bytes().splitlines() if len(line.strip()) >= 20]
    native = (b"oneDNN", b"cudart", b"TensorFlow binary")  # which of them depends on the processor
    assert any(word in line for line in printed for word in native), "native code printed what it prints by itself"
    raw = terminal.raw
    assert not [line for line in printed if line in raw]
    assert not [word for word in (b"oneDNN", b"All log messages", b"cudart") if word in raw]


def test_start_watch_detach_attach_twice_and_stop(open_terminal: Opener, home: Path) -> None:
    write_slow_preset(home)
    console = open_terminal(environment=NOISY)
    console.wait_for("fashion-mnist-cnn")
    start_run(console, is_slow=True)
    console.wait_for("importing")
    console.wait_for(lambda: rows_shown(console))
    wait_for_true_rows(console, the_run(home))
    console.wait_for(lambda: console.curves)
    assert console.lines[2].strip(), "the header has two rows"
    first_curves, first_epoch = console.curves, epoch_shown(console)
    console.wait_for(lambda: console.curves != first_curves)
    console.wait_for(lambda: epoch_shown(console) > first_epoch)
    run = the_run(home)
    detach_and_check(console, run)
    viewers = [open_terminal("attach"), open_terminal("attach", run.run_id)]
    left_at = len(all_of(run, EpochEnded))
    for viewer in viewers:
        wait_for_epoch(viewer, left_at + 1)
        viewer.wait_for(lambda: run.run_id in viewer.lines[0])  # noqa: B023  called at once
    wait_for_true_rows(viewers[0], run)
    stop_in_one_and_see_it_in_both(viewers, run)
    resume_with_one_key(open_terminal(*FORKED, "attach", program=sys.executable, environment=forking()), run)


def detach_and_check(console: Terminal, run: RunDirectory) -> None:
    console.press("d")
    assert console.wait() == 0
    assert console.is_restored
    assert f"tpu-consoleattach{run.run_id}" in console.tight
    assert_log_stays_off_the_screen(console, run)
    assert liveness_of(run) is Liveness.ALIVE


def stop_in_one_and_see_it_in_both(viewers: list[Terminal], run: RunDirectory) -> None:
    viewers[1].press("K")
    viewers[1].wait_for("Stop training?")
    viewers[1].press("y")
    for viewer in viewers:
        viewer.wait_for("Stopped on request")
        viewer.wait_for_path(run.model)
    assert the(run, RunFinished).outcome == "stopped"
    assert run.model.is_file()
    for viewer in viewers:
        viewer.press("d")
        assert viewer.wait() == 0
        assert viewer.is_restored


def resume_with_one_key(viewer: Terminal, run: RunDirectory) -> None:
    viewer.wait_for("Stopped on request")
    last = len(all_of(run, EpochEnded))
    viewer.press("R")
    viewer.wait_for("Leave it")  # the footer says Resume, too
    viewer.press("y")
    viewer.wait_until_gone("Stopped on request")
    viewer.wait_for(lambda: len(all_of(run, EpochEnded)) > last)
    viewer.press("K")
    viewer.wait_for("Stop training?")
    viewer.press("y")
    viewer.wait_for("Stopped on request")
    epochs = RunFollower(run).catch_up().state.epochs  # without the one that was stopped within, and ended later
    assert [epoch.epoch for epoch in epochs] == [*range(1, len(epochs) + 1)]
    viewer.press("d")
    assert viewer.wait() == 0


def test_closing_the_terminal_ends_the_console_but_not_the_run(open_terminal: Opener, home: Path) -> None:
    console = open_terminal(*FORKED, program=sys.executable, environment=forking())
    start_run(console, 3)
    wait_until(lambda: any(has(run, RunStarted) for run in list_runs(home / "runs")), "the run")
    run = the_run(home)
    ask(run, Steering.PAUSE, "the test")  # before its first step, or it may end before the console does
    console.wait_for("paused")
    console.hang_up()
    console.process.wait(LIMIT_S)
    assert liveness_of(run) is Liveness.ALIVE
    assert not has(run, RunFinished)
    ask(run, Steering.CONTINUE, "the test")
    wait_until(lambda: has(run, RunFinished), "the run finishes")
    assert the(run, RunFinished).outcome == "completed"

    viewer = open_terminal("attach")
    viewer.wait_for_all("Finished: 3 epochs", "best: val_accuracy")
    assert run.model.exists()
    viewer.press("d")
    assert viewer.wait() == 0
    viewer.wait_for_all("Finished: 3 epochs")


def test_demo_shows_the_run_and_then_that_its_process_was_killed(open_terminal: Opener, home: Path) -> None:
    program = shlex.join([sys.executable, *FORKED])
    pair = f"{program} run digits-cnn --epochs 2000 --detach && exec {program} attach"
    demo = open_terminal("-c", pair, program="/bin/sh", environment=forking())
    wait_for_epoch(demo, 2)
    run = the_run(home)
    host_of(run).kill()
    assert_whole_crash_is_read(demo, run)
    demo.press("d")
    assert demo.wait() == 0
    assert str(run.log) in demo.tight
    later = open_terminal("attach")
    assert_whole_crash_is_read(later, run)


def assert_whole_crash_is_read(terminal: Terminal, run: RunDirectory) -> None:
    terminal.wait_for_all(
        "crashed",
        "The training process ended without reporting an error.",
        "ran out of memory, or the machine restarted",
        "what to do: To continue: tpu-console resume",
    )
    terminal.wait_for_path(run.log)


def test_run_that_fails_shows_what_why_what_next_and_the_log(open_terminal: Opener, home: Path) -> None:
    home.mkdir(parents=True)
    model = home / "mine.py"
    model.write_text("def build(input_shape, classes):\n    raise KeyError('the size of the images')\n")
    command = ("run", "digits-cnn", "--set", f"model={model}:build", "--detach")
    starter = open_terminal(*FORKED, *command, program=sys.executable, environment=forking())
    assert starter.wait() == 0
    run = the_run(home)
    viewer = open_terminal("attach")
    viewer.wait_for_all(
        "failed",
        "raised KeyError: 'the size of the images'",
        f"why: File {model}, line 2",
        "what to do: Fix the function",
    )
    viewer.wait_for_path(run.log)
    assert the(run, RunFailed).what
    viewer.press("d")
    assert viewer.wait() == 0
    assert viewer.is_restored


def test_in_process_run_shows_curves_and_says_that_its_terminal_closed(open_terminal: Opener, home: Path) -> None:
    console = open_terminal("--in-process", environment=NOISY)
    console.wait_for("fashion-mnist-cnn")
    start_run(console)
    console.wait_for("inside this console")
    wait_for_epoch(console, 1)
    console.hang_up()
    console.process.wait(LIMIT_S)
    run = the_run(home)
    assert_console_ended_it(run, "its terminal closing (SIGHUP)")
    assert_log_stays_off_the_screen(console, run)


def assert_console_ended_it(run: RunDirectory, cause: str) -> None:
    end = events_of(run)[-1]
    assert isinstance(end, RunFailed)
    assert f"was ended by {cause} " in end.what
    assert liveness_of(run) is Liveness.DEAD
