"""The process that writes the last event of a host that JAX aborted."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.helpers import all_of, small_config, the
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.runs.events import RunFailed, RunFinished
from tpu_console.engine.runs.journal import JournalWriter

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

SAID = "Host 0 (a) is gone. The run cannot go on without it."
ABORTED = (
    "F1122 04:06:03.537811 395 client.h:80] Terminating process because the JAX distributed service detected fatal "
    "errors. absl::Status: UNAVAILABLE: Failed to send RPC to coordination service.\nmore\n"
)
PARENT = """
import os, sys
from pathlib import Path
from tpu_console.engine.accelerators.hosts.watcher import Watcher
watcher = Watcher(Path(sys.argv[1]))
watcher.say("something earlier")
watcher.say(sys.argv[2])
print(watcher._process.pid, flush=True)
os.abort()
"""


def aborted_run(folder: Path, log: str, last: RunFinished | None = None) -> RunDirectory:
    """A run whose process was aborted, after its watcher has ended."""
    run = prepare_run(small_config(), folder)
    run.log.write_text(log, encoding="utf-8")
    if last is not None:
        journal = JournalWriter(run.journal)
        journal.write(last)
        journal.close()
    # The watcher inherits the pipe of standard output, so it closes when both have ended.
    subprocess.run([sys.executable, "-c", PARENT, str(run.path), SAID], stdout=subprocess.PIPE, check=False, timeout=60)
    return run


def test_a_run_that_jax_aborted_gets_a_last_event(tmp_path: Path) -> None:
    run = aborted_run(tmp_path, ABORTED)
    failed = the(run, RunFailed)
    assert (failed.what, failed.why) == (SAID, "UNAVAILABLE: Failed to send RPC to coordination service.")


@pytest.mark.parametrize(
    ("log", "last"),
    [("Killed\n", None), (ABORTED, RunFinished("completed", "all epochs are done", {}))],
    ids=["not by JAX", "after the end"],
)
def test_any_other_end_is_left_as_it_is(tmp_path: Path, log: str, last: RunFinished | None) -> None:
    assert not all_of(aborted_run(tmp_path, log, last), RunFailed)
