"""Finds, reads and writes presets: files with a `RunConfig` and a table ``[preset]``, named like the preset."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import tomli_w
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, StringConstraints

from tpu_console.engine.config.reading import parse_config, read_toml, validated
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.errors import ConfigError, ConsoleError, Problem, did_you_mean
from tpu_console.engine.sanitize import TooDeepError, printable_values
from tpu_console.engine.storage.files import disk_full, is_disk_full, make_private_folder, remove_drafts, write_whole
from tpu_console.engine.storage.paths import user_path, user_presets_folder

from . import BUILTIN, name_of, preset_files

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class About(BaseModel):
    """The description of a preset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Text  # a short description
    reproduces: Text = "your own"  # the published example that it follows, or what it shows
    expected_score: Text = "not stated"  # the metric and score to expect
    expected_time: Text = "not stated"  # the time to expect, and on which device
    data: Text = ""  # where its data comes from and where to put it; empty if it does not say
    command: Text = ""  # the command that runs it


class Preset(Struct, frozen=True):
    """A named configuration."""

    name: str  # the name of its file without ``.toml``
    about: About
    config: RunConfig
    path: Path  # its file; that of the data if it was made for data of the user
    notes: tuple[tuple[str, str], ...] = ()  # then what was found and chosen: a label and a sentence each
    given: tuple[tuple[str, Any], ...] = ()  # and the settings that it was made with, by dotted key

    @property
    def is_builtin(self) -> bool:
        """Whether the preset is part of the package."""
        return self.path.parent == BUILTIN


def load_preset(path: Path) -> Preset:
    """Read one preset file; raise `ConfigError` with all problems of the file."""
    name = name_of(path)
    values = read_toml(path, follows_links=True)
    described = values.pop("preset", {"title": name})
    with suppress(TooDeepError):  # parse_config refuses it
        described = printable_values(described)
    about, problems = validated(About, described, "preset.")
    try:
        config = parse_config({"name": name, **values})
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems], user_path(path)) from error
    if about is None:
        raise ConfigError(problems, user_path(path))
    return Preset(name, about, config, path)


def all_presets(extra: Sequence[Path] = ()) -> tuple[list[Preset], list[ConfigError]]:
    """Read all presets, and return the errors of those that cannot be used."""
    found, broken = [], []
    for path in preset_files(extra).values():
        try:
            found.append(load_preset(path))
        except ConfigError as error:
            broken.append(error)
    return found, broken


def find_preset(name: str, extra: Sequence[Path] = ()) -> Preset:
    """Read the preset with a name; raise `ConfigError` if there is no such preset, or its file has problems."""
    files = preset_files(extra)
    if name not in files:
        raise ConfigError([Problem("", f"There is no preset '{name}'; {did_you_mean(name, files)}")])
    return load_preset(files[name])


def preset_for_data(
    data: str, given: Sequence[tuple[str, Any]] = (), on_fetch: Callable[[object], None] = lambda _: None
) -> Preset:
    """Return a preset for files of the user or data with a name; the rest is as in `first_run`."""
    from tpu_console.engine.data.kinds.formats import first_run

    start = first_run(data, given, on_fetch)
    about = About(title=start.notes[0][1].removeprefix(f"{data}: "), data=data)
    return Preset(start.config.name, about, start.config, Path(data), start.notes, tuple(given))


def save_preset(config: RunConfig, name: str, title: str, folder: Path | None = None) -> Path:
    """Save a configuration as a preset of the user, or in another folder; return the file.

    Raises `ConfigError` for a bad name, or `ConsoleError` if the preset exists, or the folder cannot be written.
    """
    folder = folder or user_presets_folder()
    renamed = parse_config(config.model_dump(mode="json") | {"name": name})
    path = folder / f"{name}.toml"
    if name in preset_files() or path.exists():
        raise ConsoleError(f"A preset named '{name}' already exists.", remedy="Choose another name.")
    values = renamed.model_dump(mode="json", exclude_defaults=True)
    values.pop("name", None)
    values["preset"] = {"title": title, "command": f"tpu-console run {name}"}
    content = tomli_w.dumps(values)
    try:
        make_private_folder(folder)
        remove_drafts(folder)
        write_whole(path, content)
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(folder, "the preset", len(content), "Free space and save it again.") from error
        raise ConsoleError(f"{user_path(path)} cannot be written: {error.strerror}.") from error
    return path
