"""Resolves the preset or file of a command's argument, and the settings that options change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpu_console.engine.errors import ConfigError, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpu_console.presets.catalog import Preset


def chosen_preset(name: str, extra: Sequence[Path] = ()) -> Preset:
    """Return a preset by its name or from its file; `extra` are the files of ``--preset-file``.

    Raises:
        ConfigError: There is no such preset, or it has errors.
    """
    from tpu_console.engine.config.catalog import is_user_reference
    from tpu_console.presets.catalog import find_preset, load_preset

    if name.endswith(".py") or (is_user_reference(name) and not name.endswith(".toml")):
        function = name if is_user_reference(name) else f"{name}:FUNCTION"
        message = f"is code, not a preset. A preset can use it: tpu-console run digits-cnn --set model={function}"
        raise ConfigError([Problem(name, message)])
    if name.endswith(".toml") or os.sep in name:
        return load_preset(Path(name).expanduser())
    return find_preset(name, extra)


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
