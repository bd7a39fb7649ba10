"""Keeps the output of native code off the screen while the console itself trains.

TensorFlow, XLA and CUDA write to file descriptors 1 and 2, and Textual draws on descriptor 2. So the terminal
moves to another descriptor, which only Textual knows, and 1 and 2 are redirected to a file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tpu_console.engine.storage.files import open_private

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OUTPUTS = (1, 2)
_diverted: list[int] = []  # the descriptor that 1 and 2 are redirected to, if they are


@contextmanager
def native_output_diverted() -> Iterator[None]:
    """Redirect descriptors 1 and 2 to a private temporary file, while the console draws on the terminal.

    The app calls `send_native_output_to` with the log of the run, which gets earlier output too.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(descriptor) for descriptor in _OUTPUTS]
    file = tempfile.TemporaryFile(prefix="tpu-console-", buffering=0)  # noqa: SIM115  closed below, after 1 and 2
    drawing = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace", newline="")
    originals = sys.__stdout__, sys.__stderr__
    # Textual draws on sys.__stderr__ and asks sys.__stdout__ how large the terminal is.
    sys.__stdout__ = sys.__stderr__ = drawing  # type: ignore[misc]  # typed as constants
    for descriptor in _OUTPUTS:
        os.dup2(file.fileno(), descriptor)
    _diverted.append(file.fileno())
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        _diverted.clear()
        for descriptor, original in zip(_OUTPUTS, kept, strict=True):
            os.dup2(original, descriptor)
            os.close(original)
        sys.__stdout__, sys.__stderr__ = originals  # type: ignore[misc]  # as above
        drawing.close()
        file.close()


def send_native_output_to(log: Path) -> None:
    """Redirect descriptors 1 and 2 to a run's private log, unless that is done already; it is appended to.

    Raises:
        OSError: It cannot be opened.
    """
    if not _diverted:
        return
    target = open_private(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        source = _diverted[0]
        with suppress(OSError):  # a full disk: losing earlier output must not prevent training
            if size := os.fstat(source).st_size:
                os.write(target, os.pread(source, min(size, 1 << 20), 0))
                os.ftruncate(source, 0)
                os.lseek(source, 0, os.SEEK_SET)
        for descriptor in _OUTPUTS:
            os.dup2(target, descriptor)
    finally:
        os.close(target)
