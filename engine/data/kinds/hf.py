"""Datasets of the Hugging Face Hub, by their names: ``hf:fancyzhx/ag_news``."""

from __future__ import annotations

import io
import os
import re
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from ...errors import DataError, one_line
from ...machine.install import check_installed
from ...storage.disk_space import check_space
from ...storage.paths import user_path
from ..places import ON_THIS_MACHINE, check_reachable, downloaded
from .named_kind import TO_ANOTHER_DISK, Facts, Feature, NamedKind, NamedOptions, Slice, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    from ...code import Imports

_NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*", re.ASCII)  # no path and no address: the package would read either
_SEED = 0  # of the order in which examples are read: those on the hub are often sorted by class
_BATCH = 256  # images that are handed to TensorFlow at once
_SAMPLED = 2000  # rows that are enough to tell classes from numbers and texts
_MOST_NUMBERS, _MOST_CLASSES = 20, 1000  # different whole numbers, and different texts, that are taken for classes
_READ = (b"\xff\xd8", b"\x89PNG", b"GIF8", b"BM")  # the first bytes of images that TensorFlow reads
_ORIENTATION = 0x0112  # in EXIF
_NO_CLASS = -1  # where the label of an example is kept secret


class HfOptions(NamedOptions):
    """Options of `hf`: a dataset of the Hugging Face Hub."""

    name: Annotated[str, Field(min_length=1), "The dataset, such as `fancyzhx/ag_news`."]
    data_dir: Annotated[
        str, "Folder with the files of the dataset, if you downloaded them yourself; by default the hub is asked."
    ] = ""


