"""Resolves the preset or file of a command's argument, and the settings that options change."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpu_console.engine.errors import ConfigError, Problem
from tpu_console.engine.storage.paths import user_path

from .trusting import with_trust

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.presets.catalog import Preset


def chosen_preset(name: str, extra: Sequence[Path] = ()) -> Preset:
    """Return a preset by its name or from its file; `extra` are the files of ``--preset-file``.

    Raises:
        ConfigError: There is no such preset, or it has errors.
        UntrustedCodeError: It is the configuration of a run that the user did not start, and is not trusted.
    """
    from tpu_console.engine.config.catalog import is_user_reference
    from tpu_console.presets.catalog import find_preset, load_preset
    from tpu_console.presets.files import preset_files

    if name.endswith(".py") or (is_user_reference(name) and not name.endswith(".toml")):
        function = name if is_user_reference(name) else f"{name}:FUNCTION"
        use = f"--set model={function} (or dataset={function})"
        message = f"is code, not a preset. A preset can use it: tpu-console run digits-cnn {use}"
        raise ConfigError([Problem(name, message)])
    if name not in preset_files(extra):
        _refuse_data(name)
    if name.endswith(".toml") or os.sep in name:
        preset = load_preset(Path(name).expanduser())
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


def _refuse_data(name: str) -> None:
    """Raise `ConfigError` for data of the user, and for a preset file without its ending: it says what to type."""
    place = Path(name).expanduser()
    if place.suffix != ".toml" and (place.is_dir() or (place.suffix and place.is_file())):
        command = f"tpu-console inspect {shlex.quote(name)} --save mine.toml"
        message = f"is data, not a preset. To write a preset for it: {command}"
        raise ConfigError([Problem(name, message)])
    file = Path(f"{name}.toml")
    if os.sep not in name and file.is_file():
        raise ConfigError([Problem("", f"There is no preset '{name}', but a file: write ./{file}")])


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
