"""Starts, resumes and fetches runs, for the commands `run`, `resume` and `mirror`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..jobs.run_process import HostedRun, InProcessRun, train_here
from ..terminal.output import complain, say
from ..text.tables import labelled
from .trusting import with_trust

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Sequence

    from tpu_console.engine.runs.run_directory import RunDirectory

_LIFE_S = 15.0


def detached(run: RunDirectory, process: subprocess.Popen[bytes], *, as_json: bool, resumed: int = 0) -> int:
    """Wait until a run has started, then print how to attach to it; `resumed` counts its resumptions, now included."""
    from tpu_console.engine.runs.follower import LogTail
    from tpu_console.engine.runs.liveness import Liveness

    from ..following.follow import FAILED, wait_for_life
    from ..text.run_lines import crashed_lines

    life = wait_for_life(run, _LIFE_S, resumed=resumed)
    if life is Liveness.DEAD:
        what, *lines = crashed_lines(run, LogTail(run).read())
        complain([f"Error: {what}", *lines])
        return FAILED
    if as_json:
        say([json.dumps({"run": run.run_id, "path": str(run.path), "pid": process.pid})])
        return 0
    started = "Resumed" if resumed else "Started"
    started += "" if life is Liveness.ALIVE else "; waiting for the first heartbeat:"
    say(
        [
            f"{started} {run.run_id}",
            labelled("watch", f"tpu-console attach {run.run_id}"),
            labelled("stop", f"tpu-console stop {run.run_id}"),
        ]
    )
    return 0


def fetched(place: str, label: str = "", *, as_json: bool) -> RunDirectory | None:
    """Copy a run from its mirror, unless it is here.

    The place is the run's folder at the mirror. With a label it is the mirror, whose newest run with that label is
    copied; the result is None if there is none.
    """
    from tpu_console.engine.runs.run_directory import RunDirectory
    from tpu_console.engine.storage.paths import user_path

    from ..jobs.job_process import run_job

    found = run_job("fetch", {"place": place, "label": label}, "Nothing was copied.")
    if "run" not in found:
        return None
    run = RunDirectory(Path(found["run"]))
    if not as_json:
        say([labelled("mirror", found["place"]), labelled("here", user_path(run.path))])
    return run


def refuse_both(*, detach: bool, in_process: bool) -> None:
    """Raise `click.UsageError` if a run was to train both in the background and in this process."""
    if detach and in_process:
        raise click.UsageError("--detach starts a process of its own; --in-process starts none.")


def resume_or_watch(
    run: RunDirectory, changes: Sequence[tuple[str, Any]] = (), *, detach: bool, as_json: bool, in_process: bool
) -> int:
    """Resume a run with changed settings; watch it if it is training, and say so if it has finished."""
    from tpu_console.engine.process.launch import RunningError
    from tpu_console.engine.process.resume import FinishedError

    from ..following.follow import FINISHED, follow

    try:
        return resume_run(run, changes, detach=detach, as_json=as_json, in_process=in_process)
    except RunningError:
        return FINISHED if detach else follow(run, as_json=as_json)
    except FinishedError as finished:
        say([] if as_json else [finished.what])
        return FINISHED


def resume_run(
    run: RunDirectory, changes: Sequence[tuple[str, Any]] = (), *, detach: bool, as_json: bool, in_process: bool
) -> int:
    """Say what changes, and resume a run; watch it, or return once it trains."""
    from tpu_console.engine.process.resume import prepare_resumption

    from ..following.follow import FAILED

    prepared = with_trust(lambda trust: prepare_resumption(run, changes, trust=trust))
    if prepared is None:
        return FAILED
    if not as_json:
        say([labelled("changed" if not number else "", change) for number, change in enumerate(prepared.changes)])
    times = prepared.earlier + 1
    hosted: HostedRun | InProcessRun
    if in_process:
        prepared.make_ready()
        hosted = train_here(prepared.run, prepared.config, prepared.checkpoint)
    else:
        hosted = HostedRun(prepared.run, prepared.start())
    return watched(hosted, detach=detach, as_json=as_json, resumed=times)


def watched(hosted: HostedRun | InProcessRun, *, detach: bool, as_json: bool, resumed: int = 0) -> int:
    """Follow a run that was just started until it ends, or only until it trains; return the exit code."""
    from ..following.follow import follow

    if detach and isinstance(hosted, HostedRun):
        return detached(hosted.run, hosted.process, as_json=as_json, resumed=resumed)
    code = follow(hosted.run, as_json=as_json, kill=hosted.kill, resumed=resumed)
    hosted.release()
    return code
