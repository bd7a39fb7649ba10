"""The user's annotations of a run. They are cleaned and limited when read, because they may be somebody else's."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from ..errors import ConsoleError
from ..sanitize import printable
from ..storage.disk_space import disk_full
from ..storage.files import LinkError, is_disk_full, read_json, require_real, write_whole
from ..storage.paths import user_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_FILE = "annotations.json"
_LARGEST_BYTES = 64 << 10
_LONGEST_TITLE, _LONGEST_TAG, _LONGEST_NOTE = 80, 40, 2000
_MOST_TAGS = 20


class Annotations(Struct, frozen=True):
    """The title, tags and note of a run."""

    title: str = ""  # shown instead of the run's name; empty for none
    tags: tuple[str, ...] = ()  # words without spaces and commas
    note: str = ""  # a text of one line
    archived: bool = False  # whether lists leave the run out


NO_ANNOTATIONS = Annotations()


def cleaned(values: Any) -> Annotations:
    """Return annotations from plain values, safe to show and limited in length; what is not understood is dropped."""
    if not isinstance(values, dict):
        return NO_ANNOTATIONS
    tags = values.get("tags")
    return Annotations(
        _text(values.get("title"), _LONGEST_TITLE),
        cleaned_tags(tags) if isinstance(tags, list | tuple) else (),
        _text(values.get("note"), _LONGEST_NOTE),
        values.get("archived") is True,
    )


def cleaned_tags(tags: Sequence[object]) -> tuple[str, ...]:
    """Return tags as they are kept: without spaces and commas, each once, at most 20."""
    parts = [_text(tag, _LONGEST_NOTE).replace(",", " ").split() for tag in tags[: 10 * _MOST_TAGS]]
    return tuple(dict.fromkeys("-".join(words)[:_LONGEST_TAG] for words in parts if words))[:_MOST_TAGS]


def _text(value: object, longest: int) -> str:
    return printable(value).strip()[:longest].rstrip() if isinstance(value, str) else ""


def read_annotations(folder: Path) -> Annotations:
    """Read the annotations of the run in a folder; none if the file is missing, damaged or too large."""
    path = f"{folder}/{_FILE}"
    with suppress(OSError, ValueError):
        if os.path.lexists(path):  # most runs have none, and a list reads thousands
            return cleaned(read_json(path, _LARGEST_BYTES))
    return NO_ANNOTATIONS


def write_annotations(folder: Path, annotations: Annotations) -> None:
    """Write the annotations of the run in a folder; without any, the file is removed."""
    import json

    annotations = cleaned(to_builtins(annotations))
    content = json.dumps(to_builtins(annotations), ensure_ascii=False)
    file = folder / _FILE
    try:
        require_real(folder)
        if annotations == NO_ANNOTATIONS:
            file.unlink(missing_ok=True)
        else:
            write_whole(file, content)
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(folder, "the annotations", len(content), "Free space and try again.") from error
        place = folder if isinstance(error, LinkError) else file
        raise ConsoleError(f"{user_path(place)} cannot be written: {error.strerror}.") from error