class Hf(NamedKind[HfOptions]):
    """A dataset of the hub, downloaded and cached by the package `datasets`, and read from its Arrow files.

    The package's own settings choose the hub, the token and the cache: ``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_HOME``.
    Without a validation split, a part of the training split is held out, which is the same for every run.
    """

    name = "hf"
    title = "a dataset of the Hugging Face Hub"
    Options = HfOptions
    image_code = 'np.array(example[{name}].convert("RGB"))'

    def named(self, name: str) -> dict[str, Any]:
        """Return the options for USER/NAME or USER/NAME/CONFIG."""
        user, _, rest = name.partition("/")
        short, _, config = rest.partition("/")
        return {"name": f"{user}/{short}" if short else name} | ({"config": config} if config else {})

    def listed(self) -> dict[str, str]:
        """Return the names in the package's cache."""
        home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
        cache = Path(os.environ.get("HF_DATASETS_CACHE") or f"{home}/datasets").expanduser()
        return {place.name.replace("___", "/", 1): ON_THIS_MACHINE for place in sorted(cache.glob("*___*"))}

    def ask(self, options: HfOptions) -> Facts:
        """Return what the hub says about a dataset, or the files that are here; nothing else is downloaded.

        The first rows are read if the hub does not say what the features are, or if a column of numbers may be a class.
        """
        builder = self._builder(options)
        if options.data_dir:
            _prepare(builder, options)
        return _facts(builder, options)

    def prepare(self, options: HfOptions, on_fetch: Callable[[str], None]) -> Facts:
        """Download a dataset, unless it is here.

        Raises:
            DataError: It cannot be downloaded.
        """
        builder = self._builder(options)
        if not _is_here(builder):
            needed = (builder.info.download_size or 0) + (builder.info.dataset_size or 0)
            check_space(Path(builder.cache_dir), needed, options.full_name, TO_ANOTHER_DISK)
            from huggingface_hub.constants import HF_HUB_CACHE

            arriving = Path(HF_HUB_CACHE, f"datasets--{options.name.replace('/', '--')}")
            what, size = f"downloading {_download(builder, options)}", int(builder.info.download_size or 0)
            downloaded(partial(_prepare, builder, options), what, size, arriving, on_fetch)
        return _facts(builder, options)

    def images(self, options: HfOptions, part: Slice, use: Use) -> Any:
        """Return encoded images, which are decoded in the size that is needed, and class numbers."""
        import datasets
        import numpy as np
        import tensorflow as tf

        splits = self._builder(options).as_dataset()
        rows, (image,), label = _ordered(splits, part), use.inputs, use.label
        names = _names(rows.features[label]) or _values([*splits.values()], label)
        if not names:
            what = f"'{label}' of {options.full_name} is no class: it has too many different values."
            raise DataError(what, remedy="Set data.options.label.")
        numbers = {name: number for number, name in enumerate(names)}
        labels = np.array([numbers.get(cell, _NO_CLASS) for cell in _cells(rows, label)], np.int32)
        if missing := int((labels == _NO_CLASS).sum()):
            what = f"{options.full_name} has {missing:,} examples without a label in its split '{part.split}'."
            raise DataError(what, remedy="Set data.options.split and data.options.validation_split.")
        files = rows.select_columns([image]).cast_column(image, datasets.Image(decode=False))

        def batches() -> Iterator[list[bytes]]:
            for batch in files.iter(_BATCH):
                yield [_readable(entry) for entry in batch[image]]

        encoded = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec((None,), tf.string)).unbatch()
        pairs = tf.data.Dataset.zip(encoded, tf.data.Dataset.from_tensor_slices(labels))
        return pairs.apply(tf.data.experimental.assert_cardinality(len(labels)))

    def table(self, options: HfOptions, part: Slice, names: Sequence[str]) -> pd.DataFrame:
        """Return features as columns of text."""
        import pandas as pd

        rows = _ordered(self._builder(options).as_dataset(), part)
        return pd.DataFrame({name: _cells(rows, name) for name in names}).replace({"": None})

    def part_lines(self, options: HfOptions, parts: tuple[Slice, Slice], imports: Imports) -> list[str]:
        """Return code that makes `parts`, two lists of examples."""
        from ...code import call, literal, write

        imports.add("load_dataset", "datasets")
        config = [literal(options.config)] if options.config and not options.data_dir else []
        chosen = (f"    data[{literal(split)}].shuffle(seed={_SEED}).select(range({start}, {stop})),"
                  for split, start, stop in parts)  # fmt: skip
        return [
            write(call("load_dataset", literal(options.data_dir or options.name), *config), 0, "data = "),
            "parts = [",
            *chosen,
            "]",
        ]

    def _builder(self, options: HfOptions) -> Any:
        """Return what the package has for a name; raise `DataError` if that is nothing."""
        name = options.full_name
        check_installed(f"hf:{name}", "datasets")
        if not _NAME.fullmatch(options.name):
            raise DataError(f"'{options.name}' is no name of a dataset.", remedy="Write it as in hf:fancyzhx/ag_news.")
        host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname or ""
        is_offline = not options.data_dir and not self.can_reach(host)
        before = os.environ.get("HF_HUB_OFFLINE", "")  # is read by the import: what is cached is found at once
        os.environ["HF_HUB_OFFLINE"] = "1" if is_offline else before
        import datasets

        os.environ["HF_HUB_OFFLINE"] = before
        if is_offline and not (Path(datasets.config.HF_DATASETS_CACHE) / options.name.replace("/", "___")).is_dir():
            check_reachable(options.name, [host], _by_hand(options), self.can_reach)
        source, config = options.name, options.config or None
        if options.data_dir:
            folder = Path(options.data_dir).expanduser().absolute()
            if not folder.is_dir():
                raise DataError(f"{user_path(folder)} is no folder.", remedy="Set data.options.data_dir.")
            source = str(folder)
        elif Path(source).is_dir():
            source = f"hf://datasets/{source}"  # else the package would read that folder
        try:
            return datasets.load_dataset_builder(source, name=config)
        except Exception as error:  # the package raises what the hub, the files and its own code raise
            raise DataError(f"hf:{name} cannot be read.", why=one_line(error, 300)) from error


def _ordered(splits: Any, part: Slice) -> Any:
    """Return some examples of a split, in an order that is random and always the same."""
    return splits[part.split].shuffle(seed=_SEED).select(range(part.start, part.stop))


def _cells(rows: Any, name: str) -> list[str]:
    """Return a column as text: classes by name, and nothing where a value is missing."""
    classes = _names(rows.features[name])
    values = rows.select_columns([name]).with_format("arrow")[:].column(name).to_pylist()
    if classes:
        return [classes[value] if value is not None and value != _NO_CLASS else "" for value in values]
    return ["" if value is None or value != value else str(value) for value in values]  # NaN


def _names(feature: Any) -> tuple[str, ...]:
    return tuple(getattr(feature, "names", None) or ())


def _values(parts: Sequence[Any], name: str) -> tuple[str, ...]:
    """Return the different values of a column as text, in order; nothing if they are too many for classes."""
    found: set[Any] = set()
    for part in parts:
        first = part.select_columns([name])[:_SAMPLED][name]
        if not _are_few({*first}, len(first)):
            return ()
        found |= {*part.unique(name)}
    count = sum(map(len, parts))
    return tuple(map(str, sorted(found - {None}))) if _are_few(found - {None}, count) else ()


