"""Presets: example configurations, one TOML file each, with the score and time to expect."""
