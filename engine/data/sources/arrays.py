"""Loads the built-in datasets, through Keras's loaders and cache or from scikit-learn.

They are downloaded to where Keras looks for them, because its own download does not go on where it stopped, and leaves
the part that arrived under the name of the whole if the process is killed.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ...config.catalog import DATASETS, CachedFile, DatasetInfo
from ...errors import DataError, one_line
from ...storage.paths import user_path
from ..download import fetch_file, reaches
from ..examples import Examples, Input, Signature, Task, of_arrays
from ..kinds.table import download_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ..download import OnFetch

_DIGITS = tuple("0123456789")
_FASHION = "T-shirt/top, Trouser, Pullover, Dress, Coat, Sandal, Shirt, Sneaker, Bag, Ankle boot"
_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""
CLASS_NAMES: dict[str, tuple[str, ...]] = {
    "digits": _DIGITS,
    "mnist": _DIGITS,
    "fashion-mnist": tuple(_FASHION.split(", ")),
    "cifar10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    # The fine labels, with the names in the archive's `meta` file.
    "cifar100": tuple(_CIFAR100.split()),
}
_CHUNK_BYTES = 1 << 22
_Arrays = tuple["NDArray[Any]", "NDArray[Any]", "NDArray[Any]", "NDArray[Any]"]


def load(config: RunConfig, on_fetch: OnFetch) -> Examples:
    """Load a built-in dataset; raise `DataError` if it cannot be downloaded or is damaged."""
    info = DATASETS[config.dataset]
    missing = info.missing_files()
    for file in info.files:
        if file not in missing:
            _check_file(file, file.location)

    def fetch() -> None:
        for file in missing:
            fetch_file(file.url, file.location, partial(_check_file, file))

    if (download := download_of(config)) is not None:
        download.fetch(fetch, missing[0].location.parent, on_fetch, reaches)
    x_train, y_train, x_val, y_val = _digits(config) if info.name == "digits" else _load_arrays(info)
    most = config.data.train_limit or None
    return of_arrays(
        (x_train[:most], y_train[:most]),
        (x_val, y_val),
        signature=Signature(Task.CLASSES, {"image": Input(info.input_shape)}, info.classes),
        pixel_range=16.0 if info.name == "digits" else 255.0,
        class_names=CLASS_NAMES[info.name],
    )


def _load_arrays(info: DatasetInfo) -> _Arrays:
    import keras

    place = info.files[0].location if len(info.files) == 1 else info.files[0].location.parent
    what, remedy = f"The files of {info.name} are damaged.", f"Delete {user_path(place)}; it is downloaded again."
    try:
        (x_train, y_train), (x_val, y_val) = getattr(keras.datasets, info.name.replace("-", "_")).load_data()
    except Exception as error:  # Keras downloads again what differs from its hash, and raises a bare Exception
        raise DataError(what, why=one_line(error), remedy=remedy) from error
    if len(x_train) != info.train_examples or len(x_train) != len(y_train):
        why = f"They hold {len(x_train):,} images and {len(y_train):,} labels instead of {info.train_examples:,}."
        raise DataError(what, why=why, remedy=remedy)
    # Keras omits the channel axis of greyscale images, and returns the labels of CIFAR as a column.
    x_train, x_val = (part.reshape(-1, *info.input_shape) for part in (x_train, x_val))
    y_train, y_val = (part.reshape(-1).astype(np.int32) for part in (y_train, y_val))
    return x_train, y_train, x_val, y_val


def _check_file(file: CachedFile, place: Path) -> None:
    """Raise a `DataError` for a damaged download, which Keras would read partly or fail on without a clear error."""
    try:
        if file.url.endswith(".gz"):
            # Decompressed and discarded: gzip then verifies the checksum and the length.
            with gzip.open(place, "rb") as stream:
                if not stream.read(1):
                    raise ValueError("it is empty")
                while stream.read(_CHUNK_BYTES):
                    pass
        else:
            with zipfile.ZipFile(place) as archive:
                if (bad := archive.testzip()) is not None:
                    raise zipfile.BadZipFile(bad)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError) as error:
        what, why = f"{place} is damaged or was not downloaded completely.", f"{type(error).__name__}: {error}."
        raise DataError(what, why=why, remedy=f"Delete it; it is downloaded again from {file.url}") from error


def _digits(config: RunConfig) -> _Arrays:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype(np.uint8)
    try:
        x_train, x_val, y_train, y_val = train_test_split(
            images, labels, test_size=config.data.validation_fraction, random_state=config.seed, stratify=labels
        )
    except ValueError as error:
        what = f"digits cannot be split with data.validation_fraction={config.data.validation_fraction}."
        raise DataError(what, why=str(error)) from error
    return x_train, y_train.astype(np.int32), x_val, y_val.astype(np.int32)
