"""A run's checkpoints: files ``checkpoints/state-NNNNNN.ckpt``, from which the run can be resumed.

Such a file holds a SHA-256 digest, a header in JSON and the raw numbers of every array. Reading it never runs code. The
newest file with a correct digest counts; the number in its name grows with every checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from ..sanitize import Count, Measure  # noqa: TC001  checkpoints are read by the types of the fields
from ..storage.files import open_private, open_regular, sync, whole_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .run_directory import RunDirectory

KEPT = 2  # checkpoints: the newest, and the one before it in case the newest is damaged
_NAME = re.compile(r"state-(\d{6,12})\.ckpt", re.ASCII)
_TYPE = re.compile(r"[<>|=](b1|[iu][1248]|f[248])")
_MAGIC = b"tpu-console checkpoint 1 "
_LARGEST_HEADER = 64 << 20
_PART = 1 << 22


class DamagedCheckpointError(Exception):
    """The file is not a whole checkpoint."""


class SavedArray(Struct, frozen=True):
    """An array in a checkpoint."""

    group: str  # what it belongs to, such as ``trainable`` or ``optimizer``
    name: str  # the variable's path
    dtype: str  # its type in the file, such as ``<f4``
    shape: Annotated[tuple[Count, ...], Meta(max_length=64)]


class Header(Struct, frozen=True):
    """Where in its run a checkpoint was taken."""

    epoch: Count  # epochs that ended
    epoch_step: Count  # steps done in the epoch after them
    step: Count  # steps done in the run
    batches: Count  # batches taken from the order of examples; differs from `step` after a change of the batch size
    elapsed_s: Measure  # seconds since `fit` began
    epoch_s: Measure  # seconds of them in the unfinished epoch
    phase: Count  # number of the training phase, from 0
    steps_per_epoch: Count  # steps per epoch
    global_batch: Count  # examples per step over all replicas
    steps_per_execution: Count  # steps per execution
    best: Measure | None  # best value of the metric that decides which epoch is best; None if there is none yet
    patience: dict[str, float]  # state of early stopping by name; empty without
    arrays: Annotated[tuple[SavedArray, ...], Meta(max_length=16_384)]  # in the order of the file
    learning_rate: float | None = None  # the constant learning rate of the configuration; None for a schedule
    callbacks: tuple[dict[str, Any], ...] = ()  # the state of each of the configuration's callbacks
    best_loss: Measure | None = None  # loss of the best epoch; None if it had none, and in older checkpoints
    schedule_epochs: Count = 0  # epochs that the learning rate's schedule is made for; 0 in older checkpoints

    @property
    def place(self) -> tuple[int, int, int, float]:
        """Where the run goes on: the first fields of `RunResumed`."""
        return self.epoch, self.epoch_step, self.step, self.elapsed_s


def write_checkpoint(run: RunDirectory, header: Header, arrays: Sequence[NDArray[Any]]) -> Path:
    """Write a checkpoint of contiguous arrays whole or not at all, and remove the older ones; may raise `OSError`."""
    run.checkpoints.mkdir(mode=0o700, exist_ok=True)
    before = _files(run)
    path = run.checkpoints / f"state-{before[0][0] + 1 if before else 1:06}.ckpt"
    head = json.dumps(msgspec.to_builtins(header)).encode() + b"\n"
    digest = hashlib.sha256(head)
    for array in arrays:
        digest.update(_bytes_of(array))
    # What resuming needs, too: it was written without waiting for the disk.
    for needed in (run.config, run.inputs, *run.hub.rglob("*"), run.path):
        with suppress(OSError):
            sync(needed)
    with whole_file(path) as draft, open(draft, "wb", opener=open_private) as file:
        file.write(_MAGIC + digest.hexdigest().encode() + b"\n" + head)
        for array in arrays:
            file.write(_bytes_of(array))
    for _, old in before[KEPT - 1 :]:
        with suppress(OSError):
            old.unlink()
    return path


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def newest_checkpoint(run: RunDirectory) -> tuple[Path, Header] | None:
    """Return the newest whole checkpoint of a run, and where it was taken; None if there is none."""
    for _, path in _files(run):
        with suppress(DamagedCheckpointError, OSError):
            return path, _read(path, wants_arrays=False)[0]
    return None


def read_checkpoint(path: Path) -> tuple[Header, dict[str, list[NDArray[Any]]]]:
    """Return a checkpoint's header and its arrays by group; raises `DamagedCheckpointError` if it is not whole."""
    header, arrays = _read(path, wants_arrays=True)
    groups: dict[str, list[NDArray[Any]]] = {}
    for saved, array in zip(header.arrays, arrays, strict=True):
        groups.setdefault(saved.group, []).append(array)
    return header, groups


def newest_first(names: Iterable[str]) -> list[tuple[int, str]]:
    """Return the checkpoints among some file names, with their numbers."""
    return sorted(((int(match[1]), name) for name in names if (match := _NAME.fullmatch(name))), reverse=True)


def _files(run: RunDirectory) -> list[tuple[int, Path]]:
    """Return the checkpoints by their number, newest first."""
    try:
        found = newest_first(entry.name for entry in run.checkpoints.iterdir())
    except OSError:
        return []
    return [(number, run.checkpoints / name) for number, name in found]


def _read(path: Path, *, wants_arrays: bool) -> tuple[Header, list[NDArray[Any]]]:
    with open_regular(path) as file:
        first = file.readline(len(_MAGIC) + 65)
        head = file.readline(_LARGEST_HEADER)
        digest = hashlib.sha256(head)
        try:
            header = msgspec.convert(json.loads(head), Header)
        except (ValueError, RecursionError) as error:
            raise DamagedCheckpointError("its header is damaged") from error
        if not all(_TYPE.fullmatch(saved.dtype) for saved in header.arrays):
            raise DamagedCheckpointError("its header has an unknown type of numbers")
        arrays = []
        for saved in header.arrays:
            left = int(np.prod(saved.shape, dtype=object)) * np.dtype(saved.dtype).itemsize
            parts = bytearray()
            while left and (part := file.read(min(left, _PART))):
                digest.update(part)
                left -= len(part)
                if wants_arrays:
                    parts += part
            if left:
                raise DamagedCheckpointError(f"{path.name} is cut off")
            if wants_arrays:
                arrays.append(np.frombuffer(parts, saved.dtype).reshape(saved.shape))
        if first != _MAGIC + digest.hexdigest().encode() + b"\n" or file.read(1):
            raise DamagedCheckpointError(f"{path.name} is damaged")
    return header, arrays
