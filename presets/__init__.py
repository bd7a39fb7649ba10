"""Presets: example configurations, one TOML file each, with the score and time to expect.

Here are their files by name; `catalog` reads them, for which it loads everything that a configuration may say.
"""

from collections.abc import Sequence
from pathlib import Path

from tpu_console.engine.sanitize import printable
from tpu_console.engine.storage.paths import user_presets_folder

BUILTIN = Path(__file__).parent


def preset_files(extra: Sequence[Path] = ()) -> dict[str, Path]:
    """Return the file of every preset by name; the user's folder replaces the package's, and `extra` both."""
    folders = [BUILTIN, user_presets_folder()]
    paths = [path for folder in folders for path in sorted(folder.glob("*.toml"))]
    return {name_of(path): path for path in [*paths, *extra]}


def name_of(path: Path) -> str:
    """Return the name of the preset in a file."""
    return printable(path.name.removesuffix(".toml"))
