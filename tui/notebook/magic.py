"""``%load_ext tpu_console``: the command line in a notebook, in which `run` and `attach` draw their run in the cell."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from .watching import watch

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLAIN = {"--detach", "--json", "--help", "-h"}
"""Options of `run` with which there is nothing to watch, or no wish to."""


def register(ipython: Any) -> None:
    """Add ``%tpu_console`` to a notebook."""
    ipython.register_magic_function(run_line, "line", "tpu_console")


def run_line(line: str) -> None:
    """Run a command, such as ``%tpu_console run digits-cnn --epochs 5``, and show its run in the cell."""
    command, *arguments = shlex.split(line) or ["--help"]
    is_watched = not _PLAIN & {*arguments}
    if command == "run" and is_watched:
        _run(arguments)
    elif command == "attach" and is_watched and len(arguments) < 2:
        watch(*arguments)
    else:
        _print_output_of([command, *arguments])


def _run(arguments: Sequence[str]) -> None:
    """Start a run in its own process, which goes on if the kernel ends, and watch it."""
    done = subprocess.run(
        _command(["run", *arguments, "--detach", "--json"]), capture_output=True, text=True, check=False
    )
    print(done.stderr, end="", file=sys.stderr)
    if done.returncode == 0 and done.stdout:
        watch(json.loads(done.stdout)["path"])


def _print_output_of(arguments: Sequence[str]) -> None:
    with subprocess.Popen(
        _command(arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            print(line, end="")


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "tpu_console", *arguments]
