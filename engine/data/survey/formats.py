"""Detects the format of a file or folder from names and first lines."""

from __future__ import annotations

import csv
import re
import zipfile
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...config.reading import parse_config
from ...errors import DataError, one_line
from ...storage.paths import user_path
from ..kinds.kind import DatasetKind
from ..kinds.table import KINDS
from ..places import is_remote, locate
from .skimming import TooLargeError, first_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...config.run_config import RunConfig

_BINARY = {".npz", ".npy", ".parquet"}
_MOST_BESIDE = 50  # tables of a folder that are looked at
_BY_TRAIN_CSV, _BY_OTHER_TABLE = 0.9, 0.5  # how sure it is that a folder is read by a table in it


def config_for(dataset: str, options: Mapping[str, Any]) -> RunConfig:
    """Return a configuration that loads a dataset; raise `ConfigError` if the options do not fit."""
    kind = KINDS.get(dataset, DatasetKind)
    values = {"dataset": dataset, "model": kind.model, "loss": kind.loss, "batch_size": 32, "epochs": 1}
    return parse_config(values | {"metrics": [], "data": {"options": dict(options)}})


def config_to_run(config: RunConfig, found: Mapping[str, Any]) -> RunConfig:
    """Return a configuration that trains on a dataset as `inspect` found it: images in their own size."""
    values = config.model_dump(mode="json")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(str(config.data.options.get("path", "mine"))).stem).strip("-._")
    images, train = found.get("images") or {}, found.get("train") or 32
    if "height" in images and "image_size" not in config.data.options:
        values["data"]["options"]["image_size"] = [round(images[side]["median"]) for side in ("height", "width")]
    is_number = config.loss == "mean_squared_error"
    metrics = ["mean_absolute_error" if is_number else "accuracy"]
    batch = next(size for size in (32, 16, 8, 4, 2, 1) if size <= max(train, 1))
    return parse_config(values | {"name": name or "mine", "epochs": 10, "batch_size": batch, "metrics": metrics})


def guess(path: str) -> tuple[str, dict[str, Any]]:
    """Return the name of the dataset that fits a file or folder, and its options.

    Raises:
        DataError: It does not exist or has no known format.
    """
    place = Path(locate(path))
    if is_remote(path) or not place.exists():
        where = "it is remote" if is_remote(path) else "it does not exist"
        raise DataError(f"The format of {path} cannot be detected: {where}.", remedy=_REMEDY)
    try:
        found = _surest(place)
        if found is None and not place.is_dir():
            raise _needs_function(place, first_rows(place)[0])
    except TooLargeError:
        found = None
    except OSError as error:
        raise DataError(f"{user_path(place)} cannot be read: {error.strerror or one_line(error)}.") from error
    except (EOFError, csv.Error) as error:
        raise DataError(f"{user_path(place)} cannot be read.", why=one_line(error)) from error
    if found is None:
        raise DataError(f"{user_path(place)} is not in a known format.", remedy=_REMEDY)
    return found[1], found[2]


_REMEDY = (
    f"Name the format, as in `tpu-console inspect image-csv --set data.options.path=…`: {', '.join(KINDS)}.\n"
    "Read anything else, such as a table of numbers, with a function of yours: `tpu-console inspect mine.py:data`."
)


def _surest(place: Path) -> tuple[float, str, dict[str, Any]] | None:
    """Return how sure the surest kind is that it reads a file or folder, its name, and the options."""
    looks = ((kind.name, kind.recognize(place)) for kind in KINDS.values())
    found = ((look.sure, name, look.options) for name, look in looks if look is not None)
    best = max(found, key=lambda one: one[0], default=None)
    if place.is_dir():
        for table in (place / "train.csv", *islice(sorted(place.glob("*.csv")), _MOST_BESIDE)):
            sure = _BY_TRAIN_CSV if table.name == "train.csv" else _BY_OTHER_TABLE
            if (best is None or best[0] < sure) and table.is_file() and (inside := _surest(table)) is not None:
                best = (sure, *inside[1:])
    return best


def _needs_function(file: Path, columns: Sequence[str] = ()) -> DataError:
    """Return the error that says what a file is, and which function reads it for a training."""
    path, module, split = repr(str(file.absolute())), "pandas as pd", ""
    if columns and "\0" not in "".join(columns):
        what = f"a table with the columns {', '.join(columns[:8])}{', …' if columns[8:] else ''}"
        what += ": no file names of images beside it, no texts with labels, no ratings"
        reads, label = f"table = pd.read_csv({path})", repr(columns[-1])
        split = f"table.drop(columns={label}).to_numpy('float32'), table[{label}].to_numpy()"
    elif file.suffix == ".parquet":
        what, reads = "a Parquet table", f"table = pd.read_parquet({path})  # needs pyarrow"
        split = "table.iloc[:, :-1].to_numpy('float32'), table.iloc[:, -1].to_numpy()  # the last column is the label"
    elif file.suffix in _BINARY:
        names, module = _arrays_in(file), "numpy as np"
        what = f"arrays of NumPy: {', '.join(names[:8])}" if names else "an array of NumPy"
        reads = f"arrays = np.load({path})"
        pairs = [("x_train", "y_train"), ("x_test", "y_test")]
        if not {*names} >= {*pairs[0], *pairs[1]}:
            pairs = [(names[0], names[1])] if names[1:] else []
        split = ", ".join(f"(arrays[{x!r}], arrays[{y!r}])" for x, y in pairs) or "arrays, LABELS"
    else:
        return DataError(f"{user_path(file)} is not in a known format.", remedy=_REMEDY)
    return DataError(
        f"{user_path(file)} is {what}.",
        why="A function of yours can read it. Write mine.py, and check what it returns:",
        remedy=f"""
    import {module}

    def data():
        {reads}
        return {split}

This looks at the data, and trains:

    tpu-console inspect mine.py:data
    tpu-console run digits-cnn --set dataset=mine.py:data --set model=mlp""",
    )


def _arrays_in(file: Path) -> list[str]:
    try:
        with zipfile.ZipFile(file) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()[:_MOST_BESIDE]]
    except zipfile.BadZipFile:  # a single array, or damaged
        return []
