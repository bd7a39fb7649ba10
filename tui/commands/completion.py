"""`tpu-console completion`: prints a shell completion script."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, get_completion_class

from ..terminal.output import say
from .options import PROGRAM, examples

VARIABLE = "_TPU_CONSOLE_COMPLETE"

_INSTALL = {
    "bash": """add this line to ~/.bashrc: eval "$(tpu-console completion bash)\"""",
    "zsh": """add this line to ~/.zshrc, after compinit: eval "$(tpu-console completion zsh)\"""",
    "fish": "run once: tpu-console completion fish > ~/.config/fish/completions/tpu-console.fish",
}


@click.command(epilog=examples(*(line.partition(": ")[2] for line in _INSTALL.values())))
@click.argument("shell", type=click.Choice(sorted(_INSTALL)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> int:
    """Print the completion script for SHELL.

    It completes commands, options, presets, runs, accelerators and the keys of --set.
    """
    complete = get_completion_class(shell)
    if complete is None:  # this version of click does not support the shell
        ctx.fail(f"There is no completion for {shell}.")
    source = complete(ctx.find_root().command, {}, PROGRAM, VARIABLE).source_template
    names = {
        "complete_func": f"_{PROGRAM.replace('-', '_')}_completion",
        "complete_var": VARIABLE,
        "prog_name": PROGRAM,
    }
    script = (source % names).strip()
    if complete is BashComplete:
        script = _without_space_after_equals(script)
    say([f"# To enable it in every shell, {_INSTALL[shell]}", script])
    return 0


def _without_space_after_equals(script: str) -> str:
    """Add no space after ``--set key=``, so that the value can follow directly."""
    return script.replace("    return 0\n", "    [[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n    return 0\n")
