"""Datasets of TensorFlow Datasets, by their names: ``tfds:rock_paper_scissors``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from msgspec.structs import replace
from pydantic import Field

from ...errors import DataError, did_you_mean, one_line
from ...machine.install import check_installed
from ...storage.files import size_text
from ...storage.keyed_store import KeyedStore
from ..places import ON_THIS_MACHINE, Download, is_remote, shown
from .named_kind import Feature, NamedFacts, NamedKind, NamedOptions, Slice, Use, described

if TYPE_CHECKING:
    import pandas as pd

    from ..code import DataCode

# No path and no address: neither is a dataset of the package.
_NAME = re.compile(r"\w+(/[\w.+-]+)?(:[\d.]+)?", re.ASCII)
_BATCH = 1024
_NAMES = KeyedStore[dict[str, str]]("names.json", dict[str, str])  # of each version of the package


class TfdsOptions(NamedOptions):
    """Options of `tfds`: a dataset of TensorFlow Datasets."""

    name: Annotated[str, Field(min_length=1), "The dataset, such as `rock_paper_scissors`."]
    data_dir: Annotated[
        str, "Folder of prepared datasets, which may be remote; by default `~/tensorflow_datasets`."
    ] = ""


class Tfds(NamedKind[TfdsOptions]):
    """A dataset of TensorFlow Datasets, downloaded and prepared by that package, and read from its shards.

    Without a validation split, the last examples of the training split are held out: the package shuffles the examples
    when it prepares them.
    """

    name = "tfds"
    title = "a dataset of TensorFlow Datasets"
    Options = TfdsOptions
    left_over = ("downloads/*.tmp.*", "downloads/*/*.tmp.*", "*/incomplete.*_*", "*/*/incomplete.*_*")

    def listed(self) -> dict[str, str]:
        """Ask the package once for its names and sizes, in a process of its own, which takes seconds."""
        if find_spec("tensorflow_datasets") is None:
            return {}
        from .asking import ask

        key = version("tensorflow-datasets")
        if (names := _NAMES.get(key)) is None:
            names = {name: str(words) for name, words in ask(self.name, {}).items()}
            _NAMES.put(key, names)
        folder = Path(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()
        for name in sorted({place.parts[len(folder.parts)] for place in folder.glob("*/**/dataset_info.json")}):
            names[name] = f"{ON_THIS_MACHINE}, {names.get(name, '').replace(' to download', '')}".strip(", ")
        return names

    def list_names(self) -> dict[str, str]:
        """Return the package's names, and what it says about each; imports TensorFlow and asks no server."""
        import tensorflow_datasets as tfds

        names = {}
        for name in tfds.list_builders(with_community_datasets=False):
            names[name] = ""
            with suppress(Exception):  # some are read from a bucket, and some need packages that are not here
                builder = tfds.builder(name)
                facts = self.facts_of(builder, self.Options(name=name))
                names[name] = replace(facts, download=_download(builder)).in_words()
        return names

    def builder(self, options: TfdsOptions) -> Any:
        name, folder = options.full_name, options.data_dir
        check_installed(f"tfds:{name}", "tensorflow_datasets", "tensorflow-datasets", "importlib_resources")
        import tensorflow_datasets as tfds

        if not _NAME.fullmatch(name):
            raise DataError(f"'{name}' is not a dataset name.", remedy="Write it as in tfds:mnist.")
        if folder and not is_remote(folder):
            folder = str(Path(folder).expanduser().absolute())
        in_folder = f" in {folder}" if folder else ""
        try:
            return tfds.builder(name, data_dir=folder or None)
        except tfds.core.DatasetNotFoundError as error:
            what = f"TensorFlow Datasets has no dataset '{name}'"
            remedy = "Set data.options.data_dir if it was prepared in another folder."
            raise DataError(f"{what}; {did_you_mean(options.name, tfds.list_builders())}", remedy=remedy) from error
        except Exception as error:  # builders run code of their own, which may need packages that are not here
            raise DataError(f"tfds:{name} cannot be read{in_folder}.", why=one_line(error, 300)) from error

    def facts_of(self, builder: Any, options: TfdsOptions) -> NamedFacts:
        info = builder.info
        inputs, label = (info.supervised_keys or ((), ""))[:2]
        features = dict(info.features.items()) if hasattr(info.features, "items") else {}
        licence = info.redistribution_info.license if info.redistribution_info else ""
        size = size_text(info.dataset_size) if info.dataset_size else ""
        place = shown(str(builder.data_path))
        return NamedFacts(
            features={name: _feature(feature) for name, feature in features.items()},
            splits={name: split.num_examples for name, split in info.splits.items()},
            inputs=(inputs,) if isinstance(inputs, str) else tuple(inputs),
            label=label if isinstance(label, str) else "",
            about=described(info, version=str(info.version), licence=licence, size=size, folder=place),
            download=None if builder.is_prepared() else _download(builder),
        )

    def arriving(self, builder: Any, options: TfdsOptions) -> Path:
        return Path(str(_manual_folder(builder).parent))

    def download(self, builder: Any) -> None:
        """Download and prepare a dataset; raise `DataError` if its files have to be downloaded by hand."""
        try:
            builder.download_and_prepare()
        except AssertionError as error:
            what = f"The files of {builder.name} have to be downloaded by hand."
            raise DataError(what, remedy=" ".join(str(error).split())) from error

    def images(self, options: TfdsOptions, part: Slice, use: Use) -> Any:
        (image,), label = use.inputs, use.label
        return _read(self.builder(options), part, (image, label), image).map(lambda one: (one[image], one[label]))

    def table(self, options: TfdsOptions, part: Slice, names: Sequence[str]) -> pd.DataFrame:
        import pandas as pd

        def cell(value: Any, feature: Any) -> str:
            if hasattr(feature, "names"):
                return feature.names[int(value)] if value >= 0 else ""
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

        builder, columns = self.builder(options), {name: list[str]() for name in names}
        for batch in _read(builder, part, names).batch(_BATCH).as_numpy_iterator():
            for name in names:
                columns[name] += [cell(value, builder.info.features[name]) for value in batch[name]]
        return pd.DataFrame(columns).replace({"": None, "nan": None})

    def write_parts(self, code: DataCode, options: TfdsOptions, parts: tuple[Slice, Slice]) -> None:
        code.needs("tensorflow_datasets as tfds")
        given = {"split": code.literal([*map(_in_words, parts)])}
        given |= {"data_dir": code.literal(options.data_dir)} if options.data_dir else {}
        code.call("parts", "tfds.load", code.literal(options.full_name), **given)
        code.add("parts = [tfds.as_numpy(part) for part in parts]")


