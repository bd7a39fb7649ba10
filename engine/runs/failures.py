"""Explains an exception: what happened, why, and what to do next."""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

from ..errors import ConsoleError
from ..machine.install import line_for_module
from ..storage.disk_space import disk_full
from ..storage.files import is_disk_full, plain_name
from .events import RunFailed

_OURS = str(Path(__file__).parents[1])
_INSTALLED = tuple(
    {sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"], sysconfig.get_paths()["stdlib"]}
)
_PACKAGES = {"site-packages", "dist-packages"}  # also of the user, or of the environment below this one

_EXHAUSTED = "RESOURCE_EXHAUSTED"  # how XLA's message about missing memory begins

# The message of `engine.data.images.decode` for a damaged file.
_UNREADABLE_IMAGE = re.compile(r"assertion failed: \[(The image file [^\]]+)\]")


def explain(error: BaseException, log: str) -> RunFailed:
    """Return the last event of a run that an exception ended; the log at that relative path has the traceback."""
    if isinstance(error, ConsoleError):
        missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        remedy = f"To install it here: {line_for_module(missing)}" if missing else error.remedy
        return RunFailed(error.what, error.why, remedy, log)
    if is_disk_full(error):  # before memory: TensorFlow has one class for both
        return _explain_full_disk(error, log)
    if isinstance(error, MemoryError) or _is_tensorflow(error, "ResourceExhaustedError") or _is_jax_memory(error):
        return RunFailed(
            "The device ran out of memory.",
            _first_line(error).removeprefix(f"{_EXHAUSTED}: "),
            "Halve batch_size, or set precision=mixed_bfloat16, or use a smaller model.",
            log,
        )
    if isinstance(error, ImportError):
        return RunFailed(
            f"{error.name or 'A package'} cannot be imported.",
            _first_line(error),
            f"To install it here: {line_for_module(error.name)}" if error.name else "See the log for details.",
            log,
        )
    where = own_line(error)
    if _is_tensorflow(error, "OpError"):
        if (image := _UNREADABLE_IMAGE.search(str(error))) is not None:
            return RunFailed(image[1], "", "Replace the file, or remove it from the dataset.", log)
        return RunFailed(
            f"{type(error).__name__}: {_graph_message(str(error))}",
            where,
            "Check that the labels fit the model's output and the loss, and that all examples have the same shape.",
            log,
        )
    return RunFailed(
        f"{type(error).__name__}: {_first_line(error)}",
        where,
        "Fix that line and start again." if where else "See the log for details.",
        log,
    )


def _explain_full_disk(error: BaseException, log: str) -> RunFailed:
    remedy = "Free space on that disk and start again; what was written before is kept."
    # TensorFlow begins its message with the path.
    named = re.search(r"(?:^|\s)(/[^;:]+)[;:]", str(error))
    path = getattr(error, "filename", None) or (named[1] if named else None)
    if path is None:
        return RunFailed("The disk is full.", _first_line(error), remedy, log)
    full = disk_full(Path(path).parent, plain_name(Path(path)), remedy=remedy)
    return RunFailed(full.what, full.why, full.remedy, log)


def log_text(error: BaseException) -> str:
    """Return what the log says about an exception: for a user's mistake the user's own lines, else the traceback."""
    if not isinstance(error, ConsoleError):
        return "".join(traceback.format_exception(error))
    own, cause = _own_frames(error), error.__cause__
    while cause is not None:
        own += _own_frames(cause)
        cause = cause.__cause__
    sentences = "\n".join(part for part in (f"Error: {error.what}", error.why, error.remedy) if part)
    return "".join([*traceback.format_list(own), sentences, "\n"])


def own_line(error: BaseException) -> str:
    """Return the last line of user code in a traceback, or an empty string."""
    own = _own_frames(error)
    return f"File {own[-1].filename}, line {own[-1].lineno}: {own[-1].line}" if own else ""


def is_own_file(file: str) -> bool:
    """Return whether code in a file is the user's, not this program's or an installed package's."""
    return not file.startswith((_OURS, "<", *_INSTALLED)) and not _PACKAGES & set(Path(file).parts)


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    return [f for f in traceback.extract_tb(error.__traceback__) if is_own_file(f.filename) and f.line]


def _is_tensorflow(error: BaseException, name: str) -> bool:
    return any(cls.__name__ == name and cls.__module__.startswith("tensorflow") for cls in type(error).__mro__)


def _is_jax_memory(error: BaseException) -> bool:
    """Return whether JAX ran out of memory, on a device or, for a TPU, while compiling."""
    # XLA's errors differ only in their text; the class was `XlaRuntimeError` of jaxlib before JAX 0.8.
    is_jax = any(
        cls.__module__.startswith("jax") and cls.__name__.endswith("RuntimeError") for cls in type(error).__mro__
    )
    return is_jax and _EXHAUSTED in str(error)


def _graph_message(text: str) -> str:
    """Find the cause in a TensorFlow error; it follows the traceback of the graph."""
    lines = [line.strip() for line in text.splitlines()]
    noise = ("File ", "[[", "Detected at", "Graph execution error", "<stack traces")
    causes = [re.sub(r"^\(\d+\) [A-Z_]+: +", "", line) for line in lines if line and not line.startswith(noise)]
    causes = [line for line in causes if not re.match(r"\d+ (root|successful|derived)", line)]
    return causes[0][:300] if causes else _first_line_of(text)


def _first_line(error: BaseException) -> str:
    return _first_line_of(str(error)) or type(error).__name__


def _first_line_of(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]
