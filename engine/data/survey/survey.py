"""Counts the examples of a dataset of files without loading it, so that a run can be planned.

It needs no TensorFlow or pandas, and is cached until a file changes. What takes over half a second is left to the run.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ...config.catalog import DATASETS, is_user_reference
from ...errors import DataError, Problem
from ...storage.paths import user_path
from ..cached_facts import function_record_of
from ..kinds.named_kind import NamedKind
from ..kinds.table import KINDS
from ..places import candidates, is_remote, locate, not_there
from ..row_files import UNREADABLE, TooSlowError
from .skimming import Survey, read_as, trouble, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ...config.run_config import RunConfig
    from ...config.values import Section
    from ..kinds.kind import DatasetKind

_LOOKED_AT = 1000  # files and folders in a folder whose modification times are compared
__all__ = ["Survey", "is_missing", "survey"]


def survey(config: RunConfig) -> Survey | None:
    """Count the examples of a configuration's dataset; None if it is not one of files."""
    kind = KINDS.get(config.dataset)
    if kind is None:
        return None
    options: Any = kind.options(config)
    if isinstance(kind, NamedKind):
        return kind.survey(Path(), options)
    if is_remote(options.path):
        return Survey(unknown="is remote, where only TensorFlow can read")
    try:
        missing = tuple(_missing_files(options))
    except (OSError, RuntimeError) as error:  # a name too long, a folder without permission, an unknown ~user
        return trouble("path", f"'{options.path}' cannot be searched for: {getattr(error, 'strerror', error)}")
    if missing:
        return Survey(problems=missing, is_missing=True)
    stamps: list[int] = []  # numbers that change when the files do
    for path in filter(None, (options.path, getattr(options, "validation_path", ""))):
        files = [place := Path(locate(path))]
        with suppress(OSError):  # no permission; a folder inside changes when files are added, as those of classes
            files += islice(place.iterdir(), _LOOKED_AT) if not is_remote(path) and place.is_dir() else ()
        for file in files:
            with suppress(OSError):
                status = file.stat()
                stamps += [status.st_mtime_ns, status.st_size]
    return _counted(kind, locate(options.path), options, tuple(stamps))


def is_missing(config: RunConfig) -> bool:
    """Return whether files or folders that a configuration's dataset names do not exist on this machine."""
    kind = KINDS.get(config.dataset)
    if kind is None or isinstance(kind, NamedKind):
        return False
    try:
        return any(_missing_files(kind.options(config)))
    except (OSError, RuntimeError):
        return True


def _missing_files(options: Any) -> Iterator[Problem]:
    """Yield a problem for each file or folder that the options name and that does not exist."""
    paths = (name for name in type(options).model_fields if name in {"path", "images"} or name.endswith("_path"))
    named = {option: getattr(options, option) for option in paths}
    if named.get("images") and not is_remote(named["images"]):
        # A relative path is in the folder of the table; an absolute one replaces it.
        named["images"] = str(Path(locate(options.path)).parent / Path(named["images"]).expanduser())
    for option, path in named.items():
        if path and not is_remote(path) and not any(place.exists() for place in candidates(path)):
            yield Problem(f"data.options.{option}", str(not_there(path, "file or folder", option)))


@lru_cache(maxsize=64)
def _counted(kind: DatasetKind[Any], place: str, options: Section, stamps: tuple[int, ...]) -> Survey:  # noqa: ARG001  see below
    """Count a dataset; `stamps` makes the cache miss after a file changed."""
    try:
        found = kind.survey(Path(place), options)
        return replace(found, facts=(*found.facts, *read_as(options)))
    except TooSlowError:
        return Survey(unknown="is too large to count quickly")
    except DataError as error:
        return trouble("path", str(error).removesuffix("."))
    except UNREADABLE as error:
        file = getattr(error, "filename", None) or place
        return trouble("path", f"{user_path(Path(file))} cannot be read: {unreadable(error)}")


def train_examples_of(config: RunConfig) -> int | None:
    """Return the number of training examples after the split and the limit; None if unknown before the run."""
    info = DATASETS.get(config.dataset)
    if is_user_reference(config.dataset):
        seen = function_record_of(config)
        return None if seen is None else seen.train_count
    if info is None:
        found = survey(config)
        count = None if found is None else found.train(config.data.validation_fraction)
    elif info.name == "digits":
        # scikit-learn's train_test_split rounds the held-out part up.
        total = info.train_examples + info.validation_examples
        count = total - -int(-total * config.data.validation_fraction // 1)
    else:
        count = info.train_examples
    return None if count is None else min(count, config.data.train_limit or count)
