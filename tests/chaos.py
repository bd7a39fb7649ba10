"""Kills a training run at random moments, resumes it each time, and compares its end with a run left alone.

``python -m tests.chaos 200`` is ``make chaos``; the tests call the same code with a few kills.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from tests.helpers import LIMIT_S, Host, all_of, run_host, small_config, timed_events_of, wait_until
from tpu_console.engine.process.launch import FinishedError, prepare_resumption
from tpu_console.engine.runs.events import EpochEnded, Progress, RunFinished
from tpu_console.engine.runs.follower import RunFollower

if TYPE_CHECKING:
    from tests.forks import Forked
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.runs.run_directory import RunDirectory


def chaos_config(epochs: int = 8) -> RunConfig:
    """A run with everything random that there is, and checkpoints within its epochs."""
    return small_config(
        model="cnn",
        model_options={"filters": [4], "hidden": [8], "dropout": 0.3},
        epochs=epochs,
        optimizer={"schedule": "cosine", "warmup_epochs": 1.0},
        augmentation={"flip": "horizontal", "rotation": 5.0},
        early_stopping={"patience": 8},
        checkpoint={"monitor": "auto", "every_minutes": 0.002},
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
    for number, (one, other) in enumerate(zip(losses(run), losses(whole), strict=True), start=1):
        assert one.keys() == other.keys()
        for name, value in other.items():
            assert abs(one[name] - value) <= tolerance * max(1.0, abs(value)), (number, name, one[name], value)


@dataclass
class Kills:
    """What kills did to a run."""

    moments: list[int] = field(default_factory=list)  # the journal's lines between a start and a kill
    lost_files: int = 0  # newest whole checkpoints that a resumed run did not use
    repeated: list[int] = field(default_factory=list)  # epochs that were trained again, for each resume
    to_step_s: list[float] = field(default_factory=list)  # seconds from each resume to its first step

    def add(self, other: Kills) -> None:
        self.moments += other.moments
        self.lost_files += other.lost_files
        self.repeated += other.repeated
        self.to_step_s += other.to_step_s


def kill_and_resume(
    config: RunConfig, folder: Path, kills: int, lines: int, dice: random.Random, *, forked: bool = False
) -> tuple[RunDirectory, Kills]:
    """Train a configuration; kill it at most `kills` times, each within `lines` lines of its journal after a start."""
    host = Host(config, folder, forked=forked)
    run, process, done = host.run, host.process, Kills()
    assert process is not None
    resumed_at: list[float] = []
    try:
        while len(done.moments) < kills:
            if not _is_killed(run, process, dice.randint(0, lines), dice.uniform(0.0, 0.3), done.moments):
                break
            newest = max(run.checkpoints.glob("state-*.ckpt"), default=None)
            try:
                resumed_at.append(time.time())
                prepared = prepare_resumption(run)
            except FinishedError:  # killed after its last event
                resumed_at.pop()
                break
            done.lost_files += newest is not None and prepared.checkpoint != newest.name
            done.repeated.append(
                len({e.epoch for e in all_of(run, EpochEnded)}) - (prepared.at.epoch if prepared.at else 0)
            )
            process = prepared.start()
        process.wait(3 * LIMIT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    steps = [at for at, event in timed_events_of(run) if isinstance(event, Progress)]
    for began, end in zip(resumed_at, [*resumed_at[1:], time.time()], strict=True):
        done.to_step_s += [at - began for at in steps if began < at < end][:1]
    return run, done


def _is_killed(
    run: RunDirectory, process: subprocess.Popen[bytes] | Forked, lines: int, seconds: float, moments: list[int]
) -> bool:
    """Kill a process once its journal has grown by some lines, and a little later; return whether it was killed."""

    def length() -> int:
        return run.journal.read_bytes().count(b"\n")

    before = length()
    wait_until(lambda: length() >= before + lines or process.poll() is not None, "the moment of a kill", 3 * LIMIT_S)
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
        return False
    process.kill()
    if process.wait() >= 0:
        return False  # it was faster
    moments.append(length() - before)
    return True


def main(kills: int, seed: int) -> None:
    """Kill so many times, in as many runs as that takes."""
    dice, config, done, runs = random.Random(seed), chaos_config(), Kills(), 0
    with tempfile.TemporaryDirectory() as temporary:
        whole = run_host(config, Path(temporary))
        lines = len(timed_events_of(whole)) // 3
        while len(done.moments) < kills:
            run, new = kill_and_resume(config, Path(temporary), min(12, kills - len(done.moments)), lines, dice)
            check_same(run, whole)
            done.add(new)
            runs += 1
            print(f"{len(done.moments)} of {kills} kills; run {runs} was killed {len(new.moments)} times", flush=True)
    print(f"kills: {len(done.moments)} of {kills}, {min(done.moments)} to {max(done.moments)} events after a start")
    print(f"runs compared with an uninterrupted one: {runs} of {runs} ended the same")
    print(f"epochs lost beyond the newest checkpoint: {done.lost_files}")
    print(f"epochs trained again: median {median(done.repeated):.0f}, at most {max(done.repeated)}")
    print(f"from resume to the next step: median {median(done.to_step_s):.1f} s, at most {max(done.to_step_s):.1f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
