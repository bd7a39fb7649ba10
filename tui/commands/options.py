"""What commands share: their help, arguments and options, what these name or change, and whether code in it may run."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from tpu_console.engine.config.catalog import is_user_reference
from tpu_console.engine.data.places import locate
from tpu_console.engine.errors import ConfigError, Problem, UntrustedCodeError
from tpu_console.engine.runs.run_directory import is_named, list_runs
from tpu_console.engine.sanitize import printable
from tpu_console.engine.storage.paths import user_path
from tpu_console.presets import preset_files

from ..jobs.job_process import ProgressLines, run_job
from ..terminal.output import complain

if TYPE_CHECKING:
    from tpu_console.presets.catalog import Preset

    Completion = Callable[[click.Context, click.Parameter, str], list[str]]

PROGRAM = "tpu-console"
Decorated = TypeVar("Decorated", bound="Callable[..., Any]")
T = TypeVar("T")


class Command(click.Command):
    """A command that refuses a second value for an option, or for a key of ``--set``; the last one would be used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        if not ctx.resilient_parsing:
            values, _, given = self.make_parser(ctx).parse_args([*args])
            single = [one for one in given if isinstance(one, click.Option) and not (one.multiple or one.is_flag)]
            named = [option.opts[0] for option in single]
            named += [f"--set {text.partition('=')[0].strip()}" for text in values.get("assignments") or ()]
            for name, count in Counter(named).items():
                if count > 1:
                    ctx.fail(f"{name} is given {count} times; it has one value.")
        return super().parse_args(ctx, args)


