"""The command line: `tpu-console`, its subcommands, and how their errors are reported.

A command imports what takes longer than 50 ms when it is called, so that help and completion are fast.
"""

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from tpu_console.engine.errors import ConfigError, ConsoleError, RunNotFoundError, did_you_mean, one_line
from tpu_console.engine.messages import NO_PLUGINS
from tpu_console.engine.storage.files import make_private_folder, open_private
from tpu_console.engine.storage.paths import refusal_of, runs_folder, user_path

from .commands import opening
from .commands.options import PROGRAM, examples, option, preset_file_option, screen_choices, screen_options
from .terminal.output import abandon_output, complain, complain_about

_FAILED, _BAD_USAGE, _INTERRUPTED = 1, 2, 130
_TOP = {
    "run": "training",
    "attach": "opening",
    "web": "opening",
    "stop": "steering",
    "pause": "steering",
    "continue": "steering",
    "checkpoint": "steering",
    "set": "steering",
    "resume": "training",
    "runs": "",
    "sweep": "sweeping",
    "predict": "exporting",
    "export": "exporting",
    "presets": "inspecting",
    "inspect": "inspecting",
    "preflight": "inspecting",
    "tfrecord": "exporting",
    "doctor": "machine",
    "cache": "machine",
    "completion": "machine",
}
"""The commands in the order of the help, and the module of each."""
_OF_RUNS = {
    "list": "runs",
    "show": "runs",
    "compare": "runs",
    "rename": "runs",
    "tag": "runs",
    "delete": "runs",
    "profile": "steering",
    "mirror": "training",
    "import": "exporting",
    "sweeps": "sweeping",
}
_EARLIER = {"annotate": "tag"} | {name: name for name in _OF_RUNS if name not in {"list", "tag"}}
"""The earlier names of `tpu-console runs` commands, which work without `runs` for one release."""


class _Commands(click.Group):
    """Commands that are imported when they are called, with a suggestion for a misspelt one."""

    modules: Mapping[str, str] = _TOP

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        earlier = _EARLIER.get(cmd_name, "")
        module, name = self.modules.get(cmd_name, _OF_RUNS.get(earlier)), earlier or cmd_name
        if not module:
            return super().get_command(ctx, cmd_name)
        members = vars(import_module(f".commands.{module}", __package__)).values()
        return next(one for one in members if isinstance(one, click.Command) and one.name == name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            ctx.fail(f"There is no command '{name}'; {did_you_mean(name, self.modules)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; exit quietly if the reader of standard output is gone."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            abandon_output()
            return 0


@click.group(
    PROGRAM,
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "tpu-console                       open the console",
        "tpu-console run digits-cnn        train and print plain lines",
        "tpu-console attach                watch the newest run",
    ),
)
@option("--in-process", "Train inside the console, not in a separate process.")
@preset_file_option
@screen_options
@click.version_option(None, "-V", "--version", package_name=PROGRAM, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, in_process: bool, preset_files: tuple[Path, ...]) -> int:
    """Train Keras models on TPU, GPU and CPU from a terminal.

    Without a command it opens the console: pick a preset, check the plan, start the run and watch it.
    """
    if ctx.invoked_subcommand is not None:
        if in_process or preset_files or screen_choices():
            ctx.fail(f"Options for '{ctx.invoked_subcommand}' go after it.")
        return 0
    return opening.open_console(preset_files=preset_files, in_process=in_process)


class _RunCommands(_Commands):
    """The commands of `tpu-console runs`, which lists the runs unless one of them is named."""

    modules = _OF_RUNS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add `list` if no command is named."""
        is_named = ctx.resilient_parsing or (args and (not args[0].startswith("-") or args[0] in ctx.help_option_names))
        return super().parse_args(ctx, args if is_named else ["list", *args])


@click.group(
    "runs",
    cls=_RunCommands,
    epilog=examples(
        "tpu-console runs                         list them",
        "tpu-console runs --sort best --tag baseline",
        "tpu-console runs compare digits-cnn digits-mlp",
    ),
)
def runs_group() -> None:
    """List, show, compare, tag or delete your runs."""


cli.add_command(runs_group)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line with arguments, by default those of the process.

    Return the exit code: 0 finished, 1 failed, 2 bad usage or configuration, 130 interrupted.
    """
    os.environ.setdefault(*NO_PLUGINS)
    try:
        result = cli.main(args, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001  each becomes a sentence, not a traceback on screen
        return _report(error)
    return result if isinstance(result, int) else 0


def _report(error: Exception) -> int:
    """Report an error in one sentence on standard error, and a bug also in a log; return the exit code."""
    if isinstance(error, ConsoleError):
        complain_about(error)
        return _BAD_USAGE if isinstance(error, ConfigError | RunNotFoundError | opening.NoTerminalError) else _FAILED
    if isinstance(error, OSError):
        complain([f"Error: {refusal_of(error)}."])
        return _FAILED
    log = runs_folder().parent / "errors.log"
    try:
        make_private_folder(log.parent)
        with open(log, "a", encoding="utf-8", opener=open_private) as file:
            file.write(f"{' '.join(sys.argv)}\n{''.join(traceback.format_exception(error))}\n")
    except OSError:
        complain(traceback.format_exception(error))
        return _FAILED
    complain([f"Error: an internal error in tpu-console ({type(error).__name__}: {one_line(error)}).",
              f"Details: {user_path(log)}"])  # fmt: skip
    return _FAILED
