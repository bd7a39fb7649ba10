"""Reads what a run was asked to do, and what of it differs from its preset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpu_console.engine.errors import ConsoleError

from ..text.settings import Setting, settings_of

if TYPE_CHECKING:
    from tpu_console.engine.runs.run_directory import RunDirectory


def read_settings(run: RunDirectory) -> list[Setting]:
    """Return the settings of a run, those that differ from its preset first; none if it has no configuration."""
    from tpu_console.engine.config.reading import load_config
    from tpu_console.presets.catalog import find_preset

    try:
        config = load_config(run.config)
    except ConsoleError:
        return []
    try:
        base = find_preset(config.name).config
    except ConsoleError:
        base = None
    return settings_of(config, base)
