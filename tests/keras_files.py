"""Files of built-in datasets where Keras looks for them, as their publishers make them, with something to be learnt.

Keras compares an archive with the published hash, and fetches it again when they differ. No made archive has that hash,
so a process that is to read one executes `ACCEPT` first: everything else is Keras's own code.
"""

import gzip
import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from tpu_console.engine.config.catalog import DATASETS

ACCEPT = "import keras.src.utils.file_utils as files; files.validate_file = lambda *_, **__: True\n"
"""Code that lets Keras take archives whose hash is not the published one."""


def _path_of(name: str, home: Path) -> Path:
    path = home / DATASETS[name].files[0].path
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_mnist(home: Path) -> None:
    (x_train, y_train), (x_test, y_test) = _gray(60_000, 0), _gray(10_000, 1)
    np.savez(_path_of("mnist", home), x_train=x_train, y_train=y_train, x_test=x_test, y_test=y_test)


def write_idx(path: Path, values: Any) -> None:
    """Write bytes of any shape as an idx file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header + values.tobytes())


def write_fashion_mnist(home: Path) -> None:
    folder = _path_of("fashion-mnist", home).parent
    for part, count, seed in (("train", 60_000, 0), ("t10k", 10_000, 1)):
        for name, values in zip(("images-idx3", "labels-idx1"), _gray(count, seed), strict=True):
            write_idx(folder / f"{part}-{name}-ubyte.gz", values)


def write_cifar(home: Path, name: str) -> None:
    """Write the archive of CIFAR-10 or CIFAR-100."""
    members = _cifar10() if name == "cifar10" else _cifar100()
    with tarfile.open(_path_of(name, home), "w:gz", compresslevel=0) as archive:
        for member, values in members.items():
            content = io.BytesIO()
            _Python2Pickler(content, protocol=2).dump(values)
            info = tarfile.TarInfo(member)
            info.size = content.tell()
            content.seek(0)
            archive.addfile(info, content)


class _Python2Pickler(pickle._Pickler):
    """Pickles as Python 2 did, whose text is bytes and has opcodes of its own."""

    def save_text(self, text: bytes) -> None:
        is_short = len(text) < 256
        size = len(text).to_bytes(1 if is_short else 4, "little")
        self.write((pickle.SHORT_BINSTRING if is_short else pickle.BINSTRING) + size + text)  # type: ignore[attr-defined]
        self.memoize(text)  # type: ignore[attr-defined]

    dispatch = pickle._Pickler.dispatch | {bytes: save_text}  # type: ignore[assignment]


def _cifar10() -> dict[str, dict[bytes, Any]]:
    folder, files = "cifar-10-batches-py", dict[str, dict[bytes, Any]]()
    for number, name in enumerate([*(f"data_batch_{index}" for index in range(1, 6)), "test_batch"]):
        data, labels = _colored(10_000, 10, number)
        files[f"{folder}/{name}"] = {b"batch_label": name.encode(), b"labels": labels.tolist(), b"data": data}
    names = [name.encode() for name in DATASETS["cifar10"].class_names]
    files[f"{folder}/batches.meta"] = {b"label_names": names, b"num_cases_per_batch": 10_000, b"num_vis": 3072}
    return files


def _cifar100() -> dict[str, dict[bytes, Any]]:
    files = dict[str, dict[bytes, Any]]()
    for number, (name, count) in enumerate({"train": 50_000, "test": 10_000}.items()):
        data, labels = _colored(count, 100, number)
        coarse = (labels // 5).tolist()
        files[f"cifar-100-python/{name}"] = {b"fine_labels": labels.tolist(), b"coarse_labels": coarse, b"data": data}
    return files


def _noise(random: np.random.Generator, count: int, *shape: int) -> Any:
    """Draw a few noises only, each for many pictures, so that the files are written in a second."""
    return random.integers(0, 120, (6, *shape), dtype=np.uint8)[random.integers(0, 6, count)]


def _gray(count: int, seed: int) -> tuple[Any, Any]:
    """Draw noise with a bar across, whose height tells the class."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count).astype(np.uint8)
    images, rows, top = _noise(random, count, 28, 28), np.arange(28)[None, :], 2 * labels[:, None]
    images[(rows >= top) & (rows < top + 4)] = 255
    return images, labels


def _colored(count: int, classes: int, seed: int) -> tuple[Any, Any]:
    """Draw noise with a bar whose place and color tell the class; a row holds all red, then green, then blue."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, count)
    images, rows, top = _noise(random, count, 3, 32, 32), np.arange(32)[None, :], 3 * (labels % 10)[:, None]
    bar = (rows >= top) & (rows < top + 4)
    # Masks rather than indices: one channel of the bar's rows, over the whole width.
    channels = np.arange(3)[None, :] == (labels % 3)[:, None]
    images[channels[:, :, None] & bar[:, None, :]] = 255
    return images.reshape(count, 3072), labels
