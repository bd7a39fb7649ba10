"""Datasets of TensorFlow Datasets, by their names: ``tfds:rock_paper_scissors``."""

from __future__ import annotations

import os
import re
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field

from ...errors import DataError, did_you_mean, one_line
from ...machine.install import check_installed
from ...storage.disk_space import check_space, size_text
from ...storage.keyed_store import KeyedStore
from ...storage.paths import user_path
from ..places import ON_THIS_MACHINE, check_reachable, downloaded
from .named_kind import TO_ANOTHER_DISK, Facts, Feature, NamedKind, NamedOptions, Slice, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from ...code import Imports

_NAME = re.compile(
    r"\w+(/[\w.+-]+)?(:[\d.]+)?", re.ASCII
)  # no path and no address: neither is a dataset of the package
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
        here = {place.parts[len(folder.parts)] for place in folder.glob("*/**/dataset_info.json")}
        return names | {name: f"{names.get(name, '')}, {ON_THIS_MACHINE}".removeprefix(", ") for name in sorted(here)}

    def list_names(self) -> dict[str, str]:
        """Return the package's names, and the size of each download; imports TensorFlow."""
        import tensorflow_datasets as tfds

        builders = ((name, tfds.builder_cls(name)) for name in tfds.list_builders(with_community_datasets=False))
        sizes = {name: sum(int(info.size) for info in (builder.url_infos or {}).values()) for name, builder in builders}
        return {name: f"{size_text(size)} to download" if size else "" for name, size in sizes.items()}

    def ask(self, options: TfdsOptions) -> Facts:
        """Return what the package knows about a dataset, prepared or not; nothing is downloaded."""
        return _facts(_builder(options))

    def prepare(self, options: TfdsOptions, on_fetch: Callable[[str], None]) -> Facts:
        """Download and prepare a dataset, unless it is here.

        Raises:
            DataError: It cannot be downloaded.
        """
        builder = _builder(options)
        facts = _facts(builder)
        if not facts.download:
            return facts
        check_reachable(builder.name, facts.hosts, facts.by_hand, self.can_reach)
        total, place = _download_bytes(builder), Path(str(builder.data_dir))
        check_space(place, total + int(builder.info.dataset_size or 0), builder.name, TO_ANOTHER_DISK)
        what, arriving = f"downloading {_download(builder)}", _manual_folder(builder).parent
        try:
            downloaded(builder.download_and_prepare, what, total, arriving, on_fetch)
        except AssertionError as error:  # a dataset whose files have to be fetched by hand
            what = f"The files of {builder.name} have to be downloaded by hand."
            raise DataError(what, remedy=" ".join(str(error).split())) from error
        except Exception as error:  # the builders raise what the archives, the servers and their own code raise
            raise DataError(
                f"{builder.name} could not be downloaded and prepared.",
                why=f"{type(error).__name__}: {one_line(error, 300)}",
                remedy=f"Try again, or {facts.by_hand}.",
            ) from error
        return _facts(_builder(options))

    def images(self, options: TfdsOptions, part: Slice, use: Use) -> Any:
        """Return encoded images, which are decoded in the size that is needed, and class numbers."""
        (image,), label = use.inputs, use.label
        return _read(_builder(options), part, (image, label), image).map(lambda one: (one[image], one[label]))

    def table(self, options: TfdsOptions, part: Slice, names: Sequence[str]) -> pd.DataFrame:
        """Return features as columns of text."""
        import pandas as pd

        builder = _builder(options)
        columns: dict[str, list[str]] = {name: [] for name in names}
        for batch in _read(builder, part, names).batch(_BATCH).as_numpy_iterator():
            for name in names:
                columns[name] += [_cell(value, builder.info.features[name]) for value in batch[name]]
        return pd.DataFrame(columns).replace({"": None, "nan": None})

    def part_lines(self, options: TfdsOptions, parts: tuple[Slice, Slice], imports: Imports) -> list[str]:
        """Return code that makes `parts`, two lists of examples."""
        from ...code import call, literal, write

        imports.add("tensorflow_datasets as tfds")
        given = {"split": literal([f"{split}[{start}:{stop}]" for split, start, stop in parts])}
        folder = {"data_dir": literal(options.data_dir)} if options.data_dir else {}
        loaded = write(call("tfds.load", literal(options.full_name), **given, **folder), 0, "parts = ")
        return [loaded, "parts = [tfds.as_numpy(part) for part in parts]"]


