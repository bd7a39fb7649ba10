"""All commands of the command line, with those of groups."""

import click

from tpu_console.tui.cli import cli


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
