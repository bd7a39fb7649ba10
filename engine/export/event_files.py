"""Reads TensorBoard's event files with the reader of the tensorboard package."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ..errors import ConsoleError, one_line
from ..machine.install import install_line
from .other_runs import MOST_POINTS, Point, Recorded, check_size, is_step, number_of, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_PREFIX = "epoch_"
"""What Keras's callback puts before the name of an epoch's metric."""

_PARTS = {"train": "", "validation": "val_", "val": "val_", "eval": "val_"}
"""Folders with parts of one training, and the prefixes of their metrics."""


def is_event_file(path: Path) -> bool:
    """Return whether a file's name is that of an event file."""
    return ".tfevents." in path.name


def trainings(files: Sequence[Path]) -> dict[Path, list[Path]]:
    """Group event files by the training that wrote them: those in ``train`` and ``validation`` belong together."""
    found: dict[Path, list[Path]] = defaultdict(list)
    for path in sorted(files):
        folder = path.parent
        found[folder.parent if folder.name in _PARTS else folder].append(path)
    return found


def read_events(folder: Path, files: Sequence[Path]) -> Recorded:
    """Read the scalars of a training; raise `ConsoleError` if a file cannot be read."""
    recorded = Recorded(folder.name or "tensorboard", "TensorBoard", tuple(files))
    epochs: dict[int, dict[str, float]] = defaultdict(dict)
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    times: dict[int, float] = {}
    count = 0
    for path in files:
        check_size(path)
        prefix = _PARTS.get(path.parent.name, "")
        for tag, step, at, value in _scalars(path):
            count += 1
            if count > MOST_POINTS:
                raise unreadable(path, f"it has more than {MOST_POINTS:,} values")
            if tag.startswith(_PREFIX):
                epochs[step][prefix + tag.removeprefix(_PREFIX)] = value
            elif "_vs_iterations" not in tag:
                steps[step][prefix + tag] = value
            times[step] = max(at, times.get(step, 0.0))
    recorded.epochs = [Point(step, times[step], epochs[step]) for step in sorted(epochs)]
    recorded.steps = [Point(step, times[step], steps[step]) for step in sorted(steps)]
    return recorded


def _scalars(path: Path) -> Iterator[tuple[str, int, float, float]]:
    """Yield tag, step, time and value of each scalar; a file that was cut off ends where it is damaged."""
    try:
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
        from tensorboard.util import tensor_util
    except ImportError as error:
        raise ConsoleError(
            "TensorBoard is not installed; it reads event files.",
            remedy=f"To install it: {install_line('tensorboard')}",
        ) from error
    number = 0
    try:
        for event in EventFileLoader(str(path)).Load():
            number += 1
            for value in event.summary.value:
                found = _number(value, tensor_util)
                if found is not None and is_step(event.step):
                    yield value.tag, int(event.step), float(event.wall_time), found
    except Exception as error:  # the reader raises many kinds of errors for a damaged file
        raise unreadable(path, f"it is damaged after {number:,} events: {one_line(error, 120)}") from error
    if not number:
        raise unreadable(path, "it holds no event; it is damaged or not an event file")


def _number(value: Any, tensor_util: Any) -> float | None:
    """Return the number of a summary; None for an image, a text and so on."""
    plugin = value.metadata.plugin_data.plugin_name
    if plugin not in {"", "scalars"} or not value.HasField("tensor"):
        return None
    array = tensor_util.make_ndarray(value.tensor)
    return number_of(array.item()) if array.size == 1 and array.dtype.kind in "fiu" else None
