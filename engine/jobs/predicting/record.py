"""Reads a run's ``inputs.json``: what turns new data into the model's inputs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ...data.kinds.image_kind import ImageRecord
from ...data.kinds.table import KINDS
from ...errors import DataError, one_line
from ...storage.files import NotAFileError, TooLargeError, read_text
from ...storage.paths import user_path

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST = 128 << 20


def read_record(path: Path, dataset: str) -> dict[str, Any]:
    """Read the ``inputs.json`` of a run on a dataset, which turns new data into the model's inputs.

    It is empty for a dataset without one whose configuration says everything.

    Raises:
        DataError: It is missing, not a regular file, too large, or lacks what the dataset needs.
    """
    shown, kind = user_path(path), KINDS.get(dataset)
    try:
        record = json.loads(read_text(path, _LARGEST))
    except FileNotFoundError:
        if kind is None or not kind.needs_record:
            return {}
        raise DataError(f"The run {path.parent.name} has no {path.name}, which maps its words to numbers.") from None
    except NotAFileError as error:
        raise DataError(f"{shown} is not a file.") from error
    except TooLargeError as error:
        raise DataError(f"{shown} is larger than {_LARGEST >> 20} MiB, which no run writes.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{shown} is damaged or cannot be read.", why=one_line(error, 200)) from error
    try:
        (ImageRecord if kind is None else kind.Record).model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise DataError(f"{shown} is damaged.", why=f"{place}: {first['msg'].lower()}.") from error
    return dict(record)
