"""Datasets of TensorFlow Datasets, by their names: ``tfds:rock_paper_scissors``."""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from pydantic import Field

from ...errors import DataError, did_you_mean, one_line
from ...machine.install import install_line
from ...storage.paths import user_path
from .kind import not_exportable
from .named_kind import Facts, Feature, NamedKind, NamedOptions, check_space

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from ...code import Imports
    from ...config.run_config import RunConfig
    from ..data_code import DataCode

_NAME = re.compile(
    r"\w+(/[\w.+-]+)?(:[\d.]+)?", re.ASCII
)  # no path and no address: neither is a dataset of the package
_BATCH = 1024


class TfdsOptions(NamedOptions):
    """Options of `tfds`: a dataset of TensorFlow Datasets."""

    name: Annotated[str, Field(min_length=1), "The dataset, such as `rock_paper_scissors`."]
    data_dir: Annotated[
        str, "Folder of prepared datasets, which may be remote; by default `~/tensorflow_datasets`."
    ] = ""


def reaches(host: str) -> bool:
    """Return whether the address of a host is known; a proxy may know it."""
    with suppress(OSError):
        return bool(getproxies() or socket.getaddrinfo(host, 443))
    return False


class Tfds(NamedKind[TfdsOptions]):
    """A dataset of TensorFlow Datasets, downloaded and prepared by that package, and read from its shards.

    Without a validation split, the last examples of the training split are held out: the package shuffles the examples
    when it prepares them. `can_reach` says whether there is a way to a host, because the package tries for minutes.
    """

    name = "tfds"
    title = "a dataset of TensorFlow Datasets"
    Options = TfdsOptions

    def __init__(self, can_reach: Callable[[str], bool] = reaches) -> None:
        self._can_reach = can_reach

    def ask(self, options: TfdsOptions) -> Facts:
        """Return what the package knows about a dataset, prepared or not; nothing is downloaded."""
        return _facts(_builder(options))

    def prepare(self, options: TfdsOptions, on_fetch: Callable[[str], None]) -> Facts:
        """Download and prepare a dataset, unless it is here.

        Raises:
            DataError: It cannot be downloaded.
        """
        builder = _builder(options)
        if builder.is_prepared():
            return _facts(builder)
        saved = _manual_folder(builder)
        for url, info in dict(builder.url_infos or {}).items():
            if (saved / str(info.filename)).is_file():
                continue
            host = str(urlsplit(url).hostname)
            if not self._can_reach(host):
                raise _unreachable(builder, host)
        needed = _download_bytes(builder) + int(builder.info.dataset_size or 0)
        check_space(Path(str(builder.data_dir)), needed, builder.name)
        on_fetch(f"downloading {_download(builder)}")
        try:
            builder.download_and_prepare()
        except AssertionError as error:  # a dataset whose files have to be fetched by hand
            what = f"The files of {builder.name} have to be downloaded by hand."
            raise DataError(what, remedy=" ".join(str(error).split())) from error
        except Exception as error:  # the builders raise what the archives, the servers and their own code raise
            raise DataError(
                f"{builder.name} could not be downloaded and prepared.",
                why=f"{type(error).__name__}: {one_line(error, 300)}",
                remedy=_by_hand(builder),
            ) from error
        return _facts(_builder(options))

    def part(self, options: TfdsOptions, split: str, start: int, stop: int) -> _Slice:
        """Return some examples of a split."""
        return _Slice(_builder(options), split, start, stop)

    def code(self, config: RunConfig, held_out: int, record: dict[str, Any], imports: Imports) -> DataCode:
        """Return code that reads images with the package."""
        from ...code import assigned, call, literal, write
        from ..data_code import DataCode
        from .named_kind import splits_of

        options = self.options(config)
        facts = self.ask(options)
        use = self.use(options, facts)
        if use.task != "images" or options.resize != "stretch":
            raise not_exportable(f"dataset=tfds with {use.task if use.task != 'images' else 'data.options.resize'}")
        imports.add("tensorflow_datasets as tfds")
        split, other = splits_of(options, facts)
        train = f"{split}[:{config.data.train_limit}]" if config.data.train_limit else split
        parts = [train, other]
        if not other:
            parts = [f"{split}[:{config.data.train_limit or f'-{held_out}'}]", f"{split}[-{held_out}:]"]
        given = {"split": literal(parts)} | ({"data_dir": literal(options.data_dir)} if options.data_dir else {})
        channels = facts.features[use.inputs[0]].shape[2:]
        gray = ["    image = tf.image.grayscale_to_rgb(image)"] if channels == (1,) else []
        lines = [
            assigned("CLASSES", record["classes"]),
            "",
            "",
            "def read_example(example):",
            '    """Return an image as 8-bit RGB, and its class."""',
            f"    image = example[{literal(use.inputs[0])}]",
            *gray,
            f"    image = tf.image.resize(image, {options.image_size})",
            f"    return tf.cast(tf.round(image), tf.uint8), example[{literal(use.label)}]",
            "",
            "",
            write(call("tfds.load", literal(options.full_name), **given), 0, "train, validation = "),
            "train = train.map(read_example, num_parallel_calls=tf.data.AUTOTUNE).cache()",
            "validation = validation.map(read_example, num_parallel_calls=tf.data.AUTOTUNE).cache()",
        ]
        return DataCode(lines, top=255.0)


