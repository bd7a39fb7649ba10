"""Loads the examples of a dataset.

Built-in datasets come as arrays; a person's own function gives `tf.data` datasets. A damaged download is
found and named before Keras reads it.
"""

from __future__ import annotations

import gzip
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from engine.catalog import DATASETS, OFFLINE_PRESETS, CachedFile, DatasetInfo
from engine.errors import DataError, UserCodeError, one_line
from engine.paths import user_path
from engine.user_code import call_user_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from engine.config import RunConfig


@dataclass(frozen=True, slots=True)
class Examples:
    """Training and validation examples, unbatched.

    Args:
        train: A `tf.data.Dataset` of (example, label) pairs.
        validation: Likewise, or None.
        train_count: Training examples; None when the dataset does not tell.
        validation_count: Validation examples; None likewise, 0 without validation.
        input_shape: Shape of one example.
        classes: Number of classes; 0 when a person's own dataset leaves it to the model.
        pixel_range: What pixels are divided by to come between 0 and 1; 0 when they are not pixels.
    """

    train: Any
    validation: Any
    train_count: int | None
    validation_count: int | None
    input_shape: tuple[int | None, ...]
    classes: int
    pixel_range: float


_Arrays = tuple["NDArray[Any]", "NDArray[Any]", "NDArray[Any]", "NDArray[Any]"]


