"""Kills a training run at random moments, resumes it each time, and compares its end with a run left alone.

``python -m tests.chaos 200`` is ``make chaos``; the tests call the same code with a few kills.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.helpers import LIMIT_S, Host, run_host, small_config
from tpu_console.engine.process.resume import prepare_resumption
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.runs.follower import RunFollower

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.runs.run_directory import RunDirectory


def chaos_config() -> RunConfig:
    """A run with everything random that there is, and checkpoints within its epochs."""
    return small_config(
        model="cnn",
        model_options={"filters": [4], "hidden": [8], "dropout": 0.3},
        epochs=8,
        optimizer={"schedule": "cosine", "warmup_epochs": 1.0},
        augmentation={"flip": "horizontal", "rotation": 5.0},
        early_stopping={"patience": 8},
        checkpoint={"enabled": True, "every_minutes": 0.002},
    )


def losses(run: RunDirectory) -> list[dict[str, float]]:
    """The metrics of every epoch, as a screen shows them; fails if the run did not finish."""
    state = RunFollower(run).catch_up().state
    assert isinstance(state.end, RunFinished), (state.end, run.log.read_text(errors="replace")[-3000:])
    assert [epoch.epoch for epoch in state.epochs] == list(range(1, len(state.epochs) + 1))
    steps = state.train.step.values
    assert (steps[1:] > steps[:-1]).all(), "the curve goes back"
    assert (state.train.elapsed_s.values[1:] >= state.train.elapsed_s.values[:-1]).all(), "the clock goes back"
    return [dict(epoch.logs) for epoch in state.epochs]


def check_same(run: RunDirectory, whole: RunDirectory, tolerance: float = 1e-5) -> None:
    """Compare the metrics of two runs."""
    for number, (one, other) in enumerate(zip(losses(run), losses(whole), strict=True), start=1):
        assert one.keys() == other.keys()
        for name, value in other.items():
            assert abs(one[name] - value) <= tolerance * max(1.0, abs(value)), (number, name, one[name], value)


def kill_and_resume(config: RunConfig, folder: Path, kills: int, seconds: float, dice: random.Random) -> RunDirectory:
    """Train a configuration, with so many kills at most, each within some seconds of a start."""
    host = Host(config, folder)
    process = host.process
    assert process is not None
    try:
        for _ in range(kills):
            try:
                process.wait(dice.uniform(0.0, seconds))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                process = prepare_resumption(host.run).start()
            else:
                break
        process.wait(LIMIT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return host.run


def main(kills: int, seed: int) -> None:
    """Kill so many times, in as many runs as that takes."""
    dice, config = random.Random(seed), chaos_config()
    with tempfile.TemporaryDirectory() as temporary:
        began = time.monotonic()
        whole = run_host(config, Path(temporary))
        seconds = time.monotonic() - began
        done = 0
        while done < kills:
            run = kill_and_resume(config, Path(temporary), min(12, kills - done), 1.2 * seconds, dice)
            check_same(run, whole)
            times = len(RunFollower(run).catch_up().state.resumed)
            done += max(1, times)
            print(f"{done} of {kills} kills; resumed {times} times, ended the same", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
