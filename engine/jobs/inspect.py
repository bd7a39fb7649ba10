"""Inspects a dataset: its examples, their classes and sizes, bad files, and the speed of the pipeline."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..config.reading import parse_config
from ..config.values import USUAL_BATCH
from ..data.cached_facts import save_input_speed
from ..data.describing import small_picture
from ..data.download import reporting
from ..data.examples import Examples, Task
from ..data.images.decode import decode_bytes, untuned
from ..data.kinds.image_kind import ImageFilesKind, ImageKind
from ..data.kinds.table import KINDS, load_examples
from ..errors import ConsoleError
from ..input.pipeline import build_pipeline
from ..storage.files import make_private_folder
from ..storage.paths import runs_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from ..config.run_config import RunConfig
    from ..messages import Reporter


_PICTURES = 12


def inspect_dataset(reporter: Reporter, config: Mapping[str, Any], speed: bool = False) -> dict[str, Any]:
    """Inspect the dataset of a configuration.

    Files that cannot be used are reported, and so is anything that would keep a run from starting.

    Returns:
        ``task``, ``train`` and ``validation`` (how many), ``inputs`` and ``sizes``, ``classes``, ``pictures``,
        ``unknown_words``, ``notices``, what the kind of dataset tells (``images``, ``bad``, ``texts``, ``ratings``),
        ``speed`` if requested, and ``trouble``: why the dataset cannot be loaded, or None.
    """
    tf.config.set_visible_devices([], "GPU")  # not needed here, and a run may be using it
    settings = parse_config(config)
    kind = KINDS.get(settings.dataset)
    found: dict[str, Any] = {"trouble": None}
    note = cache(reporter.note)  # once for each text: files are checked more than once
    try:
        if kind is not None:
            found |= kind.describe_files(settings, reporter, note)
        loaded = settings
        if kind is not None and "skip_bad" in kind.Options.model_fields:  # since they are reported here
            options = settings.data.options | {"skip_bad": True}
            loaded = settings.model_copy(update={"data": settings.data.model_copy(update={"options": options})})
        examples = load_examples(loaded, reporting(reporter, note))
        signature = examples.signature
        inputs = {name: {"shape": list(part.shape), "dtype": part.dtype} for name, part in signature.inputs.items()}
        found |= {
            "task": signature.task.value,
            "train": examples.train_count,
            "validation": examples.validation_count,
            "inputs": inputs,
            "sizes": dict(signature.sizes),
            "classes": class_balance(examples),
            "pictures": picture_samples(examples, _PICTURES),
            "unknown_words": {},
            "notices": [notice for notice in examples.notices if notice not in examples.skipped],
        }
        found |= {} if kind is None else kind.describe(examples)
        if speed:
            found["speed"] = measure(settings, examples, reporter)
            save_input_speed(settings, found["speed"]["parts"])
    except ConsoleError as error:
        return found | {"trouble": {"what": error.what, "why": error.why, "remedy": error.remedy}}
    return found


_LABELS = 4096


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
        for batch in dataset.map(lambda _, label, *_weight: label).batch(_LABELS):
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


SECONDS = 3.0  # how long each part is measured, about
_SAMPLE_BYTES = 256 << 20  # most memory for examples that are held to measure one part alone
_MOST_READ = 4000
_SHORT_S = 0.5
_BATCH = 32


@dataclass(frozen=True, slots=True)
class Rate:
    """The speed of one part."""

    name: str  # ``reading``, ``decoding``, ``augmenting`` (or ``batching``), ``first`` (epoch), ``later`` (epochs)
    what: str  # the same in words
    per_s: float
    examples: int


def measure(config: RunConfig, examples: Examples, reporter: Reporter, seconds: float = SECONDS) -> dict[str, Any]:
    """Measure the parts of a pipeline one after another, each for about so many seconds.

    Returns:
        ``unit``, what is counted; ``parts``, each a `Rate` as a dictionary; ``limit``, the name of the slowest part of
        the first epoch; ``cache``, where later epochs come from; ``advice``, sentences.

    Raises:
        DataError: The pipeline cannot be built with this configuration.
    """
    # One pass over the examples is measured, whatever an epoch of the configuration is.
    size = config.batch_size or examples.batch or USUAL_BATCH
    config = config.model_copy(update={"steps_per_epoch": "all", "class_weight": "none", "batch_size": size})
    examples = replace(examples, batches=(None, None))
    watch = _Stopwatch(reporter, seconds)
    kind = KINDS.get(config.dataset)
    rates = _source_rates(kind, config, reporter, watch) if isinstance(kind, ImageKind) else []
    held = _held(examples, config)
    prepared = build_pipeline(held, _with_cache(config, "off"), 1).train
    is_changed = config.augmentation.is_active
    what = ("augmenting", "augmenting and batching") if is_changed else ("batching", "shuffling and batching")
    rates.append(watch.rate(*what, prepared, config.batch_size))
    slowest = min(rates, key=lambda rate: rate.per_s)
    home = runs_folder().parent
    make_private_folder(home)
    with TemporaryDirectory(prefix="inspect-", dir=home) as folder:
        cache = build_pipeline(examples, config, 1, cache_folder=Path(folder, "whole")).cache.kind
        part = _part(examples, config, round(slowest.per_s * seconds))
        pipeline = build_pipeline(part, _with_cache(config, cache), 1, cache_folder=Path(folder, "part"))
        rates += watch.epochs(pipeline.train, pipeline.steps_per_epoch, config.batch_size, keeps=cache != "off")
    return {
        "unit": "images" if len(examples.signature.shape) == 3 else "examples",
        "parts": [asdict(rate) for rate in rates],
        "limit": slowest.name,
        "cache": cache,
        "advice": _advice(rates, slowest, cache, config),
    }


def _source_rates(kind: ImageKind[Any], config: RunConfig, reporter: Reporter, watch: _Stopwatch) -> list[Rate]:
    """Measure reading image files, and decoding what was read."""
    if (source := kind.encoded(config, reporter)) is None:
        return []
    _forget(source.paths)
    lengths = source.contents.map(lambda content, _: tf.strings.length(content)).batch(_BATCH)
    reading = watch.rate("reading", "reading files", lengths, _BATCH, again=False)
    contents, orientations, size = [], [], 0
    for content, orientation in source.contents:
        contents.append(content.numpy())
        orientations.append(orientation.numpy())
        if (size := size + len(contents[-1])) > _SAMPLE_BYTES or len(contents) >= _MOST_READ:
            break
    decoding = kind.decoding(config)
    images = tf.data.Dataset.from_tensor_slices((contents, orientations)).map(
        lambda content, orientation: decode_bytes(content, decoding, orientation), num_parallel_calls=tf.data.AUTOTUNE
    )
    return [reading, watch.rate("decoding", "decoding, resizing", images.batch(_BATCH), _BATCH)]


def _held(examples: Examples, config: RunConfig) -> Examples:
    """Return some training examples, held in memory."""
    each = sum(
        (part.shape.num_elements() or 1) * part.dtype.size for part in tf.nest.flatten(examples.train.element_spec)
    )
    count = max(config.batch_size, min(_MOST_READ, _SAMPLE_BYTES // max(each, 1)))
    part = _part(examples, config, count)
    train = part.train.cache()
    for _ in train.batch(_BATCH):
        pass
    return replace(part, train=train)


def _part(examples: Examples, config: RunConfig, count: int) -> Examples:
    """Return the first ``count`` training examples, at least a batch and at most all, and none for validation."""
    count = max(count, config.batch_size)
    if examples.train_count is not None:
        count = min(count, examples.train_count)
    return replace(examples, train=examples.train.take(count), train_count=count, validation=None, validation_count=0)


def _with_cache(config: RunConfig, cache: str) -> RunConfig:
    return config.model_copy(update={"data": config.data.model_copy(update={"cache": cache})})


class _Stopwatch:
    """Counts the examples that datasets give in some time."""

    def __init__(self, reporter: Reporter, seconds: float) -> None:
        self._reporter = reporter
        self._seconds = seconds

    def rate(self, name: str, what: str, batches: Any, batch: int, *, again: bool = True) -> Rate:
        """Measure how fast batches come; the last one may have fewer examples.

        `again` repeats the dataset while there is time, without counting the first batch, which includes the set-up.
        """
        elements = iter((batches.repeat() if again else batches).with_options(untuned()))
        if again:
            next(elements)
        counted, seconds = self._count(what, elements, batch, None)
        return Rate(name, what, counted / seconds, counted)

    def epochs(self, batches: Any, steps: int, batch: int, *, keeps: bool) -> list[Rate]:
        """Measure the first epoch of an endless dataset, and later ones while there is time.

        `keeps` says whether later epochs come from a cache.
        """
        elements = iter(batches)
        counted, seconds = self._count("first epoch", islice(elements, steps), batch, steps)
        first = Rate("first", "first epoch", counted / seconds, counted)
        if counted < steps * batch or not keeps:
            return [first]
        # The start of the second epoch was prefetched while the first one ended.
        self._count("later epochs", islice(elements, steps), batch, None)
        counted, seconds = self._count("later epochs", elements, batch, None)
        return [first, Rate("later", "later epochs", counted / seconds, counted)]

    def _count(self, what: str, elements: Any, batch: int, steps: int | None) -> tuple[int, float]:
        """Count examples until they end or time is up; a first epoch gets three times as long."""
        began = now = time.perf_counter()
        ends_at = began + self._seconds * (3 if steps else 1)
        counted = 0
        total = None if steps is None else steps * batch
        for element in elements:
            counted += min(batch, int(tf.shape(tf.nest.flatten(element)[0])[0]))
            now = time.perf_counter()
            self._reporter.progress(f"measuring {what}", counted, total, "examples")
            if now > ends_at:
                break
        self._reporter.progress(f"measuring {what}", counted, counted, "examples")
        return counted, max(now - began, 1e-9)


def _forget(paths: Sequence[str]) -> None:
    """Ask the system to drop files from memory, so that they are read from the disk."""
    if not hasattr(os, "posix_fadvise"):
        return
    for path in paths:
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError:
            continue  # a remote file
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def _advice(rates: Sequence[Rate], slowest: Rate, cache: str, config: RunConfig) -> list[str]:
    """Say which part limits the pipeline, and what to do about it."""
    by_name = {rate.name: rate.per_s for rate in rates}
    advice = [f"The first epoch is limited by {slowest.what}: {slowest.per_s:,.0f}/s."]
    if next(rate.examples / rate.per_s for rate in rates if rate.name == "first") < _SHORT_S:
        advice = ["The first epoch is so short that setting up the pipeline takes much of it."]
    if slowest.name == "reading" and isinstance(KINDS.get(config.dataset), ImageFilesKind):
        advice.append(
            "TFRecord shards are read faster than single files, above all from a bucket: tpu-console tfrecord."
        )
    if cache == "off" and "decoding" in by_name:
        advice.append(
            "Every epoch reads and decodes again; data.cache=disk keeps decoded examples in the run's folder."
        )
    if "later" in by_name:
        place = {"memory": "memory", "disk": "a file in the run's folder"}[cache]
        times = by_name["later"] / by_name["first"]
        faster = f", {times:.1f} times as fast" if times >= 1.1 else ""
        advice.append(f"Later epochs come from {place}{faster}.")
        if "augmenting" in by_name and slowest.name != "augmenting":
            advice.append("They are limited by augmentation: use fewer kinds, or augmentation.placement=model.")
    return advice
