"""MNIST's and Fashion-MNIST's files as their publishers make them, with pictures that can be learnt."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from tpu_console.engine.config.catalog import DATASETS

if TYPE_CHECKING:
    from pathlib import Path


def write_mnist(home: Path) -> None:
    """Write ``mnist.npz`` where Keras looks for it; Keras takes it after `tests.cifar.ACCEPT`."""
    path = home / DATASETS["mnist"].files[0].path
    path.parent.mkdir(parents=True, exist_ok=True)
    (x_train, y_train), (x_test, y_test) = _pictures(60_000, 0), _pictures(10_000, 1)
    np.savez(path, x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def write_fashion_mnist(home: Path) -> None:
    """Write the four idx files where Keras looks for them."""
    folder = home / "datasets" / "fashion-mnist"
    folder.mkdir(parents=True, exist_ok=True)
    for part, count, seed in (("train", 60_000, 0), ("t10k", 10_000, 1)):
        images, labels = _pictures(count, seed)
        _write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        _write_idx(folder / f"{part}-labels-idx1-ubyte.gz", labels)


def _write_idx(path: Path, values: Any) -> None:
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header + values.tobytes())


def _pictures(count: int, seed: int) -> tuple[Any, Any]:
    """Draw noise with a bar across, whose height tells the class."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count).astype(np.uint8)
    # A few noises only, so that the files are written in a second.
    images = random.integers(0, 120, (6, 28, 28), dtype=np.uint8)[random.integers(0, 6, count)]
    rows = np.arange(28)[None, :]
    top = 2 * labels[:, None]
    images[(rows >= top) & (rows < top + 4)] = 255
    return images, labels
