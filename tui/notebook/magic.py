"""``%load_ext tpu_console``: the command line in a notebook, in which `run` and `attach` draw their run in the cell."""

from __future__ import annotations

import atexit
import json
import shlex
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .watching import watch

if TYPE_CHECKING:
    from collections.abc import Sequence

_PLAIN = {"--detach", "--json", "--help", "-h"}
"""Options of `run` and `attach` with which there is nothing to draw."""


def register(ipython: Any) -> None:
    """Add ``%tpu_console`` to a notebook."""
    ipython.register_magic_function(run_line, "line", "tpu_console")


def run_line(line: str) -> None:
    """Run a command, such as ``%tpu_console run digits-cnn --epochs 5``, and show its run in the cell."""
    command, *arguments = shlex.split(line) or ["--help"]
    is_drawn = not _PLAIN & {*arguments}
    if command == "run" and is_drawn:
        _run(arguments)
    elif command == "attach" and is_drawn and len(arguments) < 2:
        watch(*arguments)
    elif command == "web" and is_drawn:
        _serve(arguments)
    else:
        _print_output_of([command, *arguments])


def _run(arguments: Sequence[str]) -> None:
    """Start a run in its own process, which goes on if the kernel ends, and watch it."""
    started = subprocess.run(
        _command(["run", *arguments, "--detach", "--json"]), capture_output=True, text=True, check=False
    )
    print(started.stderr, end="", file=sys.stderr)
    if started.returncode == 0:
        # It says nothing if `--resume-if-exists` found a run that trains or has finished.
        watch(json.loads(started.stdout)["path"] if started.stdout else None)


def _serve(arguments: Sequence[str]) -> None:
    """Open the console to a browser until the kernel ends, and show the link; in Colab, through its proxy."""
    # In a session of its own, so that interrupting a cell does not close it.
    process = _start(["web", *arguments], start_new_session=True)
    atexit.register(process.terminate)
    output: IO[str] = process.stdout
    said = output.readline()
    is_served = said.startswith("http://")
    if is_served and "google.colab" in sys.modules:
        from google.colab.output import serve_kernel_port_as_window

        address = urlsplit(said.strip())
        serve_kernel_port_as_window(address.port, path=address.path, anchor_text="Open the console")
    else:
        print(said if is_served else said + output.read(), end="")
    # A full pipe would block it.
    threading.Thread(target=output.read, name="tpu-console-web", daemon=True).start()


def _print_output_of(arguments: Sequence[str]) -> None:
    with _start(arguments) as process:
        for line in process.stdout:
            print(line, end="")


def _start(arguments: Sequence[str], **options: Any) -> Any:
    """Start a command, whose output can be read."""
    streams: dict[str, Any] = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
    }
    return subprocess.Popen(_command(arguments), **streams, **options)


def _command(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "tpu_console", *arguments]