@dataclass(frozen=True, slots=True)
class _Slice:
    """Some examples of a split, in the order of the shards."""

    builder: Any
    split: str
    start: int
    stop: int

    @property
    def count(self) -> int:
        return self.stop - self.start

    def images(self, image: str, label: str) -> Any:
        """Return encoded images, which are decoded in the size that is needed, and class numbers."""
        return self._read((image, label), image).map(lambda example: (example[image], example[label]))

    def table(self, names: Sequence[str]) -> pd.DataFrame:
        """Return features as columns of text."""
        import pandas as pd

        features = self.builder.info.features
        columns: dict[str, list[str]] = {name: [] for name in names}
        for batch in self._read(names).batch(_BATCH).as_numpy_iterator():
            for name in names:
                columns[name] += [_cell(value, features[name]) for value in batch[name]]
        return pd.DataFrame(columns).replace({"": None, "nan": None})

    def _read(self, wanted: Sequence[str], undecoded: str = "") -> Any:
        import tensorflow_datasets as tfds

        decoders: Any = tfds.decode.PartialDecoding(
            dict.fromkeys(wanted, True), {undecoded: tfds.decode.SkipDecoding()} if undecoded else None
        )
        return self.builder.as_dataset(
            split=f"{self.split}[{self.start}:{self.stop}]", decoders=decoders, shuffle_files=False
        )


def _cell(value: Any, feature: Any) -> str:
    """Return a value as text: that of a class as its name, and a missing one as nothing."""
    if hasattr(feature, "names"):
        return feature.names[int(value)] if value >= 0 else ""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _builder(options: TfdsOptions) -> Any:
    """Return what the package has for a name; raise `DataError` if that is nothing."""
    if find_spec("tensorflow_datasets") is None:
        remedy = f"Install it: {install_line('tensorflow-datasets', 'importlib_resources')}"
        raise DataError(f"tfds:{options.full_name} needs the package tensorflow-datasets.", remedy=remedy)
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
    return Facts(
        features={name: _feature(feature) for name, feature in info.features.items()} if is_flat else {},
        splits={name: split.num_examples for name, split in info.splits.items()},
        inputs=inputs,
        label=label,
        about={name: text for name, text in about.items() if text},
        download="" if builder.is_prepared() else f"This has to be downloaded first: {_download(builder)}.",
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
    urls = dict(builder.url_infos or {}) if len(builder.builder_configs) < 2 else {}
    size = f", {total / 1e6:,.0f} MB" if (total := _download_bytes(builder)) else ""
    hosts = sorted({str(urlsplit(url).hostname) for url in urls})
    from_hosts = f" from {', '.join(hosts)}" if hosts else ""
    return f"{builder.name}{size}{from_hosts}, to {user_path(Path(str(builder.data_dir)))}"


def _download_bytes(builder: Any) -> int:
    """Return what the package says about the size of the download; 0 if nothing, or only of all configurations."""
    urls = dict(builder.url_infos or {}) if len(builder.builder_configs) < 2 else {}
    return sum(int(url.size) for url in urls.values())


def _manual_folder(builder: Any) -> Path:
    """Return where the package looks for files before it downloads them."""
    return Path(str(builder.data_dir)).parents[len(Path(builder.info.full_name).parts) - 1] / "downloads" / "manual"


def _by_hand(builder: Any) -> str:
    """Say where to put files that somebody else downloaded."""
    folder = user_path(_manual_folder(builder))
    urls = dict(builder.url_infos or {}) if len(builder.builder_configs) < 2 else {}
    named = "; ".join(f"{url} as {info.filename}" for url, info in urls.items())
    manual = f"Save {named} in {folder}, or copy" if named else "Copy"
    return f"{manual} a folder that was prepared elsewhere to {user_path(Path(str(builder.data_dir)))}."


def _unreachable(builder: Any, host: str) -> DataError:
    return DataError(
        f"{builder.name} is not on this machine, and {host} cannot be reached.",
        remedy=f"Check the connection (on Kaggle: turn on the notebook's internet). {_by_hand(builder)}",
    )
