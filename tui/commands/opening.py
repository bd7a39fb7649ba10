"""Opens the full screen: here, over SSH with `tpu-console attach`, and in a browser with `tpu-console web`."""

import atexit
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from tpu_console.engine.errors import ConfigError, ConsoleError, Problem, RunNotFoundError, did_you_mean
from tpu_console.engine.machine.install import install_line
from tpu_console.engine.runs.run_directory import find_run

from ..terminal.output import complain, native_output_diverted, say, speaks_utf8
from .options import (
    PROGRAM,
    check_files,
    command,
    json_option,
    option,
    preset_file_option,
    run_argument,
    screen_choices,
    screen_options,
)


class NoTerminalError(ConsoleError):
    """A screen was requested without a terminal."""


def has_terminal() -> bool:
    """Return whether there is a terminal for output and input, or a page of `tpu-console web`.

    A command in a notebook's cell (``!tpu-console attach``) has one whose screen and keys nobody has.
    """
    if os.environ.get("TEXTUAL_DRIVER", "").endswith(":WebDriver"):
        return True
    term = os.environ.get("TERM")
    is_cell = "JPY_PARENT_PID" in os.environ and term == "xterm-color"  # what a Jupyter kernel sets
    return sys.stdin.isatty() and sys.stdout.isatty() and term != "dumb" and not is_cell


def open_console(*, preset_files: Sequence[Path] = (), in_process: bool = False, **first: Any) -> int:
    """Open the full screen with what `ConsoleApp` takes to show `first`, by default the form; return the exit code.

    Unless `screen_options` say it, the locale decides how curves are drawn. Raise `NoTerminalError` without a terminal,
    or `ConfigError` if there is no such theme.
    """
    if not has_terminal():
        remedy = "For plain lines: tpu-console run PRESET, or tpu-console attach RUN > file."
        raise NoTerminalError("The console needs a terminal.", remedy=remedy)
    # Read when Textual is imported: the longest delay before a change is drawn. Without changes nothing is drawn.
    os.environ.setdefault("TEXTUAL_FPS", "200")
    if preset_files:
        check_files(preset_files)
    from ..app import ConsoleApp
    from ..jobs.run_process import exit_at_once

    chosen = screen_choices()
    theme, marker = chosen.get("theme"), chosen.get("markers") or ("braille" if speaks_utf8() else "ascii")
    app = ConsoleApp(**first, preset_files=preset_files, in_process=in_process, marker=marker, theme_name=theme)
    if theme is not None and theme not in app.available_themes:
        raise ConfigError([Problem("", f"There is no theme '{theme}'; {did_you_mean(theme, app.available_themes)}")])
    # Keeps the output of native code off the screen if this process trains.
    with native_output_diverted() if in_process else nullcontext():
        code = app.run()
    if app.farewell:
        say([app.farewell])
    code = code or app.return_code or 0
    if in_process and app.trains_here:
        atexit.register(exit_at_once, code)
    if app.failure is not None:
        raise app.failure
    return code


# Neither user nor host may begin with "-": ssh would take it for an option. A backslash in the run's name would end
# the quotes in fish.
_ADDRESS = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z0-9_][\w.@+-]*)@)?(?P<host>[A-Za-z0-9_][\w.-]*|\[[0-9A-Fa-f:.]+(?:%\w+)?\])"
    r"(?::(?P<port>\d{1,5}))?(?:/(?P<run>[^\x00-\x1f\x7f\\]*))?",
    re.ASCII,
)
_NO_CONNECTION, _NO_COMMAND = 255, 127  # exit codes of ssh and of shells
# Leaves the alternate screen, shows the cursor, wraps lines, ends reports of mouse, focus, pastes and Kitty's keys.
_RESET = "\x1b[?1049l\x1b[?7;25h\x1b[?1000;1003;1004;1006;1015;2004l\x1b[<u"


