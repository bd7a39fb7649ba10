"""`tpu-console attach`, here and over SSH."""

from __future__ import annotations

import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import click

from tpu_console.engine.errors import ConsoleError, RunNotFoundError

from ..terminal.output import complain, say
from .opening import has_terminal, open_console
from .options import PROGRAM, examples, json_option, run_argument, screen_options

if TYPE_CHECKING:
    from .opening import Markers

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


@click.command(
    epilog=examples(
        "tpu-console attach",
        "tpu-console attach 20261120-133100-digits-cnn",
        "tpu-console attach fashion | tee training.txt",
        "tpu-console attach ssh://me@tpu-vm/fashion",
        "tpu-console attach --json | jq .type",
        others={_NO_COMMAND: "tpu-console is not on the other machine", _NO_CONNECTION: "no connection to it"},
    )
)
@run_argument
@screen_options
@json_option("Print the run's events, one JSON object per line.")
def attach(name: str | None, markers: Markers | None, theme: str | None, as_json: bool) -> int:
    """Watch RUN, running or finished; by default the newest.

    RUN is a run's name, an unambiguous part of it, or its folder. On a terminal this opens the live screen;
    otherwise it prints plain lines until the run ends. Leaving does not stop the run.

    ssh://[USER@]HOST[:PORT]/RUN runs this command on another machine with your ssh. RUN may be a path there, such as
    ssh://HOST/~/folder/RUN.
    """
    has_screen = has_terminal() and not as_json
    if name is not None and name.startswith("ssh://"):
        options = {"--markers": markers, "--theme": theme, "--json": as_json}
        given = [key if value is True else f"{key}={value}" for key, value in options.items() if value]
        return _attach_over_ssh(name, given, has_screen=has_screen)
    from tpu_console.engine.runs.run_directory import find_run

    run = find_run(name)
    if has_screen:
        return open_console(run=run, markers=markers, theme=theme)
    from ..following.follow import follow

    return follow(run, as_json=as_json)


def ssh_command(address: str, options: list[str], *, has_screen: bool) -> list[str]:
    """Return the command that attaches to a run on another machine; raise `RunNotFoundError` if it has no address."""
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise RunNotFoundError(
            f"'{address}' is not the address of a run.", remedy="Write it as ssh://[USER@]HOST[:PORT]/RUN."
        )
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


def _attach_over_ssh(address: str, options: list[str], *, has_screen: bool) -> int:
    command = ssh_command(address, options, has_screen=has_screen)
    try:
        code = subprocess.run(command, stdin=None if has_screen else subprocess.DEVNULL, check=False).returncode
    except FileNotFoundError:
        raise ConsoleError("The program ssh is not installed here.") from None
    host = command[command.index("--") + 1]
    if code == _NO_CONNECTION and has_screen:  # if it was lost, the program there could not tidy up
        say([f"{_RESET}No connection to {host}."])
    if code == _NO_COMMAND:
        complain([f"Error: {PROGRAM} is not on the path of a login shell on {host}; its ~/.profile can add it."])
    return code
