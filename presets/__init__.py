"""Presets: example configurations, one TOML file each, with the score and time to expect."""

from .catalog import Preset, all_presets, find_preset, load_preset, save_preset

__all__ = ["Preset", "all_presets", "find_preset", "load_preset", "save_preset"]
