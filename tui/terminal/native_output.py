"""Keeps what native code prints off the screen while the console itself trains.

TensorFlow, XLA and CUDA write to file descriptors 1 and 2, and Textual draws on descriptor 2. So the terminal
moves to a descriptor of its own, which only Textual knows, and 1 and 2 lead into a file.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OUTPUTS = (1, 2)
_diverted: list[int] = []  # the descriptor that 1 and 2 lead to, while they are diverted


@contextmanager
def native_output_diverted() -> Iterator[None]:
    """Lead descriptors 1 and 2 into a private temporary file, and the console's own drawing to the terminal.

    Use it around `ConsoleApp(in_process=True).run()`; the app then calls `send_native_output_to` with the
    log of the run. What was printed before there was a run is copied into that log. Everything is put back
    at the end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(descriptor) for descriptor in _OUTPUTS]
    file = tempfile.TemporaryFile(prefix="tpu-console-", buffering=0)  # noqa: SIM115  closed below, after 1 and 2
    drawing = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace", newline="")
    originals = sys.__stdout__, sys.__stderr__
    # Textual draws on sys.__stderr__ and asks sys.__stdout__ how large the terminal is.
    sys.__stdout__ = sys.__stderr__ = drawing  # type: ignore[misc]  # constants for everyone else
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
    """Lead descriptors 1 and 2 to a run's log from now on; does nothing while they are not diverted.

    Args:
        log: The file; made private to the user, and appended to.

    Raises:
        OSError: It cannot be opened.
    """
    if not _diverted:
        return
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        with suppress(OSError):  # a full disk: what was printed before is no reason not to train
            _copy_earlier_output(_diverted[0], target)
        for descriptor in _OUTPUTS:
            os.dup2(target, descriptor)
    finally:
        os.close(target)


def _copy_earlier_output(source: int, target: int) -> None:
    size = os.fstat(source).st_size
    if size:
        os.write(target, os.pread(source, min(size, 1 << 20), 0))
        os.ftruncate(source, 0)
        os.lseek(source, 0, os.SEEK_SET)
