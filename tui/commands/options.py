"""Arguments and options that several commands share, with their shell completion."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROGRAM = "tpu-console"
Decorated = TypeVar("Decorated", bound="Callable[..., Any]")


def examples(
    *lines: str,
    done: str = "finished, or stopped and saved on request",
    failed: str = "the run failed",
    others: Mapping[int, str] | None = None,
) -> str:
    """Format a command's examples and exit codes for the end of its help; `done` is code 0, `failed` code 1."""
    meanings = {0: done, 1: failed, 2: "bad usage or configuration", **(others or {}), 130: "interrupted"}
    codes = [f"  {code:<3}  {meaning}" for code, meaning in meanings.items()]
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines), "", "\b", "Exit codes:", *codes])


def absolute(place: str) -> str:
    """Return a path that does not depend on the current folder, for a job; links are not followed."""
    # Unlike those of Path, these remove `..` and accept `~` before a name that is no user's.
    return os.path.abspath(os.path.expanduser(place))  # noqa: PTH100, PTH111


def complete_preset(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of presets, or files if none begins so."""
    from tpu_console.presets.files import preset_files

    extra = ctx.params.get("preset_files") or ()
    names = [CompletionItem(name) for name in preset_files(extra) if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


def complete_run(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of runs that contain what was typed."""
    from tpu_console.engine.runs.run_directory import list_runs

    return [CompletionItem(run.run_id) for run in list_runs() if incomplete in run.run_id]


def _complete_key(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the keys of a configuration, each with its equals sign."""
    from tpu_console.engine.config.reading import valid_keys

    return [CompletionItem(f"{key}=") for key in valid_keys() if key.startswith(incomplete)]


def complete_accelerator(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer accelerators, with the usual numbers of replicas for simulated ones."""
    names = ["auto", "cpu", "gpu", "tpu", "tpu:", "sim:2", "sim:4", "sim:8"]
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


preset_argument = click.argument("preset", metavar="PRESET|DATA", shell_complete=complete_preset)
run_argument = click.argument("name", metavar="[RUN]", required=False, shell_complete=complete_run)
preset_file_option = click.option(
    "--preset-file",
    "preset_files",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Add this preset file; repeatable.",
)
set_option = click.option(
    "--set",
    "assignments",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=_complete_key,
    help="Change a setting, such as data.options.image_size=[64,64]; repeatable. VALUE is TOML or plain text.",
)
checkpoint_option = click.option(
    "--checkpoint",
    type=click.Choice(["last", "best"]),
    default="last",
    show_default=True,
    help="The last model, or the one of the best epoch.",
)
trust_option = click.option(
    "--trust",
    is_flag=True,
    expose_value=False,  # `trusting` reads it
    callback=lambda ctx, _, value: ctx.meta.update(trust=value),
    help="Allow its code to run, and all else that it names, even if it is not yours.",
)
in_process_option = click.option(
    "--in-process", is_flag=True, help="Train in this process, not in a separate one; the run ends with it."
)
backend_option = click.option(
    "--backend", type=click.Choice(["auto", "tensorflow", "jax"]), help="Keras backend. [default: auto]"
)


def hosts_options(command: Decorated) -> Decorated:
    """Add the options that set which machines train together."""
    hosts = click.option(
        "--hosts", type=int, metavar="N", help="Number of machines. [default: from the TPU pod, else 1]"
    )
    index = click.option("--host-index", type=int, metavar="I", help="Index of this machine, from 0.")
    coordinator = click.option(
        "--coordinator", metavar="ADDR", help="ADDRESS[:PORT] of host 0; the same on all machines."
    )
    return hosts(index(coordinator(command)))


def json_option(text: str) -> Callable[[Decorated], Decorated]:
    """Add ``--json``, described by `text`."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def screen_options(command: Decorated) -> Decorated:
    """Add the options of commands that open a screen."""
    markers = click.option(
        "--markers",
        type=click.Choice(["braille", "block", "ascii"]),
        help="Characters for curves. [default: braille; ascii without a UTF-8 locale]",
    )
    theme = click.option("--theme", metavar="NAME", help="A Textual theme, such as textual-light.")
    return markers(theme(command))