def _read(builder: Any, part: Slice, wanted: Sequence[str], undecoded: str = "") -> Any:
    """Return some examples of a split, in the order of the shards."""
    import tensorflow_datasets as tfds

    skipped = {undecoded: tfds.decode.SkipDecoding()} if undecoded else None
    decoders: Any = tfds.decode.PartialDecoding(dict.fromkeys(wanted, True), skipped)
    return builder.as_dataset(split=_in_words(part), decoders=decoders, shuffle_files=False)


def _in_words(part: Slice) -> str:
    return f"{part.split}[{part.rows.start}:{part.rows.stop}]"


def _feature(feature: Any) -> Feature:
    import numpy as np
    import tensorflow_datasets as tfds

    if isinstance(feature, tfds.features.Image):
        return Feature("image", tuple(feature.shape))
    if isinstance(feature, tfds.features.ClassLabel):
        return Feature("class", (), tuple(feature.names or map(str, range(feature.num_classes))))
    if not isinstance(feature, tfds.features.Tensor | tfds.features.Scalar) or feature.shape:
        return Feature("other")
    dtype = np.dtype(feature.np_dtype)
    return Feature("text" if dtype.kind in "OSU" else "integer" if dtype.kind in "iub" else "number")


def _download(builder: Any) -> Download:
    """Return what has to be downloaded; its size is unknown if the package lists files of all configurations."""
    listed, saved = dict(builder.url_infos or {}), _manual_folder(builder)
    urls, place = listed if len(builder.builder_configs) < 2 else {}, shown(str(builder.data_path))
    named = "; ".join(f"{url} as {info.filename}" for url, info in urls.items())
    manual = f"save {named} in {shown(str(saved))}, or " if named else ""
    missing = [url for url, info in listed.items() if not (saved / str(info.filename)).exists()]
    size = sum(int(info.size) for info in urls.values())
    return Download(
        builder.name,
        folder=str(builder.data_path),
        by_hand=f"{manual}copy a folder that was prepared elsewhere to {place}",
        otherwise="set data.options.data_dir to a folder on another one",
        hosts=tuple(sorted({str(urlsplit(url).hostname) for url in missing})),
        size=size,
        needed=size + int(builder.info.dataset_size or 0),
    )


def _manual_folder(builder: Any) -> Any:
    """Return where the package looks for files before it downloads them."""
    return builder.data_path.parents[len(Path(builder.info.full_name).parts) - 1] / "downloads" / "manual"
