"""Inspects a dataset: its examples, their classes and sizes, bad files, and the speed of the pipeline."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ...config.data_options import DATA_OPTIONS, TextCsvOptions, TextPairsOptions, TfrecordOptions
from ...config.reading import parse_config
from ...data.examples import Task
from ...data.images.check import check_image
from ...data.input_speed import save_input_speed
from ...data.places import join, locate
from ...data.small_pictures import small_picture
from ...data.sources.load import load_examples
from ...data.sources.text_pairs import read_pairs
from ...data.sources.tfrecord import open_schema
from ...data.tables import read_table, read_text
from ...data.vocabulary import PADDING, UNKNOWN, without_markup, words_of
from ...errors import ConsoleError
from ..image_source import check_all, read_image_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ...config.run_config import RunConfig
    from ...data.examples import Examples
    from ...messages import Reporter


_PICTURES = 12


def inspect_dataset(reporter: Reporter, config: Mapping[str, Any], speed: bool = False) -> dict[str, Any]:
    """Inspect the dataset of a configuration.

    Files that cannot be used are reported, and so is anything that would keep a run from starting.

    Returns:
        ``task``, ``train`` and ``validation`` (how many), ``inputs`` and ``sizes``, ``classes``, ``pictures``,
        ``unknown_words``, ``notices``, the files themselves (``images``, ``bad``, ``texts``, ``ratings``, if there are
        any), ``speed`` if requested, and ``trouble``: why the dataset cannot be loaded, or None.
    """
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # not needed here, and a run may be using it
    settings = parse_config(config)
    found: dict[str, Any] = {"trouble": None}
    note = cache(reporter.note)  # once for each text: files are checked more than once
    try:
        if settings.dataset in {"image-csv", "image-folder"}:
            found |= describe_images(settings, reporter, note)
        if settings.dataset in {"text-csv", "text-pairs"}:
            found["texts"] = describe_texts(settings)
        examples = load_examples(_skipping_bad(settings), note)
        found |= _describe(examples)
        if speed:
            from .speed import measure

            found["speed"] = measure(settings, examples, reporter)
            save_input_speed(settings, found["speed"]["parts"])
    except ConsoleError as error:
        return found | {"trouble": {"what": error.what, "why": error.why, "remedy": error.remedy}}
    return found


def _skipping_bad(config: RunConfig) -> RunConfig:
    """Skip bad files if the dataset can, since the inspection reports them."""
    section = DATA_OPTIONS.get(config.dataset)
    if section is None or "skip_bad" not in section.model_fields:
        return config
    data = config.data.model_copy(update={"options": config.data.options | {"skip_bad": True}})
    return config.model_copy(update={"data": data})


def _describe(examples: Examples) -> dict[str, Any]:
    signature = examples.signature
    is_text = signature.task is Task.TRANSLATION or "text" in signature.inputs
    return {
        "task": signature.task.value,
        "train": examples.train_count,
        "validation": examples.validation_count,
        "inputs": {name: {"shape": list(part.shape), "dtype": part.dtype} for name, part in signature.inputs.items()},
        "sizes": dict(signature.sizes),
        "classes": class_balance(examples),
        **({"ratings": describe_ratings(examples)} if signature.task is Task.RATINGS else {}),
        "pictures": picture_samples(examples, _PICTURES),
        "unknown_words": unknown_share(examples) if is_text else {},
        "notices": [notice for notice in examples.notices if notice not in examples.skipped],
    }


_BATCH = 4096


def class_balance(examples: Examples) -> list[dict[str, Any]]:
    """Return the name of each class and its examples per part, in the order of their numbers; empty without classes.

    If the record of the examples holds the counts, nothing is read.
    """
    classes = examples.signature.classes
    if not classes or examples.signature.task not in {Task.CLASSES, Task.PROBABILITIES, Task.OWN}:
        return []
    known = examples.record.get("class_counts")
    if known is None:
        known = {"train": _count(examples.train, classes), "validation": _count(examples.validation, classes)}
    names = examples.class_names or tuple(str(number) for number in range(classes))
    return [
        {"name": names[number], "train": int(known["train"][number]), "validation": int(known["validation"][number])}
        for number in range(classes)
    ]


def _count(dataset: Any, classes: int) -> list[int]:
    counts = np.zeros(classes, np.int64)
    if dataset is not None:
        # Labels only: their batches are small, whatever the examples are.
        for batch in dataset.map(lambda _, label, *_weight: label).batch(_BATCH):
            labels = batch.numpy()
            numbers = labels.argmax(axis=-1) if labels.ndim > 1 else labels.astype(np.int64)
            counts += np.bincount(numbers.ravel(), minlength=classes)[:classes]
    return [int(count) for count in counts]


_LOOKED_AT = 40
"""Examples to search per image, to find one of every class."""


def picture_samples(examples: Examples, count: int) -> list[dict[str, Any]]:
    """Return some training examples as in `small_picture`, of as many classes as a short search finds."""
    shape = examples.signature.shape
    if len(shape) != 3 or shape[-1] not in {1, 3}:
        return []
    by_class: dict[str, list[NDArray[Any]]] = {}
    most = min(count * _LOOKED_AT, examples.train_count or count * _LOOKED_AT)
    wanted = min(examples.signature.classes or 1, count)
    for image, label, *_ in examples.train.take(most):
        by_class.setdefault(_caption(label.numpy(), examples), []).append(image.numpy())
        if len(by_class) >= wanted and sum(map(len, by_class.values())) >= count:
            break
    # One of each class, then a second one of each class, and so on.
    rounds = max(map(len, by_class.values()), default=0)
    taken = [(name, by_class[name][turn]) for turn in range(rounds) for name in sorted(by_class)
             if turn < len(by_class[name])]  # fmt: skip
    return [small_picture(name, image, examples.pixel_range) for name, image in taken[:count]]


def _caption(label: NDArray[Any], examples: Examples) -> str:
    if label.ndim > 1 or not examples.signature.classes:
        return ""
    number = int(label.argmax()) if label.ndim == 1 else int(label)
    return examples.class_names[number] if number < len(examples.class_names) else str(number)


_BINS = 10


def spread(values: NDArray[Any]) -> dict[str, float]:
    """Return the ``min``, ``median`` and ``max`` of some values."""
    return {"min": float(values.min()), "median": float(np.median(values)), "max": float(values.max())}


def histogram(values: NDArray[Any]) -> list[dict[str, float]]:
    """Count at least one value in bins of equal width, each with its ``low``, ``high`` and ``count``.

    The last bin takes all outliers above. A bin of whole numbers includes both ends. If there are few different values,
    each gets a bin, and both ends are the value.
    """
    different, counts = np.unique(values, return_counts=True)
    if len(different) <= _BINS:
        return [_bin(value, value, count) for value, count in zip(different, counts, strict=True)]
    low, high = float(values.min()), float(np.quantile(values, 0.99))
    step = max((high - low) / _BINS, 1e-12)
    is_whole = np.issubdtype(values.dtype, np.integer)
    if is_whole:
        step = float(np.ceil((high - low + 1) / _BINS))
    edges = low + step * np.arange(_BINS + 1)
    inner = np.digitize(values, edges[1:-1])
    counts = np.bincount(inner, minlength=_BINS)
    ends = edges[1:] - is_whole
    ends[-1] = max(ends[-1], float(values.max()))
    return [_bin(edges[number], ends[number], counts[number]) for number in range(_BINS)]


def _bin(low: float, high: float, count: int) -> dict[str, float]:
    return {"low": float(low), "high": float(high), "count": int(count)}


_NAMED = 10  # bad files that are named at most
_MOST_READ = 4000


@dataclass(frozen=True, slots=True)
class Encoded:
    """Encoded images, as stored on the disk."""

    paths: tuple[str, ...]
    contents: Any  # a `tf.data.Dataset` of (the bytes of an encoded image, its EXIF orientation)


def describe_images(config: RunConfig, reporter: Reporter, on_fetch: Callable[[str], None]) -> dict[str, Any]:
    """Check every file of an `image-csv` or `image-folder`.

    Returns:
        ``images``: how many are ``usable``, their total ``bytes``, the spread of ``height`` and ``width``, the count of
        each of the ``formats``, and how many are ``turned`` upright; ``bad``: the ``count`` of files that cannot be
        used, and ``file`` and ``problem`` of the ``first`` ones.

    Raises:
        DataError: The table or the folders cannot be used.
    """
    source = read_image_source(config.dataset, config.data.options, config.loss, on_fetch)
    facts = check_all(check_image, source.paths, reporter)
    bad = [(name, fact.problem) for name, fact in zip(source.names, facts, strict=True) if fact.problem]
    good = [fact for fact in facts if not fact.problem]
    sides = {side: spread(np.array([getattr(fact, side) for fact in good])) for side in ("height", "width") if good}
    size = 0
    for fact in good:
        with suppress(OSError):  # a remote file
            size += Path(fact.path).stat().st_size
    return {
        "images": {
            "usable": len(good),
            "bytes": size,
            "formats": dict(Counter(fact.format for fact in good).most_common()),
            "turned": sum(fact.orientation != 1 for fact in good),
            **sides,
        },
        "bad": {"count": len(bad), "first": [{"file": name, "problem": problem} for name, problem in bad[:_NAMED]]},
    }


def encoded_images(config: RunConfig, reporter: Reporter) -> Encoded | None:
    """Return some encoded images of a dataset; None if they are not files."""
    if config.dataset == "tfrecord":
        return _encoded_records(locate(TfrecordOptions.model_validate(config.data.options).path))
    if config.dataset not in {"image-csv", "image-folder"}:
        return None
    source = read_image_source(config.dataset, config.data.options, config.loss)
    facts = check_all(check_image, source.paths[:_MOST_READ], reporter)
    # The other formats are decoded with Pillow, and are few.
    plain = [fact for fact in facts if not fact.problem and fact.decoder != "pillow"]
    if not plain:
        return None
    paths, orientations = [fact.path for fact in plain], [fact.orientation for fact in plain]
    contents = tf.data.Dataset.from_tensor_slices((paths, orientations)).map(
        lambda path, orientation: (tf.io.read_file(path), orientation), num_parallel_calls=tf.data.AUTOTUNE
    )
    return Encoded(tuple(paths), contents)


def _encoded_records(folder: str) -> Encoded:
    features = {"image": tf.io.FixedLenFeature([], tf.string), "orientation": tf.io.FixedLenFeature([], tf.int64, 1)}

    def parse(record: Any) -> Any:
        values = tf.io.parse_single_example(record, features)
        return values["image"], tf.cast(values["orientation"], tf.int32)

    paths = [join(folder, shard.file) for shard in open_schema(folder).shards]
    records = tf.data.TFRecordDataset(paths, num_parallel_reads=tf.data.AUTOTUNE)
    return Encoded(tuple(paths), records.map(parse, num_parallel_calls=tf.data.AUTOTUNE))


def describe_ratings(examples: Examples) -> dict[str, Any]:
    """Describe ratings, training and validation together; user or item 0 means no training ratings.

    Returns:
        How many ``ratings``, ``users`` and ``items``; the share of all pairs that is rated, ``density``; the number of
        ratings per user and per item, ``by_user`` and ``by_item``; the ``mean`` rating, and a ``histogram``.
    """
    parts = [part for part in (examples.train, examples.validation) if part is not None]
    batches = [(inputs["user"].numpy(), inputs["item"].numpy(), ratings.numpy())
               for part in parts for inputs, ratings, *_ in part.batch(_BATCH)]  # fmt: skip
    users, items, ratings = (np.concatenate(column) for column in zip(*batches, strict=True))
    by_user, by_item = (np.bincount(numbers)[1:] for numbers in (users, items))
    by_user, by_item = by_user[by_user > 0], by_item[by_item > 0]
    return {
        "ratings": len(ratings),
        "users": len(by_user),
        "items": len(by_item),
        "density": len(ratings) / (len(by_user) * len(by_item)),
        "by_user": spread(by_user),
        "by_item": spread(by_item),
        "mean": float(ratings.mean()),
        "histogram": histogram(ratings),
    }


_SHOWN = 4
_MOST_COUNTED = 20_000  # examples in which unknown words are counted


def describe_texts(config: RunConfig) -> dict[str, Any]:
    """Describe the texts in the file of a `text-csv` or `text-pairs`; raise `DataError` if the file cannot be read.

    Returns:
        Some ``samples``; for each column of texts, under ``words``, the smallest, median and largest number of words,
        a ``histogram`` of them and the share of texts that is ``cut``; and ``cut_at``, the length they are cut to.
    """
    if config.dataset == "text-pairs":
        pairs = read_pairs(options := TextPairsOptions.model_validate(config.data.options))
        return _described({"source": [a for a, _ in pairs], "target": [b for _, b in pairs]}, options.length)
    table_options = TextCsvOptions.model_validate(config.data.options)
    columns = {"text_column": table_options.text_column, "label_column": table_options.label_column}
    table = read_table(table_options.path, read_text(table_options.path), columns).fillna("")
    texts = [without_markup(text) for text in table[table_options.text_column]]
    return _described({"text": texts}, table_options.length, table[table_options.label_column].tolist())


def _described(texts: Mapping[str, Sequence[str]], cut_at: int, labels: Sequence[str] = ()) -> dict[str, Any]:
    total = len(next(iter(texts.values())))
    chosen = range(0, total, max(1, total // _SHOWN))[:_SHOWN]
    lengths = {name: np.array([len(words_of(text)) for text in column]) for name, column in texts.items()}
    return {
        "samples": [
            {name: column[row] for name, column in texts.items()} | ({"label": labels[row]} if labels else {})
            for row in chosen
        ],
        "words": {
            name: {**spread(counts), "histogram": histogram(counts), "cut": float(np.mean(counts > cut_at))}
            for name, counts in lengths.items()
        },
        "cut_at": cut_at,
    }


def unknown_share(examples: Examples) -> dict[str, dict[str, float]]:
    """Return the share of words that are not in the vocabulary, per part of the dataset and input."""
    parts = {"train": examples.train, "validation": examples.validation}
    return {part: _unknown(dataset) for part, dataset in parts.items() if dataset is not None}


def _unknown(dataset: Any) -> dict[str, float]:
    unknown: dict[str, int] = {}
    words: dict[str, int] = {}
    for batch, *_ in dataset.take(_MOST_COUNTED).batch(_BATCH):
        for name, numbers in (batch if isinstance(batch, dict) else {"text": batch}).items():
            values = numbers.numpy()
            unknown[name] = unknown.get(name, 0) + int((values == UNKNOWN).sum())
            words[name] = words.get(name, 0) + int((values != PADDING).sum())
    return {name: unknown[name] / max(words[name], 1) for name in words}
