"""Ctrl-C and SIGTERM."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def interrupts_call(hear: Callable[[int], object]) -> Iterator[None]:
    """Pass the number of each signal to a function while the block runs; only in the main thread."""
    before = {
        number: signal.signal(number, lambda number, _: hear(number)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
