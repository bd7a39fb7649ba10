"""The command line: `tpu-console`, its subcommands, and how their errors are reported.

Only click is imported here, and only the module of the command that was asked for, so that help and completion are
fast. Each command imports what it needs.
"""

from __future__ import annotations

import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from .commands.options import PROGRAM, examples, preset_file_option, screen_options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .commands.opening import Markers

_FAILED, _BAD_USAGE, _INTERRUPTED = 1, 2, 130
_Table = dict[str, tuple[str, str]]
_RUNS: _Table = {
    "list": ("listing", "List your runs, the newest first."),
    "show": ("showing", "Show everything about RUN, by default the newest."),
    "compare": ("comparing", "Compare 2 to 20 runs: their curves, their results, and the settings that differ."),
    "rename": ("managing", "Give RUN a title, which lists show instead of its name; an empty one removes it."),
    "tag": ("managing", "Tag runs, write a note on them, or archive them."),
    "delete": ("managing", "Move runs to the trash, a folder beside them from which they can be restored."),
    "mirror": ("training", "Copy RUN to its mirror, if it ended while the mirror was away; by default the newest."),
    "import": ("exporting", "Import the trainings of other tools as runs."),
    "sweeps": ("sweeping", "List the sweeps, or watch one."),
}
_COMMANDS: _Table = {
    "run": ("training", "Train a preset, or your own data, and print plain lines."),
    "attach": ("opening", "Watch RUN, running or finished; by default the newest."),
    "web": ("web", "Open the console in a browser."),
    "stop": ("steering", "Stop RUN and save its model; by default the running one."),
    "pause": ("steering", "Pause RUN, by default the running one."),
    "continue": ("steering", "Resume a paused RUN; by default the running one."),
    "checkpoint": (
        "steering",
        "Save a checkpoint of RUN now, from which `tpu-console resume` can go on; by default of the running one.",
    ),
    "set": ("steering", "Change RUN while it trains; by default the running one."),
    "profile": ("steering", "Trace a few steps of RUN and say where their time goes; by default of the running one."),
    "resume": ("training", "Continue RUN after it stopped, crashed or was killed; by default the newest."),
    "runs": ("", "List, show, compare, tag or delete your runs."),
    "sweep": ("sweeping", "Train PRESET with every combination of some settings, and compare the results."),
    "predict": ("exporting", "Predict new data with the model of RUN, the newest by default."),
    "export": ("exporting", "Write RUN as code, or its model in another format."),
    "presets": ("listing", "List the presets."),
    "inspect": ("inspecting", "Inspect DATASET: counts, class balance, bad files, samples."),
    "preflight": ("preflight", "Check PRESET with the TPU compiler; needs no TPU."),
    "tfrecord": ("converting", "Convert the images of SOURCE into TFRecord shards in DEST."),
    "doctor": ("machine", "Check this machine."),
    "cache": ("machine", "List the caches, or clear them."),
    "completion": ("machine", "Print the completion script for SHELL."),
}
"""The module of each command, and the first sentence of its help, for the list of all commands."""
_EARLIER = {name: name for name in ("show", "compare", "rename", "delete", "mirror", "import", "sweeps")}
_EARLIER |= {"annotate": "tag"}
"""Commands of `tpu-console runs` by the names they had; for one release, they work without `runs`."""


def _refuse_repeated(command: click.Command) -> None:
    """Make it an error to give an option, or a key of ``--set``, two values; the last one would be used."""
    parse = command.make_parser

    def make_parser(ctx: click.Context) -> Any:
        parser = parse(ctx)
        parse_args = parser.parse_args

        def checked(args: list[str]) -> Any:
            values, rest, given = parse_args(args)
            single = [one for one in given if isinstance(one, click.Option) and not (one.multiple or one.is_flag)]
            named = [option.opts[0] for option in single]
            named += [f"--set {text.partition('=')[0].strip()}" for text in values.get("assignments") or ()]
            for name, count in Counter(named).items():
                if count > 1:
                    ctx.fail(f"{name} is given {count} times; it has one value.")
            return values, rest, given

        parser.parse_args = checked  # type: ignore[method-assign]
        return parser

    command.make_parser = make_parser  # type: ignore[method-assign]


class _Commands(click.Group):
    """Commands, each imported when it is asked for, with a suggestion for a misspelt one."""

    table = _COMMANDS

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _EARLIER and self.table is _COMMANDS:
            return runs.get_command(ctx, _EARLIER[cmd_name])
        if cmd_name in self.table and cmd_name not in self.commands:
            module = import_module(f".commands.{self.table[cmd_name][0]}", __package__)
            found = (value for value in vars(module).values() if isinstance(value, click.Command))
            command = next(value for value in found if value.name == cmd_name)
            _refuse_repeated(command)
            self.add_command(command)
        return self.commands.get(cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name without importing any command."""
        texts = {name: text for name, (_, text) in self.table.items() if name.startswith(incomplete)}
        names = [CompletionItem(name, help=text) for name, text in texts.items()]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        from textwrap import shorten

        room = formatter.width - 6 - max(map(len, self.table))
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, shorten(text, room, placeholder="...")) for name, (_, text) in self.table.items()]
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            from tpu_console.engine.errors import did_you_mean

            ctx.fail(f"There is no command '{name}'; {did_you_mean(name, self.table)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; exit quietly if the reader of standard output is gone."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            from .terminal.output import abandon_output

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
    from .commands.opening import open_console

    return open_console(preset_files=preset_files, in_process=in_process, markers=markers, theme=theme)


class _RunCommands(_Commands):
    """The commands of `tpu-console runs`, which lists the runs unless one of them is named."""

    table = _RUNS

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Add the name of the list."""
        is_named = ctx.resilient_parsing or (args and (not args[0].startswith("-") or args[0] in ctx.help_option_names))
        return super().parse_args(ctx, args if is_named else ["list", *args])


@cli.group(
    cls=_RunCommands,
    epilog=examples(
        "tpu-console runs                         list them",
        "tpu-console runs --sort best --tag baseline",
        "tpu-console runs compare digits-cnn digits-mlp",
    ),
)
def runs() -> None:
    """List, show, compare, tag or delete your runs."""


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
    except Exception as error:  # noqa: BLE001  each becomes a sentence, not a traceback on screen
        return _report(error)
    return result if isinstance(result, int) else 0


def _report(error: Exception) -> int:
    """Write one sentence about an error to standard error; return the exit code."""
    from tpu_console.engine.errors import ConfigError, ConsoleError, RunNotFoundError, one_line
    from tpu_console.engine.storage.paths import user_path

    from .commands.opening import NoTerminalError
    from .terminal.output import complain, complain_about

    if isinstance(error, ConsoleError):
        complain_about(error)
        return _BAD_USAGE if isinstance(error, ConfigError | RunNotFoundError | NoTerminalError) else _FAILED
    if isinstance(error, OSError):
        place = f"{user_path(Path(error.filename))}: " if isinstance(error.filename, str) else ""
        complain([f"Error: {place}{error.strerror or one_line(error)}."])
    else:
        _report_bug(error)
    return _FAILED


def _report_bug(error: Exception) -> None:
    """Write the traceback to a log beside the runs, and one sentence to standard error."""
    import traceback

    from tpu_console.engine.errors import one_line
    from tpu_console.engine.storage.files import make_private_folder, open_private
    from tpu_console.engine.storage.paths import runs_folder, user_path

    from .terminal.output import complain

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
