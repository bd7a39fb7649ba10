"""The settings of a run, those that differ from its preset first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tpu_console.engine.config.run_config import RunConfig


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
        Setting(key, str(shown[key]), None if before.get(key) == value else str(shown_before.get(key)))
        for key, value in after.items()
    ]
    return sorted(settings, key=lambda setting: setting.preset is None)
