"""Datasets of the Hugging Face Hub, by their names: ``hf:fancyzhx/ag_news``."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from msgspec.structs import replace
from pydantic import Field

from ...config.values import Switch
from ...errors import DataError, one_line
from ...machine.install import check_installed
from ...storage.files import free_bytes, size_text
from ...storage.paths import user_path
from ..places import ON_THIS_MACHINE, Download
from .named_kind import Feature, FeatureKind, NamedFacts, NamedKind, NamedOptions, Slice, Use, described

if TYPE_CHECKING:
    import pandas as pd

    from ...config.run_config import RunConfig
    from ..code import DataCode
    from ..places import OnFetch
    from .kind import Start
    from .skimming import Survey

_NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*", re.ASCII)  # no path and no address: the package would read either
_SEED = 0  # of the order in which examples are read: those on the hub are often sorted by class
_BATCH = 256  # examples that are read at once
_MIXED = 1000  # examples of a stream that are shuffled at once; encoded images of that many take 100 MB
_SAMPLED = 2000  # rows that are enough to tell classes from numbers and texts
_MOST_NUMBERS, _MOST_CLASSES = 20, 1000  # different whole numbers, and different texts, that are taken for classes
_READ = (b"\xff\xd8", b"\x89PNG", b"GIF8", b"BM")  # the first bytes of images that TensorFlow reads
_ORIENTATION = 0x0112  # in EXIF
_NO_CLASS = -1  # where the label of an example is kept secret
_KINDS: dict[str, FeatureKind] = {  # by the beginning of a type
    **dict.fromkeys(("string", "large_string"), "text"),
    **dict.fromkeys(("int", "uint", "bool"), "integer"),
    **dict.fromkeys(("float", "decimal"), "number"),
}
Streaming = Annotated[Switch, "Read the examples from the hub in each epoch, instead of downloading all of them first."]


class HfOptions(NamedOptions):
    """Options of `hf`: a dataset of the Hugging Face Hub."""

    name: Annotated[str, Field(min_length=1), "The dataset, such as `fancyzhx/ag_news`."]
    data_dir: Annotated[
        str, "Folder with the files of the dataset, if you downloaded them yourself; by default the hub is asked."
    ] = ""
    streaming: Streaming = False


class Hf(NamedKind[HfOptions]):
    """A dataset of the hub, downloaded and cached by the package `datasets`, and read from its Arrow files.

    The package's own settings choose the hub, the token and the cache: ``HF_ENDPOINT``, ``HF_TOKEN``, ``HF_HOME``.
    Without a validation split, a part of the training split is held out, which is the same for every run.
    """

    name = "hf"
    title = "a dataset of the Hugging Face Hub"
    Options = HfOptions
    left_over = ("datasets--*/blobs/*.incomplete",)
    image_code = 'np.array(example[{name}].convert("RGB"))'

    def named(self, name: str) -> dict[str, Any]:
        """Return the options for USER/NAME or USER/NAME/CONFIG."""
        user, _, rest = name.partition("/")
        short, _, config = rest.partition("/")
        return {"name": f"{user}/{short}" if short else name} | ({"config": config} if config else {})

    def listed(self) -> dict[str, str]:
        return {place.name.replace("___", "/", 1): ON_THIS_MACHINE for place in sorted(_cache().glob("*___*"))}

    def builder(self, options: HfOptions) -> Any:
        name = options.full_name
        check_installed(f"hf:{name}", "datasets")
        if not _NAME.fullmatch(options.name):
            raise DataError(f"'{options.name}' is not a dataset name.", remedy="Write it as in hf:fancyzhx/ag_news.")
        hub = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
        is_offline = not options.data_dir and not self.can_reach(hub.hostname or "")
        before = os.environ.get("HF_HUB_OFFLINE", "")  # is read by the import: what is cached is found at once
        os.environ["HF_HUB_OFFLINE"] = "1" if is_offline else before
        import datasets

        os.environ["HF_HUB_OFFLINE"] = before
        if is_offline and not Path(datasets.config.HF_DATASETS_CACHE, options.name.replace("/", "___")).is_dir():
            _download(options).check(self.can_reach)
        source, config = options.name, options.config or None
        if options.data_dir:
            folder = Path(options.data_dir).expanduser().absolute()
            if not folder.is_dir():
                raise DataError(f"{user_path(folder)} is no folder.", remedy="Set data.options.data_dir.")
            source = str(folder)
        elif Path(source).is_dir():
            source = f"hf://datasets/{source}"  # else the package would read that folder
        try:
            builder = datasets.load_dataset_builder(source, name=config)
            if options.data_dir and not options.streaming:
                builder.download_and_prepare()  # from these files
        except Exception as error:  # the package raises what the hub, the files and its own code raise
            raise DataError(f"hf:{name} cannot be read.", why=one_line(error, 300)) from error
        return builder

    def facts_of(self, builder: Any, options: HfOptions) -> NamedFacts:
        """Return what the hub says about a dataset, or the files that are here.

        The first rows are read if the hub does not say what the features are, or if a column of numbers may be a class.
        """
        info, is_here = builder.info, Path(builder.cache_dir).is_dir()
        about = described(info, licence=str(info.license or ""), folder=user_path(Path(builder.cache_dir)))
        parts: dict[str, Any] = dict(builder.as_dataset()) if is_here else {}
        known = next(iter(parts.values())).features if parts else info.features
        features = {name: _feature(feature) for name, feature in (known or {}).items()}
        if not is_here:
            if not features or any(feature.kind == "integer" for feature in features.values()):
                features = _first_rows(builder, options)
            sizes = {name: split.num_examples for name, split in (info.splits or {}).items()}
            download = _download(options, int(info.download_size or 0), int(info.dataset_size or 0))
            return NamedFacts(features, sizes if all(sizes.values()) else {}, about=about, download=download)
        if labels := [name for name, feature in features.items() if feature.kind == "class"]:
            for split, part in [*parts.items()]:  # those of competitions may lack the labels
                first = part.select_columns(labels)[:_SAMPLED]
                if all({*first[name]} == {_NO_CLASS} for name in labels):
                    del parts[split]
        for name, feature in features.items():
            if feature.kind in {"text", "integer"}:
                names = _values([*parts.values()], name)
                features[name] = replace(feature, names=names, is_few=bool(names))
        return NamedFacts(features, {name: len(part) for name, part in parts.items()}, about=about)

    def facts(self, options: HfOptions) -> NamedFacts | None:
        """Return what is known without asking; a stream is not downloaded."""
        facts = super().facts(options)
        if facts is None or facts.download is None or not options.streaming:
            return facts
        stream = None if options.data_dir else replace(facts.download, size=0, needed=0, is_stream=True)
        return replace(facts, download=stream)

    def start(self, config: RunConfig, found: Survey) -> Start:
        """Read a stream if the data are larger than the disk."""
        start, facts, free = super().start(config, found), self.facts(self.options(config)), free_bytes(_cache())
        room = 0 if facts is None or facts.download is None else facts.download.needed
        if free is None or room <= free or "streaming" in config.data.options:
            return start
        why = f"{size_text(room)} do not fit on the disk, so the examples are read from the hub in each epoch"
        key = "data.options.streaming"
        return start._replace(settings={**start.settings, key: True}, reasons={**start.reasons, key: why})

    def prepare(self, options: HfOptions, on_fetch: OnFetch) -> NamedFacts:
        """Download a dataset, unless it is here or a stream, whose examples may have to be counted."""
        if not options.streaming:
            return super().prepare(options, on_fetch)
        builder = self.builder(options)
        facts, counts = self.facts_of(builder, options), {}
        if facts.splits:
            return facts
        for name, rows in builder.as_streaming_dataset().items():
            on_fetch(f"counting the examples of {options.full_name}: {name}")
            batches = rows.select_columns([next(iter(facts.features))]).with_format("arrow").iter(_SAMPLED)
            counts[name] = sum(batch.num_rows for batch in batches)
        return replace(facts, splits=counts)

    def arriving(self, builder: Any, options: HfOptions) -> Path:
        from huggingface_hub.constants import HF_HUB_CACHE

        return Path(HF_HUB_CACHE, f"datasets--{options.name.replace('/', '--')}")

    def images(self, options: HfOptions, part: Slice, use: Use) -> Any:
        import datasets
        import tensorflow as tf

        (image,), label = use.inputs, use.label
        if not use.classes:
            what = f"'{label}' of {options.full_name} is not a class: it has too many different values."
            if options.streaming:
                what = f"The classes of {options.full_name} are unknown until all examples are read."
            raise DataError(what, remedy="Set data.options.label.")
        rows = self._rows(options, part, (image, label))
        files = rows.cast_column(image, datasets.Image(decode=False))
        known = {name: number for number, name in enumerate(use.classes)}

        def numbered(labels: Sequence[str]) -> list[int]:
            if not {*labels} <= known.keys():
                what = f"{options.full_name} has examples without a label in its split '{part.split}'."
                raise DataError(what, remedy="Set data.options.split and data.options.validation_split.")
            return [known[name] for name in labels]

        def batches() -> Iterator[tuple[list[bytes], list[int]]]:
            for batch in files.iter(_BATCH):
                numbers = numbered(_texts(batch[label], rows.features[label]))
                yield [_readable(entry) for entry in batch[image]], numbers

        if not options.streaming:
            for batch in rows.select_columns([label]).with_format("arrow").iter(_SAMPLED):  # before the training
                numbered(_texts(batch.column(label).to_pylist(), rows.features[label]))
        signature = tf.TensorSpec((None,), tf.string), tf.TensorSpec((None,), tf.int32)
        pairs = tf.data.Dataset.from_generator(batches, output_signature=signature).unbatch()
        return pairs.apply(tf.data.experimental.assert_cardinality(len(part.rows)))

    def table(self, options: HfOptions, part: Slice, names: Sequence[str]) -> pd.DataFrame:
        import pandas as pd

        rows, columns = self._rows(options, part, names), {name: list[str]() for name in names}
        for batch in rows.with_format("arrow").iter(_SAMPLED):
            for name in names:
                columns[name] += _texts(batch.column(name).to_pylist(), (rows.features or {}).get(name))
        return pd.DataFrame(columns).replace({"": None})

    def _slices(self, config: RunConfig, facts: NamedFacts) -> tuple[Slice, Slice]:
        """Return the training and the validation examples; of one stream, these come first, to be read sooner."""
        train, held_out = super()._slices(config, facts)
        if not self.options(config).streaming or held_out.split != train.split:
            return train, held_out
        first = len(held_out.rows)
        return Slice(train.split, range(first, first + len(train.rows))), Slice(train.split, range(first))

    def _rows(self, options: HfOptions, part: Slice, names: Sequence[str]) -> Any:
        """Return some columns of some examples, in an order that is random and always the same."""
        builder = self.builder(options)
        if options.streaming:
            stream = builder.as_streaming_dataset()[part.split].select_columns([*names])
            return stream.shuffle(seed=_SEED, buffer_size=_MIXED).skip(part.rows.start).take(len(part.rows))
        rows = builder.as_dataset()[part.split].select_columns([*names])
        return rows.shuffle(seed=_SEED).select(part.rows)

    def write_parts(self, code: DataCode, options: HfOptions, parts: tuple[Slice, Slice]) -> None:
        code.needs(load_dataset="datasets")
        names = [options.data_dir or options.name]
        names += [options.config] if options.config and not options.data_dir else []
        given = {"streaming": "True"} if options.streaming else {}
        code.call("data", "load_dataset", *map(code.literal, names), **given)
        mixed = f"seed={_SEED}" + (f", buffer_size={_MIXED}" if options.streaming else "")
        code.add("parts = [")
        for split, rows in parts:
            chosen = f"skip({rows.start}).take({len(rows)})" if options.streaming else f"select({rows})"
            code.add(f"    data[{code.literal(split)}].shuffle({mixed}).{chosen},")
        code.add("]")


def _cache() -> Path:
    """Return where the package keeps data, without importing it."""
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    return Path(os.environ.get("HF_DATASETS_CACHE") or f"{home}/datasets").expanduser()


def _texts(values: Sequence[Any], feature: Any) -> list[str]:
    """Return values as text: classes by name, and nothing where one is missing."""
    if classes := getattr(feature, "names", None):
        return [classes[value] if value is not None and value != _NO_CLASS else "" for value in values]
    return ["" if value is None or value != value else str(value) for value in values]  # NaN


def _values(parts: Sequence[Any], name: str) -> tuple[str, ...]:
    """Return the different values of a column as text, in order; nothing if they are too many for classes."""
    firsts = (part.select_columns([name])[:_SAMPLED][name] for part in parts)
    if not all(_are_few({*first}, len(first)) for first in firsts):
        return ()
    found = {value for part in parts for value in part.unique(name) if value is not None}
    return tuple(map(str, sorted(found))) if _are_few(found, sum(map(len, parts))) else ()


def _are_few(values: set[Any], count: int) -> bool:
    most = _MOST_CLASSES if any(isinstance(value, str) for value in values) else _MOST_NUMBERS
    return len(values) <= min(most, count // 2)


def _readable(entry: Mapping[str, Any]) -> bytes:
    """Return an image that TensorFlow reads: upright, and as a PNG if it is of another format."""
    content: bytes | None = entry["bytes"]
    if content is None:
        import fsspec  # type: ignore[import-untyped]  # it has no types

        with fsspec.open(entry["path"]) as file:  # on the disk, or on the hub
            content = file.read()
    if content.startswith(_READ) and b"exif" not in content[:4096].lower():
        return content
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(content)) as picture:
        if content.startswith(_READ) and picture.getexif().get(_ORIENTATION, 1) == 1:
            return content
        buffer = io.BytesIO()
        ImageOps.exif_transpose(picture).convert("RGB").save(buffer, "PNG")
    return buffer.getvalue()


def _download(options: HfOptions, size: int = 0, unpacked: int = 0) -> Download:
    """Return what is downloaded from the hub, of so many bytes."""
    import datasets

    hub = datasets.config.HF_ENDPOINT
    return Download(
        options.full_name,
        folder=str(datasets.config.HF_DATASETS_CACHE),
        by_hand=f"save the files of {hub}/datasets/{options.name} in a folder, and name it with data.options.data_dir",
        otherwise="set data.options.streaming=true",
        hosts=(str(urlsplit(hub).hostname),),
        size=size,
        needed=size + unpacked,
    )


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
        return Feature("class", (), tuple(feature.names))
    if not isinstance(feature, datasets.Value):
        messages = getattr(feature, "feature", None)
        return Feature("messages" if isinstance(messages, dict) and len(messages) > 1 else "other")
    return Feature(next((kind for start, kind in _KINDS.items() if feature.dtype.startswith(start)), "other"))
