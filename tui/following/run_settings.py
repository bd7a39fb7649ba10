"""Reads what a run was asked to do, and what of it differs from its preset."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.sanitize import printable

from ..text.names import to_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpu_console.engine.config.run_config import RunConfig
    from tpu_console.engine.runs.run_directory import RunDirectory


class Setting(NamedTuple):
    """One setting."""

    key: str  # its key, such as ``optimizer.learning_rate``
    value: str  # its value as text
    preset: str | None = None  # the preset's value as text; None if that is the same or unknown

    @property
    def text(self) -> str:
        """The value, with the preset's if that differs."""
        return self.value if self.preset is None else f"{self.value} (preset: {self.preset})"


def settings_of(config: RunConfig, base: RunConfig | None) -> list[Setting]:
    """Return all settings as they may be shown, those that differ from the preset, if it is known, first."""
    # Slow to import, like everything with pydantic.
    from tpu_console.engine.config.run_config import flat_values, without_secrets

    base = config if base is None else base
    after, before = flat_values(config), flat_values(base)
    shown, shown_before = flat_values(without_secrets(config)), flat_values(without_secrets(base))
    settings = [
        Setting(key, _written(shown[key]), None if before.get(key) == value else _written(shown_before.get(key)))
        for key, value in after.items()
    ]
    return sorted(settings, key=lambda setting: setting.preset is None)


def _written(value: object) -> str:
    return "none" if value is None else to_text(value) or "none"


_LONGEST_CHANGES = 200


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


def changes_of(config: Mapping[str, Any]) -> str:
    """Return the settings in which a journal's configuration differs from its preset; empty if that is unknown."""
    preset = _preset_settings(str(config.get("name"))) if config else {}
    if not preset:
        return ""
    from tpu_console.engine.config.reading import current_keys
    from tpu_console.engine.config.run_config import flattened

    settings = flattened(current_keys(config)).items()
    changed = {key: value for key, value in settings if key != "name" and preset.get(key) != value}
    last = Counter(key.rpartition(".")[2] for key in changed)
    named = ((key.rpartition(".")[2], key, value) for key, value in changed.items())
    words = [f"{short if last[short] == 1 else key}={_written(value)}" for short, key, value in named]
    return printable(" ".join(words))[:_LONGEST_CHANGES]


@cache
def _preset_settings(name: str) -> dict[str, Any]:
    """Return the settings of a preset by dotted key; none if there is no such preset."""
    from tpu_console.engine.config.run_config import flattened, journal_values
    from tpu_console.presets.catalog import find_preset

    try:
        return flattened(journal_values(find_preset(name).config))
    except ConsoleError:
        return {}
