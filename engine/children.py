"""Starts and ends the processes that do this program's work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any


def start_module(module: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a module of this package, such as ``engine.jobs.job``, in a process of its own session.

    The terminal's Ctrl-C and its end therefore reach it only through this process. Its standard input is empty, unless
    the options of `subprocess.Popen` say otherwise. The `-P` keeps the current folder off the front of the import path,
    so that a user's ``engine`` folder does not shadow ours.

    Raises:
        OSError: It cannot be started.
    """
    settings = {"stdin": subprocess.DEVNULL, "start_new_session": True, **options}
    return subprocess.Popen([sys.executable, "-P", "-m", f"tpu_console.{module}", *arguments], **settings)


def kill_with_children(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, by force."""
    try:
        os.killpg(process.pid, signal.SIGKILL)  # it leads its own session
    except (ProcessLookupError, PermissionError):
        with suppress(ProcessLookupError):
            process.kill()
