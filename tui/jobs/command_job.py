"""Runs a job of `engine.jobs.job` in a process of its own, and shows on standard error how far it is."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..terminal.output import complain
from .job_process import JobProcess
from .progress import ProgressLines, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from .job_process import Start


def run_job(
    name: str,
    options: Mapping[str, Any],
    when_interrupted: str = "Nothing was written.",
    start: Start | None = None,
    *,
    limit_s: float | None = None,
    grace_s: float | None = None,
) -> dict[str, Any]:
    """Do a job and return its result.

    Ctrl-C and SIGTERM ask its process to end, once; a second Ctrl-C ends it by force.

    Args:
        name: One of `engine.jobs.job.JOBS`.
        options: The keyword arguments of the job's function, as JSON can hold them.
        when_interrupted: The sentence that says what is kept when it is interrupted.
        start: Starts the process from name, options and the file for its standard error; `start_job` by default.
        limit_s: Seconds after which it is ended by force; None for no limit.
        grace_s: Seconds that it has to end by itself once it was interrupted; None for as long as it takes.

    Returns:
        What the job returned.

    Raises:
        ConsoleError: The job said why it failed, took too long, or its process is gone without a word.
        KeyboardInterrupt: It was interrupted; the person has been told.
    """
    shown = ProgressLines()
    shown.wait("starting…")
    with JobProcess(name, options, limit_s=limit_s, grace_s=grace_s, start=start) as job, _interrupts_reach(job):
        for record in job.records():
            match record.get("kind"):
                case "progress":
                    shown.feed(Step(record["what"], record["done"], record["total"], record["unit"]))
                case "note":
                    shown.note(record["text"])
                case _:
                    shown.tick()
        try:
            return job.result()
        except KeyboardInterrupt:
            shown.finish()
            complain([f"Interrupted. {when_interrupted}"])
            raise
        finally:
            shown.finish()


@contextmanager
def _interrupts_reach(job: JobProcess) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM ask the job to end while the block runs; only the main thread can."""

    def hear(number: int, _frame: FrameType | None = None) -> None:
        if not job.was_asked_to_end:
            job.ask_to_end()
        elif number == signal.SIGINT:
            job.kill()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
