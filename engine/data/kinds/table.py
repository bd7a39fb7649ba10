"""The table of the kinds of datasets, and what a configuration's kind answers."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec.structs import replace
from pydantic import ValidationError

from ...config.catalog import DATASETS
from ...errors import ConsoleError, DataError, one_line
from ...storage.files import read_json
from ...storage.paths import user_path
from ..download import Download, part_of
from ..places import KAGGLE, ON_THIS_MACHINE, kaggle_cache
from ..survey.skimming import read_as
from ..tables import first_of
from .hf import Hf
from .image_csv import ImageCsv
from .image_folder import ImageFolder
from .kind import DatasetKind, ImageRecord
from .named_kind import NamedKind
from .npz import Npz
from .ratings_csv import RatingsCsv
from .table_csv import TableCsv
from .text_csv import TextCsv
from .text_folder import TextFolder
from .text_pairs import TextPairs
from .tfds import Tfds
from .tfrecord import Tfrecord

if TYPE_CHECKING:
    from pathlib import Path

    from ...config.run_config import RunConfig
    from ...config.values import Section
    from ..download import OnFetch
    from ..examples import Examples

_LARGEST_RECORD = 128 << 20
_FILES = (ImageCsv, ImageFolder, Tfrecord, TextPairs, TextCsv, TextFolder, RatingsCsv, TableCsv, Npz)
KINDS: dict[str, DatasetKind[Any]] = {kind.name: kind() for kind in (*_FILES, Tfds, Hf)}
"""The kinds of the user's files and of data with a name, by their names in a configuration."""


def dataset_names() -> tuple[str, ...]:
    """Return the names of the built-in datasets and of the kinds."""
    return (*DATASETS, *KINDS)


def option_sections() -> dict[str, type[Section]]:
    """Return the options of each kind."""
    return {name: kind.Options for name, kind in KINDS.items()}


def has_images(config: RunConfig) -> bool:
    """Return whether the examples of a configuration are images; those of the user's functions are unknown."""
    kind = KINDS.get(config.dataset)
    return config.dataset in DATASETS if kind is None else kind.has_images(kind.options(config))


def is_name(text: str) -> bool:
    """Return whether a text is the name of data, such as ``tfds:mnist`` or ``kaggle:OWNER/NAME``, and not a path."""
    return named_kind(text) is not None or text.startswith(f"{KAGGLE}:")


def new_data(config: RunConfig, record: dict[str, Any]) -> str:
    """Say what `predict` reads for a run with a configuration and an ``inputs.json``."""
    if (info := DATASETS.get(config.dataset)) is not None:
        sides = ", ".join(map(str, info.input_shape))
        return f"a .npy, .npz or CSV file of images of shape (images, {sides}), with unscaled values"
    seen = first_of([*record.get("numbers", ()), *record.get("categories", ())])
    shape = ", ".join(map(str, record.get("shape", ())))
    kind = KINDS.get(config.dataset)
    return (DatasetKind if kind is None else kind).new_data.format_map({**record, "seen": seen, "shape": shape})


def read_record(path: Path, dataset: str) -> dict[str, Any]:
    """Read the ``inputs.json`` of a run, which turns new data into inputs; empty if the configuration says everything.

    Raises `DataError` if it is missing, not a regular file, too large, or lacks what the dataset needs.
    """
    shown, kind = user_path(path), KINDS.get(dataset)
    try:
        record = read_json(path, _LARGEST_RECORD)
        (ImageRecord if kind is None else kind.Record).model_validate(record)
    except FileNotFoundError:
        if kind is None or not kind.needs_record:
            return {}
        raise DataError(f"The run {path.parent.name} has no {path.name}, which maps its words to numbers.") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise DataError(f"{shown} is damaged.", why=f"{place}: {first['msg'].lower()}.") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{shown} is damaged or cannot be read.", why=one_line(error, 200)) from error
    return dict(record)


def named_kind(text: str) -> tuple[NamedKind[Any], str] | None:
    """Return the kind and the name of data such as ``tfds:mnist``; None if a text is not the name of any."""
    kind, colon, name = text.partition(":")
    found = KINDS.get(kind)
    return (found, name) if colon and isinstance(found, NamedKind) else None


def known_names() -> dict[str, str]:
    """Return the names of data known without a network, and a few words about each; may take seconds."""
    cached = kaggle_cache().glob("datasets/*/*/*.complete")
    names = {f"{KAGGLE}:{place.parts[-3]}/{place.parts[-2]}": ON_THIS_MACHINE for place in cached}
    for kind in KINDS.values():
        with suppress(ConsoleError):  # a package that is damaged
            names |= kind.known() if isinstance(kind, NamedKind) else {}
    return names


def download_of(config: RunConfig) -> Download | None:
    """Return what has to be downloaded for a configuration; None if its data are here, or nothing is known of them."""
    kind = KINDS.get(config.dataset)
    if isinstance(kind, NamedKind):
        facts = kind.facts(kind.options(config))
        return None if facts is None else facts.download
    info = DATASETS.get(config.dataset)
    if info is None or not (missing := info.missing_files()):
        return None
    hosts = tuple(sorted({str(urlsplit(file.url).hostname) for file in missing}))
    arrived = sum(part.stat().st_size for file in missing if (part := part_of(file.location)).is_file())
    size = max(0, sum(file.download_bytes for file in missing) - arrived)
    another = "set KERAS_HOME to a folder on another one"
    return Download(info.name, str(missing[0].location.parent), info.by_hand(), another, hosts, size)


def load_examples(config: RunConfig, on_fetch: OnFetch) -> Examples:
    """Load a configuration's dataset, as `DatasetKind.load` does; raise `UserCodeError` if a user's function fails."""
    if (kind := KINDS.get(config.dataset)) is not None:
        examples = kind.load(config, on_fetch)
        return replace(examples, notices=(*read_as(kind.options(config)), *examples.notices))
    if config.dataset in DATASETS:
        from ..sources.arrays import load
    else:
        from ..sources.user_function import load
    return load(config, on_fetch)
