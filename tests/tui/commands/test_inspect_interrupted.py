"""`tpu-console inspect` as a real process: a signal ends it whatever it does."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.helpers import LIMIT_S, wait_until

if TYPE_CHECKING:
    from pathlib import Path

INSPECT = [sys.executable, "-c", "import sys; from tpu_console.tui.cli import main; sys.exit(main())", "inspect"]

# A dataset whose loading never ends and hears no signal, as a call into a slow file system may not.
DEAF = """
import os, pathlib, signal, threading

def data():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    place = pathlib.Path(__file__).with_name("pid")
    place.with_name("draft").write_text(str(os.getpid()))
    place.with_name("draft").replace(place)
    threading.Event().wait()
"""


def inspecting(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*INSPECT, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


# Both signals, a job that is deaf to them and Ctrl-C are in ``test_job_process.py``.
@pytest.mark.slow
def test_a_signal_ends_an_inspection_that_does_not_listen(tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(DEAF)
    process = inspecting(f"{tmp_path / 'deaf.py'}:data")
    pid = tmp_path / "pid"
    wait_until(lambda: pid.exists() or process.poll() is not None, "the dataset is being loaded")
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "Interrupted." in err
    assert not psutil.pid_exists(int(pid.read_text()))
