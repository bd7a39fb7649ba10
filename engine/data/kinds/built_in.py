"""The built-in datasets, from Keras's loaders and cache or from scikit-learn.

They are downloaded to where Keras looks for them, because its own download does not go on where it stopped, and leaves
the part that arrived under the name of the whole if the process is killed.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from abc import abstractmethod
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ...config.catalog import DATASETS, CachedFile, DatasetInfo
from ...config.values import Section
from ...errors import DataError, one_line
from ...storage.paths import user_path
from ..examples import Examples, Input, Signature, Task, of_arrays
from ..places import Download, fetch_file, locate, open_file, part_of, reaches, shown
from ..predictions import NewData, Table, TrainedModel, predicted
from ..tables import read_table
from .kind import DatasetKind, ImageRecord
from .npz import open_arrays
from .skimming import Survey

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ..code import DataCode
    from ..places import OnFetch

    Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]
    """Images and class numbers for training, and for validation."""

_CHUNK_BYTES = 1 << 22
_NEW_IMAGES = ("images", "x", "x_test", "arr_0")  # names of an array of images, the likeliest first


class BuiltIn(DatasetKind[Section]):
    """A built-in dataset: small images with a class each, in memory."""

    Options = Section
    Record = ImageRecord
    needs_record = False

    def __init__(self, info: DatasetInfo) -> None:
        self.info, self.name, self.title = info, info.name, info.title
        sides = ", ".join(map(str, info.input_shape))
        self.new_data = f"a .npy, .npz or CSV file of images of shape (images, {sides}), with unscaled values"

    @abstractmethod
    def arrays(self, config: RunConfig) -> Arrays:
        """Read files that are here; raise `DataError` if they are damaged."""

    @abstractmethod
    def write_arrays(self, code: DataCode) -> None:
        """Write code that makes ``x_train``, ``y_train``, ``x_val`` and ``y_val``."""

    def has_images(self, config: RunConfig) -> bool:
        return True

    def survey(self, config: RunConfig) -> Survey:
        return Survey(total=self.info.train_examples, validation=self.info.validation_examples)

    def missing_download(self, config: RunConfig) -> Download | None:
        """Return the files that are not in Keras's cache, less what arrived of them."""
        if not (missing := self.info.missing_files()):
            return None
        hosts = tuple(sorted({str(urlsplit(file.url).hostname) for file in missing}))
        arrived = sum(part.stat().st_size for file in missing if (part := part_of(file.location)).is_file())
        size = max(0, sum(file.download_bytes for file in missing) - arrived)
        another = "set KERAS_HOME to a folder on another one"
        return Download(self.name, str(missing[0].location.parent), self.info.by_hand(), another, hosts, size)

    def signature(self, config: RunConfig, found: Survey) -> tuple[Signature, str]:
        return Signature(Task.CLASSES, {"image": Input(self.info.input_shape)}, self.info.classes), ""

    def load(self, config: RunConfig, on_fetch: OnFetch) -> Examples:
        """Download what is missing, and read it; raise `DataError` if it cannot be downloaded or is damaged."""
        missing = self.info.missing_files()
        for file in self.info.files:
            if file not in missing:
                _check_file(file, file.location)

        def fetch() -> None:
            for file in missing:
                fetch_file(file.url, file.location, partial(_check_file, file))

        if (download := self.missing_download(config)) is not None:
            download.fetch(fetch, missing[0].location.parent, on_fetch, reaches)
        x_train, y_train, x_val, y_val = self.arrays(config)
        most = config.data.train_limit or None
        return of_arrays(
            (x_train[:most], y_train[:most]),
            (x_val, y_val),
            signature=self.signature(config, Survey())[0],
            pixel_range=self.largest_pixel,
            class_names=self.info.class_names,
        )

    def predict(self, trained: TrainedModel, request: NewData, reporter: Reporter) -> Table:
        """Predict images given as numbers; rows are counted from 0.

        Raises `DataError` if they cannot be read, or their shape or range differs from the dataset's.
        """
        import numpy as np
        import pandas as pd

        images = _read(request.only(), self.info.input_shape)
        largest, least, most = self.largest_pixel, float(images.min()), float(images.max())
        if least < 0 or most > largest:
            what = f"The values range from {least:g} to {most:g}, but {self.name} ranges from 0 to {largest:g}."
            raise DataError(what, remedy="Give unscaled pixels; the run's scaling is applied here.")
        if most <= 1:
            text = f"No value is above 1, but {self.name} goes up to {largest:g}: are these values scaled already?"
            reporter.note(text)
        images *= np.float32(trained.scale(largest))
        rows = pd.DataFrame({"index": map(str, range(len(images)))})
        return predicted(trained, rows, images, "label", reporter)

    def write_code(self, code: DataCode) -> None:
        self.write_arrays(code)
        if limit := code.config.data.train_limit:
            code.add(f"x_train, y_train = x_train[:{limit}], y_train[:{limit}]")
        code.datasets("x", "y_train", self.largest_pixel)