def _are_few(values: set[Any], count: int) -> bool:
    most = _MOST_CLASSES if any(isinstance(value, str) for value in values) else _MOST_NUMBERS
    return len(values) <= min(most, count // 2)


def _readable(entry: Mapping[str, Any]) -> bytes:
    """Return an image that TensorFlow reads: upright, and as a PNG if it is of another format."""
    content: bytes = entry["bytes"] if entry["bytes"] is not None else Path(entry["path"]).read_bytes()
    if content.startswith(_READ) and b"exif" not in content[:4096].lower():
        return content
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content)) as picture:
        if content.startswith(_READ) and picture.getexif().get(_ORIENTATION, 1) == 1:
            return content
        buffer = io.BytesIO()
        ImageOps.exif_transpose(picture).convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


def _is_here(builder: Any) -> bool:
    return Path(builder.cache_dir).is_dir()


def _prepare(builder: Any, options: HfOptions) -> None:
    try:
        builder.download_and_prepare()
    except Exception as error:  # likewise
        raise DataError(
            f"hf:{options.full_name} could not be downloaded.",
            why=f"{type(error).__name__}: {one_line(error, 300)}",
            remedy=f"Try again, or {_by_hand(options)}.",
        ) from error


def _by_hand(options: HfOptions) -> str:
    import datasets

    page = f"{datasets.config.HF_ENDPOINT}/datasets/{options.name}"
    return f"save the files of {page} in a folder, and name it with data.options.data_dir"


def _facts(builder: Any, options: HfOptions) -> Facts:
    import datasets

    is_here = _is_here(builder)
    parts: dict[str, Any] = dict(builder.as_dataset()) if is_here else {}
    known = next(iter(parts.values())).features if parts else builder.info.features
    features = {name: _feature(feature) for name, feature in (known or {}).items()}
    if is_here:
        parts = {name: part for name, part in parts.items() if not _is_secret(part)}
        for name, feature in features.items():
            if feature.kind in {"text", "integer"}:
                names = _values([*parts.values()], name)
                features[name] = replace(feature, names=names, is_few=bool(names))
    elif not features or any(feature.kind == "integer" for feature in features.values()):
        features = _first_rows(builder, options)
    info = builder.info
    sizes = {name: split.num_examples for name, split in (info.splits or {}).items()}
    about = {
        "about": " ".join(str(info.description or "").split())[:300],
        "home page": str(info.homepage or ""),
        "licence": str(info.license or ""),
        "folder": user_path(Path(builder.cache_dir)),
    }
    return Facts(
        features=features,
        splits={name: len(part) for name, part in parts.items()} or (sizes if all(sizes.values()) else {}),
        about={name: text for name, text in about.items() if text},
        download="" if is_here else f"This has to be downloaded first: {_download(builder, options)}.",
        hosts=(str(urlsplit(datasets.config.HF_ENDPOINT).hostname),),
        by_hand=_by_hand(options),
    )


def _is_secret(part: Any) -> bool:
    """Return whether a split has no labels, as those of competitions."""
    labels = [name for name, feature in part.features.items() if _names(feature)]
    rows = part.select_columns(labels)[:_SAMPLED]
    return bool(labels) and all({*rows[name]} == {_NO_CLASS} for name in labels)


def _first_rows(builder: Any, options: HfOptions) -> dict[str, Feature]:
    """Return the features by the first rows on the hub; numbers of few values may be classes."""
    import datasets

    try:
        stream = next(iter(builder.as_streaming_dataset().values()))
        found = stream.features or datasets.Dataset.from_list([*stream.take(_SAMPLED)]).features
        features = {name: _feature(feature) for name, feature in found.items()}
        numbers = [name for name, feature in features.items() if feature.kind == "integer"]
        rows = [*islice(stream.select_columns(numbers), _SAMPLED)] if numbers else []
    except Exception as error:  # likewise
        raise DataError(f"The examples of hf:{options.full_name} cannot be read.", why=one_line(error, 300)) from error
    for name in numbers:
        features[name] = replace(features[name], is_few=_are_few({row[name] for row in rows}, len(rows)))
    return features


def _feature(feature: Any) -> Feature:
    import datasets

    if isinstance(feature, datasets.Image):
        return Feature("image")
    if isinstance(feature, datasets.ClassLabel):
        return Feature("class", (), _names(feature))
    if not isinstance(feature, datasets.Value):
        return Feature("other")
    if "string" in feature.dtype:
        return Feature("text")
    if feature.dtype.startswith(("int", "uint", "bool")):
        return Feature("integer")
    return Feature("number" if feature.dtype.startswith(("float", "decimal")) else "other")


def _download(builder: Any, options: HfOptions) -> str:
    import datasets

    size = f", {builder.info.download_size / 1e6:,.0f} MB" if builder.info.download_size else ""
    host = urlsplit(datasets.config.HF_ENDPOINT).hostname
    return f"{options.full_name}{size} from {host}, to {user_path(Path(datasets.config.HF_DATASETS_CACHE))}"
