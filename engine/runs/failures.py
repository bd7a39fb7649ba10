"""Explains an exception: what happened, why, and what to do next."""

import re
import sysconfig
import traceback
from pathlib import Path

from ..errors import ConsoleError
from ..machine.install import line_for_module
from ..storage.files import DRAFT, disk_full, is_disk_full
from .events import RunFailed

_OURS = str(Path(__file__).parents[1])
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")})
_PACKAGES = {"site-packages", "dist-packages"}  # also of the user, or of the environment below this one

_EXHAUSTED = "RESOURCE_EXHAUSTED"  # how XLA's message about missing memory begins

# What comes before the cause in the message of a graph's error, which may have several.
_OF_GRAPHS = re.compile(r"File |\[\[|Detected at|Graph execution error|<stack traces|\d+ (root|successful|derived)")
_CODE = re.compile(r"^\(\d+\) [A-Z_]+: +")
# The message of `engine.data.images.examples` for a damaged file.
_UNREADABLE_IMAGE = re.compile(r"assertion failed: \[(The image file [^\]]+)\]")


def explain(error: BaseException, log: str) -> RunFailed:
    """Return the last event of a run that an exception ended; the log at that relative path has the traceback."""
    text, name = str(error), type(error).__name__
    first = next((line.strip() for line in text.splitlines() if line.strip()), name)[:300]
    bases = {f"{cls.__module__.partition('.')[0]}.{cls.__name__}" for cls in type(error).__mro__}
    if isinstance(error, ConsoleError):
        missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        remedy = f"To install it here: {line_for_module(missing)}" if missing else error.remedy
        return RunFailed(error.what, error.why, remedy, log)
    if is_disk_full(error):  # before memory: TensorFlow has one class for both, and begins its message with the path
        named = re.search(r"(?:^|\s)(/[^;:]+)[;:]", text)
        path = getattr(error, "filename", None) or (named[1] if named else None)
        remedy = "Free space on that disk and start again; what was written before is kept."
        if path is None:
            return RunFailed("The disk is full.", first, remedy, log)
        full = disk_full(Path(path).parent, re.sub(rf"^{re.escape(DRAFT)}\d+-", "", Path(path).name), remedy=remedy)
        return RunFailed(full.what, full.why, full.remedy, log)
    # The errors of XLA differ only in their text; the class was that of jaxlib before JAX 0.8.
    is_jax = any(base.startswith("jax") and base.endswith("RuntimeError") for base in bases)
    is_exhausted = "tensorflow.ResourceExhaustedError" in bases or (is_jax and _EXHAUSTED in text)
    if is_exhausted or isinstance(error, MemoryError):
        remedy = "Halve batch_size, or set precision=mixed_bfloat16, or use a smaller model."
        return RunFailed("The device ran out of memory.", first.removeprefix(f"{_EXHAUSTED}: "), remedy, log)
    if isinstance(error, ImportError) and error.name:
        remedy = f"To install it here: {line_for_module(error.name)}"
        return RunFailed(f"{error.name} cannot be imported.", first, remedy, log)
    where = own_line(error)
    remedy = "Fix that line and start again." if where else "See the log for details."
    if "tensorflow.OpError" in bases:
        if (image := _UNREADABLE_IMAGE.search(text)) is not None:
            return RunFailed(image[1], "", "Replace the file, or remove it from the dataset.", log)
        lines = (_CODE.sub("", line.strip(), count=1) for line in text.splitlines())
        first = next((line for line in lines if line and not _OF_GRAPHS.match(line)), first)[:300]
        remedy = "Check that the labels fit the model's output and the loss, and that all examples have the same shape."
    return RunFailed(f"{name}: {first}", where, remedy, log)


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
