"""Builds our validators without the plugins of Pydantic.

Pydantic looks for plugins when a process builds its first validator: it reads the metadata of every installed package,
which takes longer than importing Pydantic. Our models have no use for them. The user's own models keep theirs, so the
variable is set only for a moment. Pydantic is not imported here.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_VARIABLE = "PYDANTIC_DISABLE_PLUGINS"


@contextmanager
def without_plugins() -> Iterator[None]:
    """Build validators without plugins; a context manager or a decorator."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "__all__"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before
