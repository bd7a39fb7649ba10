"""What a command's argument names, the settings that options change, and whether code that it brings may run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tpu_console.engine.config.catalog import is_user_reference
from tpu_console.engine.data.places import locate
from tpu_console.engine.errors import ConfigError, Problem, UntrustedCodeError
from tpu_console.engine.runs.run_directory import is_named
from tpu_console.engine.sanitize import printable
from tpu_console.engine.storage.paths import user_path
from tpu_console.presets.files import preset_files

from ..jobs.job_process import ProgressLines, run_job
from ..terminal.output import complain

if TYPE_CHECKING:
    from tpu_console.presets.catalog import Preset

T = TypeVar("T")


def chosen_preset(name: str, extra: Sequence[Path] = (), assignments: Sequence[str] = ()) -> Preset:
    """Return a preset by its name or from its file, or one that is made for a file or folder of data.

    `extra` are the files of ``--preset-file``, and `assignments` those of ``--set``, which say how to read data. Raise
    `ConsoleError` if there is no such preset or known format, it has errors, or its code is not trusted.
    """
    from tpu_console.engine.data.kinds.table import is_name
    from tpu_console.presets.catalog import find_preset, load_preset

    if is_name(name):
        return _for_data(name, parsed(assignments))
    if name.endswith(".py") or (is_user_reference(name) and not name.endswith(".toml")):
        message = "is code, not a preset. A preset can use it: tpu-console run digits-cnn --set model=FILE.py:FUNCTION"
        raise ConfigError([Problem(name, message)])
    presets = preset_files(extra)
    if name.endswith(".toml"):
        preset = load_preset(Path(name).expanduser())
    elif name and name not in presets and (os.sep in name or Path(locate(name)).exists()):
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
    from tpu_console.engine.config.trust import check_started

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