def _read(builder: Any, part: Slice, wanted: Sequence[str], undecoded: str = "") -> Any:
    """Return some examples of a split, in the order of the shards."""
    import tensorflow_datasets as tfds

    decoders: Any = tfds.decode.PartialDecoding(
        dict.fromkeys(wanted, True), {undecoded: tfds.decode.SkipDecoding()} if undecoded else None
    )
    split = f"{part.split}[{part.start}:{part.stop}]"
    return builder.as_dataset(split=split, decoders=decoders, shuffle_files=False)


def _cell(value: Any, feature: Any) -> str:
    """Return a value as text: that of a class as its name, and a missing one as nothing."""
    if hasattr(feature, "names"):
        return feature.names[int(value)] if value >= 0 else ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _builder(options: TfdsOptions) -> Any:
    """Return what the package has for a name; raise `DataError` if that is nothing."""
    check_installed(f"tfds:{options.full_name}", "tensorflow_datasets", "tensorflow-datasets", "importlib_resources")
    import tensorflow_datasets as tfds

    name = options.full_name
    if not _NAME.fullmatch(name):
        raise DataError(f"'{name}' is no name of a dataset.", remedy="Write it as in tfds:mnist.")
    folder = options.data_dir and (options.data_dir if "://" in options.data_dir else
                                   str(Path(options.data_dir).expanduser().absolute()))  # fmt: skip
    try:
        return tfds.builder(name, data_dir=folder or None)
    except tfds.core.DatasetNotFoundError as error:
        what = f"TensorFlow Datasets has no dataset '{name}'"
        remedy = "Set data.options.data_dir if it was prepared in another folder."
        raise DataError(f"{what}; {did_you_mean(options.name, tfds.list_builders())}", remedy=remedy) from error
    except Exception as error:  # builders run code of their own, which may need packages that are not here
        raise DataError(f"tfds:{name} cannot be read.", why=one_line(error, 300)) from error


def _facts(builder: Any) -> Facts:
    info = builder.info
    is_flat = hasattr(info.features, "items")
    keys = info.supervised_keys or ((), "")
    inputs = (keys[0],) if isinstance(keys[0], str) else tuple(keys[0])
    label = keys[1] if isinstance(keys[1], str) else ""
    licence = info.redistribution_info.license if info.redistribution_info else ""
    size = f"{int(info.dataset_size) / 1e6:,.0f} MB" if info.dataset_size else ""
    about = {
        "version": str(info.version),
        "about": " ".join(str(info.description).split())[:300],
        "home page": info.homepage,
        "licence": licence,
        "size": size,
        "folder": user_path(Path(str(builder.data_dir))),
    }
    saved = _manual_folder(builder)
    missing = [url for url, info in dict(builder.url_infos or {}).items() if not (saved / str(info.filename)).is_file()]
    return Facts(
        features={name: _feature(feature) for name, feature in info.features.items()} if is_flat else {},
        splits={name: split.num_examples for name, split in info.splits.items()},
        inputs=inputs,
        label=label,
        about={name: text for name, text in about.items() if text},
        download="" if builder.is_prepared() else f"This has to be downloaded first: {_download(builder)}.",
        hosts=tuple(sorted({str(urlsplit(url).hostname) for url in missing})),
        by_hand=_by_hand(builder),
    )


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


def _download(builder: Any) -> str:
    size = f", {total / 1e6:,.0f} MB" if (total := _download_bytes(builder)) else ""
    hosts = sorted({str(urlsplit(url).hostname) for url in _urls(builder)})
    from_hosts = f" from {', '.join(hosts)}" if hosts else ""
    return f"{builder.name}{size}{from_hosts}, to {user_path(Path(str(builder.data_dir)))}"


def _urls(builder: Any) -> dict[str, Any]:
    """Return what the package says about the files of the download; nothing if those are of all configurations."""
    return dict(builder.url_infos or {}) if len(builder.builder_configs) < 2 else {}


def _download_bytes(builder: Any) -> int:
    return sum(int(info.size) for info in _urls(builder).values())


def _manual_folder(builder: Any) -> Path:
    """Return where the package looks for files before it downloads them."""
    return Path(str(builder.data_dir)).parents[len(Path(builder.info.full_name).parts) - 1] / "downloads" / "manual"


def _by_hand(builder: Any) -> str:
    """Say where to put files that somebody else downloaded."""
    named = "; ".join(f"{url} as {info.filename}" for url, info in _urls(builder).items())
    manual = f"save {named} in {user_path(_manual_folder(builder))}, or " if named else ""
    return f"{manual}copy a folder that was prepared elsewhere to {user_path(Path(str(builder.data_dir)))}"
