"""Builds the shell command that starts the same run as the form."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tpu_console.engine.config.reading import run_command, value_text
from tpu_console.engine.config.run_config import flat_values
from tpu_console.engine.sanitize import printable
from tpu_console.engine.storage.paths import user_path, user_presets_folder

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.presets import Preset


def shell_command(config: RunConfig, preset: Preset) -> str:
    """Return the `tpu-console run` command of a configuration made from a preset or a ``--preset-file``."""
    if preset.notes:  # made for data, and again by the command
        values = flat_values(config)
        given = [f"--set {shlex.quote(f'{key}={value_text(key, value)}')}"
                 for key, value in preset.given if values.get(key) == value]  # fmt: skip
        return " ".join([run_command(config, preset.config, user_path(preset.path)), *given])
    command = run_command(config, preset.config, preset.name)
    if preset.is_builtin or preset.path.parent == user_presets_folder():
        return command
    path = user_path(preset.path)
    # A quoted ~ is not the home folder to a shell.
    return f"{command} --preset-file {path if path == shlex.quote(path) else shlex.quote(printable(str(preset.path)))}"
