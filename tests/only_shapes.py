"""Keras models of which only the shapes count."""

from collections.abc import Iterator
from contextlib import contextmanager

import keras


@contextmanager
def only_shapes() -> Iterator[None]:
    """Make variables without values; they never get any.

    Keras keeps a list of them, and the end of any later scope would fill them all.
    """
    with keras.StatelessScope(initialize_variables=False):
        yield
    keras.utils.clear_session()
