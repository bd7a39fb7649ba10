"""The table of the kinds of datasets, and what a configuration's kind answers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pydantic import ValidationError

from ...errors import ConsoleError, DataError, one_line
from ...storage.files import read_json
from ...storage.paths import user_path
from ..places import KAGGLE, ON_THIS_MACHINE, kaggle_cache
from ..tables import first_of
from .built_in import BUILT_IN
from .hf import Hf
from .image_files import ImageCsv, ImageFolder
from .named_kind import NamedKind
from .npz import Npz
from .ratings_csv import RatingsCsv
from .table_csv import TableCsv
from .text_pairs import TextPairs
from .texts import TextCsv, TextFolder
from .tfds import Tfds
from .tfrecord import Tfrecord
from .user_function import UserFunction

if TYPE_CHECKING:
    from ...config.run_config import RunConfig
    from ...config.values import Section
    from ..examples import Examples
    from ..places import OnFetch
    from .kind import DatasetKind
    from .skimming import Survey

_LARGEST_RECORD = 128 << 20
_FILES = (ImageCsv, ImageFolder, Tfrecord, TextPairs, TextCsv, TextFolder, RatingsCsv, TableCsv, Npz)
KINDS: dict[str, DatasetKind[Any]] = {kind.name: kind() for kind in (*_FILES, Tfds, Hf)}
"""The kinds of the user's files and of data with a name, by their names in a configuration."""
USER_FUNCTION = UserFunction()


def kind_of(dataset: str) -> DatasetKind[Any]:
    """Return the kind that a configuration's `dataset` names; what is in no table is the user's function."""
    return KINDS.get(dataset) or BUILT_IN.get(dataset) or USER_FUNCTION


def dataset_names() -> tuple[str, ...]:
    """Return the names of the built-in datasets and of the kinds."""
    return (*BUILT_IN, *KINDS)


def option_sections() -> dict[str, type[Section]]:
    """Return the options of each kind."""
    return {name: kind.Options for name, kind in KINDS.items()}


def is_name(text: str) -> bool:
    """Return whether a text is the name of data, such as ``tfds:mnist`` or ``kaggle:OWNER/NAME``, and not a path."""
    return named_kind(text) is not None or text.startswith(f"{KAGGLE}:")


def survey(config: RunConfig) -> Survey:
    """Return what is known about a configuration's dataset before it is loaded."""
    return kind_of(config.dataset).survey(config)


def train_examples_of(config: RunConfig) -> int | None:
    """Return the number of training examples after the split and the limit; None if unknown before the run."""
    kind = kind_of(config.dataset)
    count = kind.survey(config).train(config.data.validation_fraction)
    limit = config.data.train_limit if kind.is_limited else 0
    return None if count is None else min(count, limit or count)


def new_data(config: RunConfig, record: dict[str, Any]) -> str:
    """Say what `predict` reads for a run with a configuration and an ``inputs.json``."""
    seen = first_of([*record.get("numbers", ()), *record.get("categories", ())])
    shape = ", ".join(map(str, record.get("shape", ())))
    return kind_of(config.dataset).new_data.format_map({**record, "seen": seen, "shape": shape})


def read_record(path: Path, dataset: str) -> dict[str, Any]:
    """Read the ``inputs.json`` of a run, which turns new data into inputs; empty if the configuration says everything.

    Raises `DataError` if it is missing, not a regular file, too large, or lacks what the dataset needs.
    """
    shown, kind = user_path(path), kind_of(dataset)
    try:
        record = read_json(path, _LARGEST_RECORD)
        kind.Record.model_validate(record)
    except FileNotFoundError:
        if not kind.needs_record:
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


def load_examples(config: RunConfig, on_fetch: OnFetch) -> Examples:
    """Load a configuration's dataset, as `DatasetKind.load` does; raise `UserCodeError` if a user's function fails."""
    kind = kind_of(config.dataset)
    examples = kind.load(config, on_fetch)
    return replace(examples, notices=(*kind.notices(config), *examples.notices))
