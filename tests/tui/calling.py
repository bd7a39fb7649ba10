"""Calls the command line in this process, and lists its commands."""

import json
from typing import Any

import click
import pytest

from tpu_console.tui.cli import cli, main


class Call:
    """The command line; what is called returns its exit code, standard output and standard error."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: str) -> tuple[int, str, str]:
        code = main(args)
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def out(self, *args: str) -> str:
        """Standard output of a command that succeeds."""
        code, out, err = self(*args)
        assert code == 0, err
        return out

    def json(self, *args: str) -> Any:
        """What such a command prints with ``--json``."""
        return json.loads(self.out(*args, "--json"))

    def refused(self, *args: str, code: int = 2) -> str:
        """What a command says that ends with an exit code and prints nothing."""
        got, out, err = self(*args)
        assert (got, out) == (code, ""), err
        return err


def all_commands(group: click.Group = cli, prefix: str = "") -> dict[str, click.Command]:
    """Return the commands and groups by the words that name them, such as ``runs show``."""
    found: dict[str, click.Command] = {}
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        found[prefix + name] = command
        if isinstance(command, click.Group):
            found |= all_commands(command, f"{prefix}{name} ")
    return found
