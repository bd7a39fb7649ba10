"""Where things live on disk: the runs and the person's own presets."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from ..sanitize import printable

APP_NAME = "tpu-console"
HOME_VARIABLE = "TPU_CONSOLE_HOME"


def runs_folder() -> Path:
    """Return the folder that holds one folder a run; it need not exist yet.

    ``$TPU_CONSOLE_HOME/runs`` when that variable is set, else under the user data directory.
    """
    home = os.environ.get(HOME_VARIABLE)
    base = Path(home).expanduser() if home else Path(platformdirs.user_data_dir(APP_NAME))
    return base / "runs"


def user_presets_folder() -> Path:
    """Return the folder with the person's own presets; it need not exist.

    ``$TPU_CONSOLE_HOME/presets`` when that variable is set, else under the user configuration directory.
    """
    home = os.environ.get(HOME_VARIABLE)
    base = Path(home).expanduser() if home else Path(platformdirs.user_config_dir(APP_NAME))
    return base / "presets"


def cache_folder() -> Path:
    """Return the folder for what can be worked out again; it need not exist.

    ``$TPU_CONSOLE_HOME/cache`` when that variable is set, else the user cache directory.
    """
    home = os.environ.get(HOME_VARIABLE)
    return Path(home).expanduser() / "cache" if home else Path(platformdirs.user_cache_dir(APP_NAME))


def keras_home() -> Path:
    """Return the folder in which Keras keeps its cache, by the rule of Keras's own `config.py`."""
    home = os.environ.get("KERAS_HOME")
    return Path(home).expanduser() if home else Path.home() / ".keras"


def user_path(path: Path) -> str:
    """Write a path as a person would, with the home folder as ``~``, and safe to show."""
    try:
        return printable(f"~/{path.relative_to(Path.home())}")
    except ValueError:
        return printable(str(path))
