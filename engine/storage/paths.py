"""Where files are on disk: runs, the user's presets, caches."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import platformdirs

from ..errors import ConsoleError, one_line
from ..sanitize import printable

APP_NAME = "tpu-console"
HOME_VARIABLE = "TPU_CONSOLE_HOME"


def _base(usual: Callable[[str], Path], folder: str = "") -> Path:
    """Return a folder of ours, in the one that is set for all of them or where the platform puts it."""
    home = os.environ.get(HOME_VARIABLE)
    return Path(home).expanduser() / folder if home else usual(APP_NAME)


def runs_folder() -> Path:
    """Return the folder with one folder per run; it need not exist yet, like the others."""
    return _base(platformdirs.user_data_path) / "runs"


def sweeps_folder() -> Path:
    """Return the folder with one folder per sweep."""
    return runs_folder().parent / "sweeps"


def user_presets_folder() -> Path:
    """Return the folder with the user's presets."""
    return _base(platformdirs.user_config_path) / "presets"


def cache_folder() -> Path:
    """Return the folder for values that can be computed again."""
    return _base(platformdirs.user_cache_path, "cache")


def keras_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of Keras's cache, by the rule of Keras's `config.py`."""
    home = environ.get("KERAS_HOME")
    return Path(home).expanduser() if home else Path.home() / ".keras"


def with_keras_home(text: str) -> str:
    """Return a text about the default folder of Keras's cache with the folder that is set."""
    return text.replace("~/.keras", user_path(keras_home()))


def refusal_of(error: OSError) -> str:
    """Return why the system refused something, after the file if it names one, safe to show."""
    place = f"{user_path(Path(error.filename))}: " if isinstance(error.filename, str) else ""
    return f"{place}{error.strerror or one_line(error)}"


def user_path(path: Path) -> str:
    """Return a path with the home folder as ``~``, safe to show."""
    try:
        return printable(f"~/{path.relative_to(Path.home())}")
    except ValueError:
        return printable(str(path))


def check_place(path: Path, *, force: bool) -> None:
    """Raise `ConsoleError` if the user asked for a file or folder that must not be written."""
    if path.exists() and not force:
        raise ConsoleError(f"{user_path(path)} exists already.", remedy="Choose another name, or replace it: --force")
    if not path.parent.is_dir():
        raise ConsoleError(f"There is no folder {user_path(path.parent)}.", remedy="Create it, or choose another one.")
