"""Builds our validators without the plugins of Pydantic, by its private `pydantic.plugin._loader._loading_plugins`.

Checked on Pydantic 2.10 and 2.14. It looks for plugins when a process builds its first validator: it reads the metadata
of every installed package, which takes longer than importing Pydantic. Our models have no use for them, and the user's
own keep theirs. The variable PYDANTIC_DISABLE_PLUGINS would hold for both, and setting a variable while threads of
TensorFlow or JAX read one can crash a process. Without this, everything works, but starts later.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def without_plugins() -> Iterator[None]:
    """Build validators without plugins; a context manager or a decorator."""
    from pydantic.plugin import _loader

    loader: Any = _loader
    loader._loading_plugins = True  # noqa: SLF001
    try:
        yield
    finally:
        loader._loading_plugins = False  # noqa: SLF001
