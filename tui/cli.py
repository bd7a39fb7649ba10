"""The command line: `tpu-console`, its subcommands, and how their errors are reported.

Only click is imported here, so that help, version and completion are fast. Each command imports what it needs.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpu_console.engine.errors import ConfigError, ConsoleError, RunNotFoundError, did_you_mean, one_line
from tpu_console.engine.storage.paths import user_path

from .commands.comparing import compare
from .commands.completion import PROGRAM, completion
from .commands.converting import tfrecord
from .commands.doctor import doctor
from .commands.exporting import export
from .commands.importing import import_
from .commands.inspecting import inspect
from .commands.listing import presets, runs
from .commands.managing import annotate, delete, rename
from .commands.options import examples, preset_file_option, screen_options
from .commands.predicting import predict
from .commands.preflight import preflight
from .commands.resume import mirror, resume
from .commands.showing import show
from .commands.steering import checkpoint, continue_, pause, set_, stop
from .commands.training import run
from .commands.watching import NoTerminalError, attach, open_console
from .terminal.output import abandon_output, complain, complain_about

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .commands.watching import Markers

_FAILED, _BAD_USAGE, _INTERRUPTED = 1, 2, 130


def _refuse_repeated(command: click.Command) -> None:
    """Make it an error to give an option twice that has one value; click would use the last one."""
    parse = command.make_parser

    def make_parser(ctx: click.Context) -> Any:
        parser = parse(ctx)
        parse_args = parser.parse_args

        def checked(args: list[str]) -> Any:
            values, rest, given = parse_args(args)
            for option in dict.fromkeys(given):
                is_single = isinstance(option, click.Option) and not (option.multiple or option.is_flag)
                if is_single and given.count(option) > 1:
                    ctx.fail(f"{option.opts[0]} is given {given.count(option)} times; it has one value.")
            return values, rest, given

        parser.parse_args = checked  # type: ignore[method-assign]
        return parser

    command.make_parser = make_parser  # type: ignore[method-assign]


class _Commands(click.Group):
    """Commands in the order they were added, with a suggestion for a misspelt one."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"There is no command '{name}'; {did_you_mean(name, self.commands)}")
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
@click.option("--in-process", is_flag=True, help="Train inside the console, not in a separate process.")
@preset_file_option
@screen_options
@click.version_option(None, "-V", "--version", package_name=PROGRAM, prog_name=PROGRAM, message="%(prog)s %(version)s")
@click.pass_context
def cli(
    ctx: click.Context,
    in_process: bool,
    preset_files: tuple[Path, ...],
    markers: Markers | None,
    theme: str | None,
) -> int:
    """Train Keras models on TPU, GPU and CPU from a terminal.

    Without a command it opens the console: pick a preset, check the plan, start the run and watch it.
    """
    if ctx.invoked_subcommand is not None:
        if in_process or preset_files or markers or theme:
            ctx.fail(f"Options for '{ctx.invoked_subcommand}' go after it.")
        return 0
    return open_console(preset_files=preset_files, in_process=in_process, markers=markers, theme=theme)


for _command in (
    *(run, attach, stop, pause, continue_, checkpoint, set_, resume, mirror),
    *(runs, show, compare, rename, annotate, delete),
    *(predict, export, import_, presets, inspect, preflight, tfrecord, doctor, completion),
):
    _refuse_repeated(_command)
    cli.add_command(_command)


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        args: The arguments; those of the process by default.

    Returns:
        The exit code: 0 finished, 1 failed, 2 bad usage or configuration, 130 interrupted.
    """
    try:
        result = cli.main(args, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except ConsoleError as error:
        complain_about(error)
        return _BAD_USAGE if isinstance(error, ConfigError | RunNotFoundError | NoTerminalError) else _FAILED
    except OSError as error:
        place = f"{user_path(Path(error.filename))}: " if isinstance(error.filename, str) else ""
        complain([f"Error: {place}{error.strerror or one_line(error)}."])
        return _FAILED
    except Exception as error:  # noqa: BLE001  a bug must leave a sentence and a log, not a traceback on screen
        _report_bug(error)
        return _FAILED
    return result if isinstance(result, int) else 0


def _report_bug(error: Exception) -> None:
    """Write the traceback to a log beside the runs, and one sentence to standard error."""
    from tpu_console.engine.storage.files import make_private_folder, open_private
    from tpu_console.engine.storage.paths import runs_folder

    log = runs_folder().parent / "errors.log"
    try:
        make_private_folder(log.parent)
        with open(log, "a", encoding="utf-8", opener=open_private) as file:
            file.write(f"{' '.join(sys.argv)}\n{''.join(traceback.format_exception(error))}\n")
    except OSError:
        complain(traceback.format_exception(error))
        return
    complain([f"Error: an internal error in tpu-console ({type(error).__name__}: {one_line(error)}).",
              f"Details: {user_path(log)}"])  # fmt: skip
