"""The real program in a real terminal, from the form to the end of a run: watched, left, hung up on, killed."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.helpers import LIMIT_S, all_of, events_of, the
from tests.tui.forked_program import FORKED, forking
from tests.tui.terminal_driver import SLOW, Terminal
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.config.run_config import to_toml
from tpu_console.engine.runs.events import EpochEnded, RunFailed, RunFinished
from tpu_console.engine.runs.follower import RunFollower
from tpu_console.engine.runs.heartbeat import Liveness, liveness_of
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs
from tpu_console.presets.catalog import find_preset

pytestmark = pytest.mark.slow

NOISY = {"TF_CPP_MIN_LOG_LEVEL": "0"}
A_ROW = re.compile(r"^[ █].\s+(\d+) (\d\.\d{4})\s+(\d\.\d{4})\s+(\d\.\d{4})\s+(\d\.\d{4}) ", re.MULTILINE)


def host_of(run: RunDirectory) -> psutil.Process:
    return psutil.Process(json.loads(run.heartbeat.read_text())["pid"])


@pytest.fixture
def home(private_home: Path) -> Iterator[Path]:
    yield private_home
    for run in list_runs(private_home / "runs"):  # kill whatever trains
        try:
            host_of(run).kill()
        except (psutil.Error, OSError, ValueError):
            continue


def the_run(home: Path) -> RunDirectory:
    (run,) = list_runs(home / "runs")
    return run


def epoch_shown(terminal: Terminal) -> int:
    found = re.search(r"^ epoch\s+(\d+)/", terminal.text, re.MULTILINE)
    return int(found.group(1)) if found else 0


def wait_for_epoch(terminal: Terminal, epoch: int) -> None:
    """Wait until a terminal shows curves and at least an epoch."""
    terminal.wait_for(lambda: terminal.curves and epoch_shown(terminal) >= epoch)


def wait_for_true_rows(terminal: Terminal, run: RunDirectory) -> None:
    """Wait until the rows that are shown say what the journal says: for a moment half of a new row may stand there."""
    names = ("loss", "accuracy", "val_loss", "val_accuracy")

    def are_true() -> bool:
        rows = {epoch: tuple(metrics) for epoch, *metrics in A_ROW.findall(terminal.text)}
        written = {str(event.epoch): event.logs for event in all_of(run, EpochEnded)}
        return bool(rows) and rows == {epoch: tuple(f"{written[epoch][name]:.4f}" for name in names) for epoch in rows}

    terminal.wait_for(are_true)


def write_slow_preset(home: Path) -> None:
    """Write digits-cnn, trained slowly, as the user's own preset."""
    (home / "presets").mkdir(parents=True)
    (home / "slow.py").write_text(SLOW)
    changes = [("name", "slow"), ("callbacks", [f"{home / 'slow.py'}:Slow"])]
    config = with_changes(find_preset("digits-cnn").config, changes)
    (home / "presets" / "slow.toml").write_text(to_toml(config))


def start_run(terminal: Terminal, epochs: int = 2000, *, is_slow: bool = False) -> None:
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


def leave(terminal: Terminal) -> None:
    terminal.press("d")
    assert terminal.wait() == 0
    assert terminal.is_restored


def test_a_run_is_started_watched_left_hung_up_on_stopped_resumed_and_killed(
    open_terminal: Callable[..., Terminal], home: Path
) -> None:
    write_slow_preset(home)
    console = open_terminal(environment=NOISY)
    console.wait_for("fashion-mnist-cnn")
    start_run(console, is_slow=True)
    console.wait_for("importing")
    console.wait_for(lambda: A_ROW.search(console.text))
    run = the_run(home)
    wait_for_true_rows(console, run)
    console.wait_for(lambda: console.curves)
    assert console.lines[2].strip(), "the header has two rows"
    first_curves, first_epoch = console.curves, epoch_shown(console)
    console.wait_for(lambda: console.curves != first_curves)
    console.wait_for(lambda: epoch_shown(console) > first_epoch)
    console.hang_up()
    console.process.wait(LIMIT_S)
    assert liveness_of(run) is Liveness.ALIVE
    assert_log_stays_off_the_screen(console, run)

    leaving, stopping = open_terminal("attach"), open_terminal("attach", run.run_id)
    left_at = len(all_of(run, EpochEnded))
    for viewer in (leaving, stopping):
        wait_for_epoch(viewer, left_at + 1)
        viewer.wait_for(lambda: run.run_id in viewer.lines[0])  # noqa: B023  called at once
    wait_for_true_rows(leaving, run)
    leave(leaving)
    assert f"tpu-consoleattach{run.run_id}" in leaving.tight
    assert liveness_of(run) is Liveness.ALIVE
    stopping.press("K")
    stopping.wait_for("Stop training?")
    stopping.press("y")
    stopping.wait_for("Stopped on request")
    stopping.wait_for_path(run.model)
    assert the(run, RunFinished).outcome == "stopped"
    assert run.model.is_file()
    leave(stopping)

    viewer = open_terminal(*FORKED, "attach", program=sys.executable, environment=forking())
    viewer.wait_for("Stopped on request")
    last = len(all_of(run, EpochEnded))
    viewer.press("R")
    viewer.wait_for("Leave it")  # the footer says Resume, too
    viewer.press("y")
    viewer.wait_until_gone("Stopped on request")
    viewer.wait_for(lambda: len(all_of(run, EpochEnded)) > last)
    epochs = RunFollower(run).catch_up().state.epochs  # without the one that was stopped within, and ended later
    assert [epoch.epoch for epoch in epochs] == [*range(1, len(epochs) + 1)]
    host_of(run).kill()
    assert_whole_crash_is_read(viewer, run)
    leave(viewer)
    assert str(run.log) in viewer.tight
    assert_whole_crash_is_read(open_terminal("attach"), run)


def assert_whole_crash_is_read(terminal: Terminal, run: RunDirectory) -> None:
    terminal.wait_for_all(
        "crashed",
        "The training process ended without reporting an error.",
        "ran out of memory, or the machine restarted",
        "what to do: To continue: tpu-console resume",
    )
    terminal.wait_for_path(run.log)


def test_in_process_run_shows_curves_and_says_that_its_terminal_closed(
    open_terminal: Callable[..., Terminal], home: Path
) -> None:
    console = open_terminal("--in-process", environment=NOISY)
    console.wait_for("fashion-mnist-cnn")
    start_run(console)
    console.wait_for("inside this console")
    wait_for_epoch(console, 1)
    console.hang_up()
    console.process.wait(LIMIT_S)
    run = the_run(home)
    end = events_of(run)[-1]
    assert isinstance(end, RunFailed)
    assert "terminal closing (SIGHUP) " in end.what
    assert liveness_of(run) is Liveness.DEAD
    assert_log_stays_off_the_screen(console, run)
