"""Reads a run's ``inputs.json``: what turns new data into the model's inputs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...config.catalog import IMAGE_DATASETS, is_user_reference
from ...errors import DataError, one_line
from ...storage.files import NotAFileError, TooLargeError, read_text
from ...storage.paths import user_path

if TYPE_CHECKING:
    from pathlib import Path

_LARGEST = 128 << 20
_Length = Annotated[int, Field(ge=1, le=100_000)]
_Activation = Literal["", "sigmoid", "softmax"]
_Form = Literal["", "arrays", "batches", "examples", "kept"]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")
    activation: _Activation | dict[str, _Activation] = ""  # of each output by its name if there are several
    class_outputs: list[str] | None = None  # the outputs that say which class an example is of
    returned: Annotated[list[_Form | None], Field(min_length=1, max_length=2)] | None = None
    """What the dataset function returned: for training, and for validation if it returned a pair."""


class _Images(_Record):
    id_column: str | None = None
    suffix: str | None = None
    images: str | None = None
    label_columns: list[str] | None = None
    classes: list[str] | None = None
    class_names: list[str] | None = None
    left_out: dict[str, list[str]] = {}  # the names of bad files by their folder
    left_out_after_split: bool = False  # whether some of them were found when they were decoded


class _Texts(_Record):
    text_column: str
    label_column: str
    words: Annotated[list[str], Field(min_length=2)]
    length: _Length
    class_names: list[str] | None = None


class _Sentences(_Record):
    source: Annotated[list[str], Field(min_length=4)]
    target: Annotated[list[str], Field(min_length=4)]
    length: _Length


class _Columns(_Record):
    user: str
    item: str
    rating: str


class _Ratings(_Record):
    columns: _Columns
    users: Annotated[list[str], Field(min_length=1)]
    items: Annotated[list[str], Field(min_length=1)]
    rated: str = ""


_KINDS: dict[str, type[_Record]] = {"text-csv": _Texts, "text-pairs": _Sentences, "ratings-csv": _Ratings}


def read_record(path: Path, dataset: str) -> dict[str, Any]:
    """Read the ``inputs.json`` of a run on a dataset, which turns new data into the model's inputs.

    It is empty for an image dataset without one, whose configuration says everything.

    Raises:
        DataError: It is missing, not a regular file, too large, or lacks what the dataset needs.
    """
    shown = user_path(path)
    try:
        record = json.loads(read_text(path, _LARGEST))
    except FileNotFoundError:
        if dataset in IMAGE_DATASETS or is_user_reference(dataset):
            return {}
        raise DataError(f"The run {path.parent.name} has no {path.name}, which maps its words to numbers.") from None
    except NotAFileError as error:
        raise DataError(f"{shown} is not a file.") from error
    except TooLargeError as error:
        raise DataError(f"{shown} is larger than {_LARGEST >> 20} MiB, which no run writes.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{shown} is damaged or cannot be read.", why=one_line(error, 200)) from error
    try:
        _KINDS.get(dataset, _Images).model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise DataError(f"{shown} is damaged.", why=f"{place}: {first['msg'].lower()}.") from error
    return dict(record)