def load_examples(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
    """Load what a configuration's ``dataset`` names.

    Args:
        config: The configuration.
        on_fetch: Called with a sentence before something is downloaded.

    Raises:
        DataError: It cannot be fetched or is damaged.
        UserCodeError: The person's own function failed or returned the wrong thing.
    """
    info = DATASETS.get(config.dataset)
    if info is None:
        return _own_examples(config)
    missing = info.missing_files()
    if missing:
        size = sum(file.download_bytes for file in missing) / 1e6
        on_fetch(f"downloading {info.name}, {size:.0f} MB, to {user_path(missing[0].location.parent)}")
    for file in info.files:
        if file not in missing:
            _check_file(file)
    x_train, y_train, x_val, y_val = _load_arrays(info, config)
    for file in missing:
        _check_file(file)
    if config.data.train_limit:
        x_train, y_train = x_train[: config.data.train_limit], y_train[: config.data.train_limit]
    return Examples(
        train=tf.data.Dataset.from_tensor_slices((x_train, y_train)),
        validation=tf.data.Dataset.from_tensor_slices((x_val, y_val)),
        train_count=len(x_train),
        validation_count=len(x_val),
        input_shape=info.input_shape,
        classes=info.classes,
        pixel_range=16.0 if info.name == "digits" else 255.0,
    )


def _load_arrays(info: DatasetInfo, config: RunConfig) -> _Arrays:
    if info.name == "digits":
        return _digits(config)
    import keras

    module = {"mnist": keras.datasets.mnist, "fashion-mnist": keras.datasets.fashion_mnist}[info.name]
    try:
        (x_train, y_train), (x_val, y_val) = module.load_data()
    except Exception as error:  # noqa: BLE001  Keras raises a bare Exception for a failed download
        _raise_for_load(info, error)
    if len(x_train) != info.train_examples or len(x_train) != len(y_train):
        raise DataError(
            f"{info.name} has {len(x_train):,} images and {len(y_train):,} labels instead of {info.train_examples:,}.",
            remedy=_fetch_again(info),
        )
    return x_train[..., np.newaxis], y_train.astype(np.int32), x_val[..., np.newaxis], y_val.astype(np.int32)


def _fetch_again(info: DatasetInfo) -> str:
    # A folder of its own as a whole; of the folder that all datasets share only the file.
    place = info.files[0].location if len(info.files) == 1 else info.files[0].location.parent
    return f"Delete {user_path(place)}, and it is fetched again."


def _raise_for_load(info: DatasetInfo, error: Exception) -> None:
    missing = info.missing_files()
    if not missing:
        what = f"The files of {info.name} do not fit together."
        raise DataError(what, why=one_line(error), remedy=_fetch_again(info)) from error
    raise DataError(
        f"{info.name} could not be downloaded from {missing[0].url}.",
        why=one_line(error),
        remedy=(
            f"Check the connection (on Kaggle: switch the notebook's internet on), or put the file by hand at "
            f"{missing[0].location}. Presets that need no network: {', '.join(OFFLINE_PRESETS)}."
        ),
    ) from error


def _check_file(file: CachedFile) -> None:
    """Find a truncated or damaged download, which Keras would read as far as it goes or fail on cryptically.

    Raises:
        DataError: It is damaged.
    """
    try:
        if file.path.endswith(".gz"):
            _check_idx(file)
        else:
            with zipfile.ZipFile(file.location) as archive:
                if (bad := archive.testzip()) is not None:
                    raise zipfile.BadZipFile(bad)
    except (OSError, EOFError, zlib.error, struct.error, zipfile.BadZipFile, ValueError) as error:
        raise DataError(
            f"{file.location} is damaged or was not downloaded completely.",
            why=f"{type(error).__name__}: {error}.",
            remedy=f"Delete it, and it is fetched again from {file.url}",
        ) from error


def _check_idx(file: CachedFile) -> None:
    """Compare an idx file's header with its length: magic number, then one big-endian size a dimension."""
    with gzip.open(file.location, "rb") as stream:
        content = stream.read()
    zeros, kind, dimensions = struct.unpack(">HBB", content[:4])
    sizes = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
    expected = int(np.prod(sizes)) + 4 + 4 * dimensions
    if zeros != 0 or kind != 8 or len(content) != expected:
        raise ValueError(f"it holds {len(content):,} bytes where its header says {expected:,}")


def _digits(config: RunConfig) -> _Arrays:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype(np.uint8)
    try:
        x_train, x_val, y_train, y_val = train_test_split(
            images,
            labels,
            test_size=config.data.validation_fraction,
            random_state=config.seed,
            stratify=labels,
        )
    except ValueError as error:
        raise DataError(
            f"digits cannot be split with data.validation_fraction={config.data.validation_fraction}.",
            why=str(error),
        ) from error
    return x_train, y_train.astype(np.int32), x_val, y_val.astype(np.int32)


def _own_examples(config: RunConfig) -> Examples:
    name = config.dataset
    returned = call_user_function(name, **config.data.options)
    pair = returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, None)
    for part, dataset in zip(("training", "validation"), pair, strict=True):
        if not isinstance(dataset, tf.data.Dataset) and not (part == "validation" and dataset is None):
            raise UserCodeError(
                f"{name} returned a {type(dataset).__name__} as its {part} data, not a tf.data.Dataset.",
                remedy="Return (train, validation), unbatched datasets of (example, label); validation may be None.",
            )
    train, validation = pair
    spec = train.element_spec
    if not (isinstance(spec, tuple) and len(spec) in {2, 3} and hasattr(spec[0], "shape")):
        raise UserCodeError(
            f"{name} returned a dataset of {spec}, not of (example, label) pairs.",
            remedy="Map each element to (example, label), unbatched.",
        )
    if spec[0].shape.rank and spec[0].shape[0] is None:
        raise UserCodeError(
            f"{name} returned examples of shape {spec[0].shape}, whose first size varies: they look batched.",
            remedy="Return unbatched datasets; the console batches them for the replicas.",
        )
    if not any(True for _ in train.take(1)):
        raise UserCodeError(f"{name} returned a training dataset without examples.")
    return Examples(
        train=train,
        validation=validation,
        train_count=_count(train),
        validation_count=0 if validation is None else _count(validation),
        input_shape=tuple(spec[0].shape),
        classes=_count_classes(train, spec[1]),
        pixel_range=0.0,
    )


def _count(dataset: Any) -> int | None:
    count = int(dataset.cardinality())
    return count if count >= 0 else None


def _count_classes(dataset: Any, spec: Any) -> int:
    """Take the width of a one-hot label, or the largest integer label plus one, from up to 10,000 examples."""
    if spec.shape.rank == 1 and spec.shape[0]:
        return int(spec.shape[0])
    if spec.shape.rank == 0 and spec.dtype.is_integer:
        return (
            int(dataset.take(10_000).reduce(np.int64(0), lambda top, pair: tf.maximum(top, tf.cast(pair[1], tf.int64))))
            + 1
        )
    return 0
