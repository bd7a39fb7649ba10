"""Runs a job of `engine.jobs.job` in a separate process, and shows its progress on standard error."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..terminal.interrupts import interrupts_call
from ..terminal.output import complain
from .job_process import JobProcess
from .progress import ProgressLines, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    """Run one of `engine.jobs.job.JOBS` with its keyword arguments, and return its result.

    Ctrl-C and SIGTERM ask its process to end, once; a second Ctrl-C ends it by force. `when_interrupted` then says what
    is kept. The other arguments are those of `JobProcess`.

    Returns:
        What the job returned.

    Raises:
        ConsoleError: The job failed, took too long, or its process died.
        KeyboardInterrupt: It was interrupted; the user has seen a message.
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
    """Let Ctrl-C and SIGTERM ask the job to end while the block runs; works only in the main thread."""

    def hear(number: int) -> None:
        if not job.was_asked_to_end:
            job.ask_to_end()
        elif number == signal.SIGINT:
            job.kill()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with interrupts_call(hear):
        yield