class Digits(BuiltIn):
    """The digits of scikit-learn, of which a share is held out."""

    largest_pixel = 16.0

    def survey(self, config: RunConfig) -> Survey:
        """Round the held-out part up, as scikit-learn does."""
        total = self.info.train_examples + self.info.validation_examples
        held_out = -int(-total * config.data.validation_fraction // 1)
        return Survey(total=total - held_out, validation=held_out)

    def arrays(self, config: RunConfig) -> Arrays:
        """Split them class by class."""
        import numpy as np
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        images, labels = load_digits(return_X_y=True)
        images = images.reshape(-1, *self.info.input_shape).astype(np.uint8)
        try:
            x_train, x_val, y_train, y_val = train_test_split(
                images, labels, test_size=config.data.validation_fraction, random_state=config.seed, stratify=labels
            )
        except ValueError as error:
            what = f"digits cannot be split with data.validation_fraction={config.data.validation_fraction}."
            raise DataError(what, why=str(error)) from error
        return x_train, y_train.astype(np.int32), x_val, y_val.astype(np.int32)

    def write_arrays(self, code: DataCode) -> None:
        share, shape = code.literal(code.config.data.validation_fraction), ", ".join(map(str, self.info.input_shape))
        given = {"test_size": share, "random_state": "SEED", "stratify": "labels"}
        code.needs(load_digits="sklearn.datasets", train_test_split="sklearn.model_selection")
        code.add("images, labels = load_digits(return_X_y=True)", f"images = images.reshape(-1, {shape})")
        code.call("x_train, x_val, y_train, y_val", "train_test_split", "images", "labels", **given)


class KerasDataset(BuiltIn):
    """A dataset that Keras loads."""

    def arrays(self, config: RunConfig) -> Arrays:
        import keras
        import numpy as np

        info = self.info
        place = info.files[0].location if len(info.files) == 1 else info.files[0].location.parent
        what, remedy = f"The files of {self.name} are damaged.", f"Delete {user_path(place)}; it is downloaded again."
        try:
            (x_train, y_train), (x_val, y_val) = getattr(keras.datasets, self.name.replace("-", "_")).load_data()
        except Exception as error:  # Keras downloads again what differs from its hash, and raises a bare Exception
            raise DataError(what, why=one_line(error), remedy=remedy) from error
        if len(x_train) != info.train_examples or len(x_train) != len(y_train):
            why = f"They hold {len(x_train):,} images and {len(y_train):,} labels instead of {info.train_examples:,}."
            raise DataError(what, why=why, remedy=remedy)
        # Keras omits the channel axis of grayscale images, and returns the labels of CIFAR as a column.
        x_train, x_val = (part.reshape(-1, *info.input_shape) for part in (x_train, x_val))
        y_train, y_val = (part.reshape(-1).astype(np.int32) for part in (y_train, y_val))
        return x_train, y_train, x_val, y_val

    def write_arrays(self, code: DataCode) -> None:
        code.add(f"(x_train, y_train), (x_val, y_val) = keras.datasets.{self.name.replace('-', '_')}.load_data()")
        if self.info.input_shape[2] > 1:
            code.add("y_train, y_val = y_train.flatten(), y_val.flatten()")
        else:
            shape = ", ".join(map(str, self.info.input_shape))
            code.add(*(f"{part} = {part}.reshape(-1, {shape})" for part in ("x_train", "x_val")))


BUILT_IN: dict[str, BuiltIn] = {
    name: KerasDataset(info) if info.files else Digits(info) for name, info in DATASETS.items()
}


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


def _read(path: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Read images given as numbers; raise `DataError` if they cannot be read, or have another shape."""
    import numpy as np

    place = Path(locate(path))
    if not place.is_file():
        raise DataError(f"There is no file {shown(path)}.")
    size = int(np.prod(shape))
    values = _from_numpy(path) if place.suffix in {".npy", ".npz"} else _from_csv(path, size)
    if values.dtype.kind not in "biuf":
        raise DataError(f"{shown(path)} contains {values.dtype}, not numbers.")
    given = values.shape[1:]
    # A flat image, or one whose shape differs only in sides of length 1.
    fits = len(given) == 1 or [side for side in given if side > 1] == [side for side in shape if side > 1]
    if values.ndim < 2 or not len(values) or values[0].size != size or not fits:
        what = f"{shown(path)} has shape {values.shape}; each image needs {'×'.join(map(str, shape))} numbers."
        remedy = f"Give an array of shape (images, {', '.join(map(str, shape))}), or (images, {size})."
        raise DataError(what, remedy=remedy)
    images = values.reshape(-1, *shape).astype(np.float32)
    broken = np.flatnonzero(~np.isfinite(images).reshape(len(images), -1).all(axis=1))
    if len(broken):
        raise DataError(f"{shown(path)}: image {broken[0]:,} (counted from 0) has a value that is not a number.")
    return images


def _from_numpy(path: str) -> NDArray[Any]:
    import numpy as np

    if path.endswith(".npy"):
        try:
            with open_file(locate(path)) as file:
                return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{shown(path)} cannot be read as a NumPy file.", why=one_line(error, 200)) from error
    with open_arrays(path) as archive:
        names = archive.files
        key = names[0] if len(names) == 1 else next((name for name in _NEW_IMAGES if name in names), None)
        if key is None:
            what = f"{shown(path)} has {len(names)} arrays: {', '.join(names[:10])}."
            raise DataError(what, remedy="Name the array with the images 'images', or save it alone as .npy.")
        return np.asarray(archive[key])


def _from_csv(path: str, size: int) -> NDArray[np.float32]:
    """Read one image per row, with or without a header; a label column before the pixels is dropped."""
    import numpy as np
    import pandas as pd

    table = read_table(path, {})
    if not table.attrs["nameless"] and len(table.columns) == size + 1:
        table = table.iloc[:, 1:]
    numbers = table.apply(pd.to_numeric, errors="coerce")
    rows = np.flatnonzero(numbers.isna().any(axis=1))
    if len(rows):
        what = f"row {rows[0] + 1:,} (not counting the header) has a cell that is not a number"
        raise DataError(f"{shown(path)}: {what}.")
    values: NDArray[np.float32] = numbers.to_numpy(np.float32)
    return values
