"""Starts and ends the processes that do this program's work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any

NO_PLUGINS = ("PYDANTIC_DISABLE_PLUGINS", "true")
"""Set in the console, so that Pydantic looks for no plugins: that reads the metadata of every package, 30 ms beside 270
of them. The processes that it starts run the user's code and look for them.
"""


def start_module(module: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Start a module of this package, such as ``engine.jobs.job``, in a process of its own session, or raise `OSError`.

    The terminal's Ctrl-C and its end therefore reach it only through this process. Its standard input is empty, unless
    the options of `subprocess.Popen` say otherwise. The `-P` keeps the current folder off the front of the import path,
    so that a user's ``engine`` folder does not shadow ours.
    """
    environment = options.pop("env", os.environ)
    kept = {name: value for name, value in environment.items() if (name, value) != NO_PLUGINS}
    settings = {"stdin": subprocess.DEVNULL, "start_new_session": True, "env": kept, **options}
    return subprocess.Popen([sys.executable, "-P", "-m", f"tpu_console.{module}", *arguments], **settings)


def kill_with_children(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it started, by force."""
    try:
        os.killpg(process.pid, signal.SIGKILL)  # it leads its own session
    except (ProcessLookupError, PermissionError):
        with suppress(ProcessLookupError):
            process.kill()
