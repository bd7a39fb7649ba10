"""Presets: worked examples, one TOML file each, with what they reproduce and the score and time to expect."""

from .catalog import Preset, all_presets, find_preset, load_preset, save_preset

__all__ = ["Preset", "all_presets", "find_preset", "load_preset", "save_preset"]
