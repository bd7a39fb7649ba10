"""Presets: example configurations, one TOML file each, with the score and time to expect."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .catalog import Preset, all_presets, find_preset, load_preset, preset_for_data, save_preset

__all__ = ["Preset", "all_presets", "find_preset", "load_preset", "preset_for_data", "save_preset"]


def __getattr__(name: str) -> object:
    """Import the catalog on first use: it imports Pydantic, for which the first frame does not wait."""
    if name in __all__:
        from . import catalog

        return getattr(catalog, name)
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
