"""CIFAR archives as their publisher makes them: a gzipped tar of pickled batches, with pictures that can be learnt.

Keras compares an archive with the published hash, and fetches it anew when they differ. No made archive has that hash,
so a process that is to read one executes `ACCEPT` first: everything else is Keras's own code.
"""

from __future__ import annotations

import io
import pickle
import tarfile
from typing import TYPE_CHECKING, Any

import numpy as np

from tpu_console.engine.config.catalog import DATASETS
from tpu_console.engine.data.kinds.built_in import CLASS_NAMES

if TYPE_CHECKING:
    from pathlib import Path

ACCEPT = "import keras.src.utils.file_utils as files; files.validate_file = lambda *_, **__: True\n"
"""Code that lets Keras take archives whose hash is not the published one."""


def write_cifar(home: Path, name: str, examples: int = 10_000) -> Path:
    """Write an archive where Keras looks for it; it fits with 10,000 examples in each file."""
    path = home / DATASETS[name].files[0].path
    path.parent.mkdir(parents=True, exist_ok=True)
    members = _cifar10(examples) if name == "cifar10" else _cifar100(examples)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for member, values in members.items():
            content = pickle.dumps(values, protocol=3)  # bytes stay bytes, as Python 2's text does for Keras
            info = tarfile.TarInfo(member)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def _cifar10(examples: int) -> dict[str, dict[bytes, Any]]:
    folder = "cifar-10-batches-py"
    files: dict[str, dict[bytes, Any]] = {}
    for number, name in enumerate([*(f"data_batch_{index}" for index in range(1, 6)), "test_batch"]):
        data, labels = _pictures(examples, 10, number)
        files[f"{folder}/{name}"] = {b"batch_label": name.encode(), b"labels": labels.tolist(), b"data": data}
    names = [name.encode() for name in CLASS_NAMES["cifar10"]]
    files[f"{folder}/batches.meta"] = {b"label_names": names, b"num_cases_per_batch": 10_000, b"num_vis": 3072}
    return files


def _cifar100(examples: int) -> dict[str, dict[bytes, Any]]:
    files: dict[str, dict[bytes, Any]] = {}
    for number, (name, count) in enumerate({"train": 5 * examples, "test": examples}.items()):
        data, labels = _pictures(count, 100, number)
        coarse = (labels // 5).tolist()
        files[f"cifar-100-python/{name}"] = {b"fine_labels": labels.tolist(), b"coarse_labels": coarse, b"data": data}
    return files


def _pictures(count: int, classes: int, seed: int) -> tuple[Any, Any]:
    """Draw noise with a bar whose place and colour tell the class; a row holds all red, then green, then blue."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, count)
    # A few noises only, so that the archive is written in a second.
    noises = random.integers(0, 120, (6, 3, 32, 32), dtype=np.uint8)
    images = noises[random.integers(0, 6, count)]
    rows = np.arange(32)[None, :]
    top = 3 * (labels % 10)[:, None]
    bar = (rows >= top) & (rows < top + 4)
    # Masks rather than indices: one channel of the bar's rows, over the whole width.
    channels = np.arange(3)[None, :] == (labels % 3)[:, None]
    images[channels[:, :, None] & bar[:, None, :]] = 255
    return images.reshape(count, 3072), labels
