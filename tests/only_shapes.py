"""Keras models of which only the shapes count."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import keras

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def only_shapes() -> Iterator[None]:
    """Make variables without values; they never get any.

    Keras keeps a list of them, and the end of any later scope would fill them all.
    """
    with keras.StatelessScope(initialize_variables=False):
        yield
    keras.utils.clear_session()