@command(
    "tpu-console attach",
    "tpu-console attach 20261120-133100-digits-cnn",
    "tpu-console attach fashion | tee training.txt",
    "tpu-console attach ssh://me@tpu-vm/fashion",
    "tpu-console attach --json | jq .type",
    others={_NO_COMMAND: "tpu-console is not on the other machine", _NO_CONNECTION: "no connection to it"},
)
@run_argument
@screen_options
@json_option("Print the run's events, one JSON object per line.")
def attach(name: str | None, as_json: bool) -> int:
    """Watch RUN, running or finished; by default the newest.

    RUN is a run's name, an unambiguous part of it, or its folder. On a terminal this opens the live screen;
    otherwise it prints plain lines until the run ends. Leaving does not stop the run.

    ssh://[USER@]HOST[:PORT]/RUN runs this command on another machine with your ssh. RUN may be a path there, such as
    ssh://HOST/~/folder/RUN.
    """
    has_screen = has_terminal() and not as_json
    if name is not None and name.startswith("ssh://"):
        words = ssh_command(name, [*_screen_arguments(), *["--json"] * as_json], has_screen=has_screen)
        try:
            code = subprocess.run(words, stdin=None if has_screen else subprocess.DEVNULL, check=False).returncode
        except FileNotFoundError:
            raise ConsoleError("The program ssh is not installed here.") from None
        host = words[words.index("--") + 1]
        if code == _NO_CONNECTION and has_screen:  # if it was lost, the program there could not tidy up
            say([f"{_RESET}No connection to {host}."])
        if code == _NO_COMMAND:
            complain([f"Error: {PROGRAM} is not on the path of a login shell on {host}; its ~/.profile can add it."])
        return code
    run = find_run(name)
    if has_screen:
        return open_console(run=run)
    from ..following.follow import follow

    return follow(run, as_json=as_json)


def ssh_command(address: str, options: list[str], *, has_screen: bool) -> list[str]:
    """Return the command that attaches to a run on another machine; raise `RunNotFoundError` if it has no address."""
    if (found := _ADDRESS.fullmatch(address)) is None:
        remedy = "Write it as ssh://[USER@]HOST[:PORT]/RUN."
        raise RunNotFoundError(f"'{address}' is not the address of a run.", remedy=remedy)
    user, host, port, run = (found[part] or "" for part in ("user", "host", "port", "run"))
    run = run.rstrip("/")
    if "/" in run and not run.startswith("~/"):
        run = f"/{run.lstrip('/')}"
    attach_there = shlex.join([PROGRAM, "attach", *options, *(["--", run] if run else [])])
    return [
        "ssh",
        "-t" if has_screen else "-T",
        *(["-p", port] if port else []),
        *(["-l", user] if user else []),
        "--",
        host.strip("[]"),
        f'exec "$SHELL" -lc {shlex.quote(attach_there)}',  # a login shell, whose profile may activate an environment
    ]


@command(
    "tpu-console web",
    "tpu-console web --port 9000 --theme textual-light",
    done="ended with Ctrl-C",
    failed="the port is in use, or textual-serve is not installed",
)
@option("--port N", "Port; 0 for any. [default: 8000]", type=click.IntRange(0, 65535), default=8000)
@option("--host ADDR", "Listen on ADDR. [default: 127.0.0.1, this machine]", default="127.0.0.1")
@option("--allow-host NAME", "Also answer requests for NAME, such as a proxy's name.", "names", multiple=True)
@preset_file_option
@screen_options
def web(port: int, host: str, names: tuple[str, ...], preset_files: tuple[Path, ...]) -> None:
    """Open the console in a browser.

    It prints an address with a secret in it. Whoever has the address can start and stop runs as you. Closing the page
    or this command closes the console, but stops no run.
    """
    try:
        import textual_serve.server  # noqa: F401
    except ImportError:
        remedy = install_line("textual-serve")
        raise ConsoleError("The console in a browser needs textual-serve, which is missing.", remedy=remedy) from None
    from .web_server import serve

    files = (f"--preset-file={file.absolute()}" for file in preset_files)
    serve(host, port, names, [*files, *_screen_arguments()])


def _screen_arguments() -> list[str]:
    """Return the options of the screen as another command takes them."""
    return [f"--{name}={value}" for name, value in screen_choices().items()]
