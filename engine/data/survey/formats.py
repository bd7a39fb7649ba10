"""Detects the format of a file or folder from names and first lines."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...config.catalog import FORMATS
from ...config.reading import parse_config
from ...errors import DataError, one_line
from ...storage.paths import user_path
from ..places import IMAGE_ENDINGS, is_image_name, is_remote, locate
from ..tfrecord.schema import SCHEMA_NAME
from .skimming import TooLargeError, text_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...config.run_config import RunConfig

_MODELS = {
    "image-csv": ("cnn", "categorical_crossentropy"),
    "text-pairs": ("transformer", "sparse_categorical_crossentropy"),
    "text-csv": ("text", "sparse_categorical_crossentropy"),
    "ratings-csv": ("recommender", "mean_squared_error"),
}
_NOT_LANGUAGES = {*IMAGE_ENDINGS, ".py", ".md", ".txt", ".csv", ".tsv", ".gz", ".zip", ".tar", ".npz", ".npy"}
_TEXTS, _LABELS = ("text", "review", "sentence", "content", "message"), ("label", "sentiment", "class", "category")
_USERS, _ITEMS, _RATINGS = ("userid", "user_id", "user"), ("movieid", "itemid", "item_id", "item"), ("rating",)


def config_for(dataset: str, options: Mapping[str, Any]) -> RunConfig:
    """Return a configuration that loads a dataset; raise `ConfigError` if the options do not fit."""
    model, loss = _MODELS.get(dataset, ("cnn", "sparse_categorical_crossentropy"))
    values = {"dataset": dataset, "model": model, "loss": loss, "batch_size": 32, "epochs": 1}
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
        found = _guess_folder(place) if place.is_dir() else _guess_file(place)
    except TooLargeError:
        found = None
    except OSError as error:
        raise DataError(f"{user_path(place)} cannot be read: {error.strerror or one_line(error)}.") from error
    except (EOFError, csv.Error) as error:
        raise DataError(f"{user_path(place)} cannot be read.", why=one_line(error)) from error
    if found is None:
        raise DataError(f"{user_path(place)} is not in a known format.", remedy=_REMEDY)
    return found


_REMEDY = (
    f"Name the format, as in `tpu-console inspect image-csv --set data.options.path=…`: {', '.join(FORMATS)}.\n"
    "Read anything else, such as a table of numbers, with a function of yours: `tpu-console inspect mine.py:data`."
)


def _guess_folder(folder: Path) -> tuple[str, dict[str, Any]] | None:
    if (folder / SCHEMA_NAME).is_file():
        return "tfrecord", {"path": str(folder)}
    if (table := folder / "train.csv").is_file() and (found := _guess_file(table)) is not None:
        return found
    if (parts := _parts_of(folder)) is not None:
        return "image-folder", parts
    if (pair := _two_texts(folder)) is not None:
        return "text-pairs", pair
    inside = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    if any(is_image_name(file.name) for entry in inside for file in entry.iterdir()):
        return "image-folder", {"path": str(folder)}
    return None


def _parts_of(folder: Path) -> dict[str, Any] | None:
    """Return the options of a folder with images in train/ and in test/, val/ or the like, side by side."""
    by_name = {entry.name.lower(): entry for entry in folder.iterdir() if entry.is_dir()}
    train = next((by_name[name] for name in ("train", "training") if name in by_name), None)
    if train is None or (found := _guess_folder(train)) is None or found[0] != "image-folder":
        return None
    other = next((by_name[name] for name in ("val", "valid", "validation", "test", "testing") if name in by_name), None)
    return {"path": str(train)} | ({"validation_path": str(other)} if other is not None else {})


def _two_texts(folder: Path) -> dict[str, Any] | None:
    """Return the options of two files of sentences, such as train.en and train.de."""
    named = [entry for entry in folder.iterdir() if re.fullmatch(r"\.[a-z]{2,3}", entry.suffix) and entry.is_file()]
    texts = sorted((entry for entry in named if entry.suffix not in _NOT_LANGUAGES), key=lambda entry: entry.name)
    stems = [entry.stem for entry in texts]
    stem = next((stem for stem in ("train", "training", *stems) if stems.count(stem) == 2), None)
    if stem is None:
        return None
    first, second = (entry for entry in texts if entry.stem == stem)
    source, target = (second, first) if second.suffix == ".en" else (first, second)
    return {"path": str(source), "target_path": str(target)}


def _guess_file(file: Path) -> tuple[str, dict[str, Any]] | None:
    path = {"path": str(file)}
    lines = text_lines(file)
    first, second = next(lines, "").rstrip("\r\n"), next(lines, "").rstrip("\r\n")
    if ".csv" not in file.suffixes:
        return ("text-pairs", path) if "\t" in first else None
    heading, row = next(csv.reader([first]), []), next(csv.reader([second]), [])
    user, item, rating = (_named(heading, names) for names in (_USERS, _ITEMS, _RATINGS))
    if user and item and rating:
        return "ratings-csv", path | {"user_column": user, "item_column": item, "rating_column": rating}
    text, label = _named(heading, _TEXTS), _named(heading, _LABELS)
    if text and label:
        return "text-csv", path | {"text_column": text, "label_column": label}
    names = [row[0] + ending for ending in ("", *sorted(IMAGE_ENDINGS))] if row and row[0] else []
    for folder in ("images", "."):
        if any((file.parent / folder / name).is_file() for name in names):
            return "image-csv", path | {"images": folder}
    return None


def _named(heading: Sequence[str], names: Sequence[str]) -> str:
    """Return the first column with one of these names, or an empty string."""
    return next((column for name in names for column in heading if column.strip().lower() == name), "")