def command(*lines: str, name: str | None = None, **codes: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a command of a function, with its examples and exit codes as in `examples`."""
    return click.command(name, cls=Command, epilog=examples(*lines, **codes))


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


def offers(names: Callable[[], Iterable[str]], *, anywhere: bool = False) -> Completion:
    """Return a completion that offers the names that begin with what was typed, or, with `anywhere`, contain it."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        return [name for name in names() if (incomplete in name if anywhere else name.startswith(incomplete))]

    return complete


def complete_preset(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer the names of presets, or files if none begins so."""
    extra = ctx.params.get("preset_files") or ()
    names = [CompletionItem(name) for name in preset_files(extra) if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="file")]


def _keys() -> list[str]:
    """Return the keys of a configuration, each with its equals sign."""
    from tpu_console.engine.config.reading import valid_keys

    return [f"{key}=" for key in valid_keys()]


complete_run = offers(lambda: (run.run_id for run in list_runs()), anywhere=True)
complete_accelerator = offers(lambda: ("auto", "cpu", "gpu", "tpu", "tpu:", "sim:2", "sim:4", "sim:8"))


def option(usage: str, text: str, name: str | None = None, **more: Any) -> Callable[[Decorated], Decorated]:
    """Add an option, written as its help shows it, such as ``--epochs N``; without a value and `more`, a flag."""
    words = usage.split()
    names = [*(word.strip(",") for word in words if word.startswith("-")), *([name] if name else [])]
    value = None if words[-1].startswith("-") else words[-1]
    return click.option(*names, metavar=value, help=text, **(more if value or more else {"is_flag": True}))


def together(*options: Callable[[Decorated], Decorated]) -> Callable[[Decorated], Decorated]:
    """Make one decorator of several options, in the order of the help."""

    def add(function: Decorated) -> Decorated:
        for option in reversed(options):
            function = option(function)
        return function

    return add


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep an option for what reads it from the context, so that the function of the command need not pass it on."""
    if value:
        ctx.meta[str(param.name)] = value


preset_argument = click.argument("preset", metavar="PRESET|DATA", shell_complete=complete_preset)
run_argument = click.argument("name", metavar="[RUN]", required=False, shell_complete=complete_run)
preset_file_option = option(
    "--preset-file FILE",
    "Add this preset file; repeatable.",
    "preset_files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
set_option = option(
    "--set KEY=VALUE",
    "Change a setting, such as data.options.image_size=[64,64]; repeatable. VALUE is TOML or plain text.",
    "assignments",
    multiple=True,
    shell_complete=offers(_keys),
)
checkpoint_option = option(
    "--checkpoint",
    "The last model, or the one of the best epoch.",
    type=click.Choice(["last", "best"]),
    default="last",
    show_default=True,
)
trust_option = option(
    "--trust",
    "Allow its code to run, and all else that it names, even if it is not yours.",
    is_flag=True,
    expose_value=False,
    callback=_keep,
)
detach_option = option("--detach", "Start in the background and return.")


def json_option(text: str) -> Callable[[Decorated], Decorated]:
    """Add ``--json``, described by `text`."""
    return option("--json", text, "as_json")


def form_options(**texts: str) -> Callable[[Decorated], Decorated]:
    """Add an option for each form in which results can be printed; the one that is given is `form`."""
    return together(*(option(f"--{form}", text, "form", flag_value=form) for form, text in texts.items()))


training_options = together(
    set_option,
    option("--epochs N", "Number of epochs, including those already done.", type=int),
    option("--batch-size N", "Batch size per replica.", type=int),
    option(
        "--accelerator A",
        "auto, cpu, gpu, tpu, tpu:ADDRESS (a remote TPU) or sim:N (N simulated replicas).",
        shell_complete=complete_accelerator,
    ),
    option("--backend", "Keras backend. [default: auto]", type=click.Choice(["auto", "tensorflow", "jax"])),
    option("--budget T", "Longest time from now on, such as 8h30m, colab or kaggle; stops in time to be saved."),
    trust_option,
    option("--in-process", "Train in this process, not in a separate one; the run ends with it."),
    detach_option,
    json_option("Print the run's events, one JSON object per line."),
)
"""The options of commands that train."""

screen_options = together(
    option(
        "--markers",
        "Characters for curves. [default: braille; ascii without a UTF-8 locale]",
        type=click.Choice(["braille", "block", "ascii"]),
        expose_value=False,
        callback=_keep,
    ),
    option("--theme NAME", "A Textual theme, such as textual-light.", expose_value=False, callback=_keep),
)
"""The options of commands that open a screen."""


def screen_choices() -> dict[str, str]:
    """Return the options of `screen_options` that were given."""
    meta = click.get_current_context().meta
    return {name: meta[name] for name in ("markers", "theme") if name in meta}


def chosen_preset(name: str, extra: Sequence[Path] = (), assignments: Sequence[str] = ()) -> Preset:
    """Return a preset by its name or from its file, or one that is made for a file or folder of data.

    `extra` are the files of ``--preset-file``, and `assignments` those of ``--set``, which say how to read data. Raise
    `ConsoleError` if there is no such preset or known format, it has errors, or its code is not trusted.
    """
    from tpu_console.engine.data.kinds.table import is_name
    from tpu_console.engine.data.row_files import TABLES
    from tpu_console.presets.catalog import find_preset, load_preset

    if is_name(name):
        return _for_data(name, parsed(assignments))
    if name.endswith(".py") or (is_user_reference(name) and not name.endswith(".toml")):
        message = "is code, not a preset. A preset can use it: tpu-console run digits-cnn --set model=FILE.py:FUNCTION"
        raise ConfigError([Problem(name, message)])
    presets = preset_files(extra)
    if name.endswith(".toml"):
        preset = load_preset(Path(name).expanduser())
    elif (
        name and name not in presets and (os.sep in name or Path(name).suffix in TABLES or Path(locate(name)).exists())
    ):
        return _for_data(name, parsed(assignments))
    elif name not in presets and (file := Path(f"{name}.toml")).is_file():
        raise ConfigError([Problem("", f"There is no preset '{name}', but a file: write ./{file}")])
    else:
        preset = find_preset(name, extra)
    _check_run_of(preset)
    return preset


def check_files(files: Sequence[Path]) -> None:
    """Check the files of ``--preset-file`` that the form will offer, as `chosen_preset` does; it shows broken ones."""
    from tpu_console.presets.catalog import load_preset

    for file in files:
        with suppress(ConfigError):
            _check_run_of(load_preset(file))


def _check_run_of(preset: Preset) -> None:
    """Ask about a preset whose file is the configuration of a run that the user did not start."""
    from tpu_console.engine.config.user_code import check_started

    file = preset.path.resolve()

    def check(trust: bool) -> bool:
        if not trust:
            check_started(user_path(file), preset.config)
        return True

    if os.path.lexists(file.with_name("events.jsonl")) and with_trust(check) is None:
        raise click.exceptions.Exit(1)


def _for_data(name: str, changes: list[tuple[str, Any]]) -> Preset:
    from tpu_console.presets.catalog import preset_for_data

    with ProgressLines() as downloads:
        return decided(lambda answers: preset_for_data(name, [*changes, *answers], downloads.arrived))[0]


def decided(act: Callable[[list[tuple[str, Any]]], T]) -> tuple[T, list[tuple[str, Any]]]:
    """Call a function, and ask on a terminal what it cannot guess about the data; return its result and the answers."""
    from tpu_console.engine.data.kinds.formats import UndecidedError

    answers: list[tuple[str, Any]] = []
    while True:
        try:
            return act(answers), answers
        except UndecidedError as error:
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                raise
            question = error.question
            values = {printable(words): value for words, value in question.answers.items()}
            answer = click.prompt(question.text, type=click.Choice([*values]), err=True)
            answers.append((f"data.options.{question.option}", values[answer]))


def parsed(assignments: Sequence[str]) -> list[tuple[str, Any]]:
    """Parse the values of ``--set``; raise `ConfigError` with every problem."""
    from tpu_console.engine.config.reading import parse_assignment

    changes, problems = [], []
    for text in assignments:
        try:
            changes.append(parse_assignment(text))
        except ConfigError as error:
            problems += [Problem("--set", str(problem)) for problem in error.problems]
    if problems:
        raise ConfigError(problems)
    return changes


def with_trust(act: Callable[[bool], T]) -> T | None:
    """Do something that may need trust, which is passed: that of ``--trust``, or else the answer to a question.

    Return what it returns, or None if the answer is no; without a terminal to ask on, an `UntrustedCodeError` stays.
    """
    context = click.get_current_context(silent=True)
    try:
        return act(context is not None and context.meta.get("trust", False))
    except UntrustedCodeError as error:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise
        complain([*error.what.split("\n"), *([error.why] if error.why else [])])
        if not click.confirm("Allow it to run?", err=True):
            complain(["Nothing was done."])
            return None
        return act(True)


def run_job_with_trust(
    name: str, options: Mapping[str, Any], when_interrupted: str = "Nothing was written."
) -> dict[str, Any] | None:
    """Run a job that may need trust, as in `with_trust`."""
    return with_trust(lambda trust: run_job(name, {**options, "trust": trust}, when_interrupted))


def run_line(name: str | None, run_id: str) -> str:
    """Return which run was used, and that it is the newest of its preset if only that was named."""
    return f"{run_id}, the newest run of {name}" if name and is_named(run_id, name) else run_id
