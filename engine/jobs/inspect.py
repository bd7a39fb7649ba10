"""Inspects a dataset: its examples, their classes and sizes, bad files, and the speed of the pipeline."""

import time
from collections.abc import Mapping
from functools import cache
from itertools import islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tensorflow as tf
from msgspec.structs import replace

from ..config.reading import parse_config, with_changes
from ..config.run_config import RunConfig
from ..config.values import USUAL_BATCH
from ..data.cached_facts import save_input_speed
from ..data.describing import small_picture, unknown_share
from ..data.examples import Examples, Task
from ..data.kinds.table import kind_of, load_examples
from ..data.labels import class_totals
from ..data.places import reporting
from ..errors import ConsoleError
from ..input.pipeline import build_pipeline
from ..messages import Reporter
from ..storage.files import make_private_folder
from ..storage.paths import runs_folder

_PICTURES = 12
_LOOKED_AT = 40  # examples to search per image, to find one of every class
SECONDS = 3.0  # how long later epochs are measured, about; the first one gets three times as long


def inspect_dataset(reporter: Reporter, config: Mapping[str, Any], speed: bool = False) -> dict[str, Any]:
    """Inspect the dataset of a configuration; what would keep a run from starting is reported, not raised.

    Returns ``task``, ``train`` and ``validation`` (how many), ``inputs`` and ``sizes``, ``classes``, ``pictures``,
    ``unknown_words``, ``notices``, what the kind reports (``images``, ``bad``, ``texts``, ``ratings``, ``facts``),
    ``speed`` if requested, and ``trouble``: why the dataset cannot be loaded, or None.
    """
    tf.config.set_visible_devices([], "GPU")  # not needed here, and a run may be using it
    settings = parse_config(config)
    kind = kind_of(settings.dataset)
    found: dict[str, Any] = {"trouble": None}
    note = cache(reporter.note)  # once for each text: files are checked more than once
    try:
        found |= kind.describe_files(settings, reporter, note)
        loaded = settings
        if "skip_bad" in kind.Options.model_fields:  # since they are reported here
            loaded = with_changes(settings, [("data.options.skip_bad", True)])
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
            "unknown_words": unknown_share(examples) if any("vocabulary" in name for name in signature.sizes) else {},
            "notices": [notice for notice in examples.notices if notice not in examples.skipped],
        }
        if speed:
            found["speed"] = measure(settings, examples, reporter)
            save_input_speed(settings, found["speed"]["parts"])
    except ConsoleError as error:
        return found | {"trouble": {"what": error.what, "why": error.why, "remedy": error.remedy}}
    return found


def class_balance(examples: Examples) -> list[dict[str, Any]]:
    """Return the name of each class and its examples per part, by number; nothing is read if the record has them."""
    classes = examples.signature.classes
    if not classes or examples.signature.task not in {Task.CLASSES, Task.PROBABILITIES, Task.OWN}:
        return []
    known = examples.record.get("class_counts")
    if known is None:
        parts = {"train": examples.train, "validation": examples.validation}
        known = {name: class_totals(part, classes) for name, part in parts.items()}
    names = examples.class_names or map(str, range(classes))
    rows = zip(names, known["train"], known["validation"], strict=False)
    return [{"name": name, "train": round(train), "validation": round(other)} for name, train, other in rows]


def picture_samples(examples: Examples, count: int) -> list[dict[str, Any]]:
    """Return some training examples as in `small_picture`, of as many classes as a short search finds."""
    shape = examples.signature.shape
    if len(shape) != 3 or shape[-1] not in {1, 3}:
        return []
    by_class: dict[str, list[Any]] = {}
    most = min(count * _LOOKED_AT, examples.train_count or count * _LOOKED_AT)
    classes, names = examples.signature.classes, examples.class_names
    for image, label, *_ in examples.train.take(most):
        values, caption = label.numpy(), ""
        if values.ndim <= 1 and classes:
            number = int(values.argmax()) if values.ndim == 1 else int(values)
            caption = names[number] if number < len(names) else str(number)
        by_class.setdefault(caption, []).append(image.numpy())
        if len(by_class) >= min(classes or 1, count) and sum(map(len, by_class.values())) >= count:
            break
    # One of each class, then a second one of each class, and so on.
    ranked = [(turn, name, image) for name, images in by_class.items() for turn, image in enumerate(images)]
    ranked.sort(key=itemgetter(0, 1))
    return [small_picture(name, image, examples.pixel_range) for _, name, image in ranked[:count]]


def measure(config: RunConfig, examples: Examples, reporter: Reporter, seconds: float = SECONDS) -> dict[str, Any]:
    """Measure the first epoch of a pipeline, and later ones if they come from a cache.

    Returns ``unit``, what is counted; ``parts``, each with a ``name`` (``first`` or ``later``), ``what`` in words,
    ``per_s`` and ``examples``; ``cache``, where later epochs come from; ``advice``, sentences. Raises `DataError` if
    the pipeline cannot be built with this configuration.
    """
    # One pass over the examples is measured, whatever an epoch of the configuration is.
    batch = config.batch_size or examples.batch or USUAL_BATCH
    config = config.model_copy(update={"steps_per_epoch": "all", "class_weight": "none", "batch_size": batch})
    parts: list[dict[str, Any]] = []

    def count(name: str, what: str, batches: Any, steps: int, limit_s: float) -> bool:
        """Add a part: the speed of batches until they end or time is up; return whether they ended."""
        began = now = time.perf_counter()
        counted = 0
        for element in batches:
            counted += int(tf.shape(tf.nest.flatten(element)[0])[0])
            now = time.perf_counter()
            reporter.progress(f"measuring {what}", counted, steps * batch, "examples")
            if now - began > limit_s:
                break
        parts.append({"name": name, "what": what, "per_s": counted / max(now - began, 1e-9), "examples": counted})
        return counted >= steps * batch

    home = runs_folder().parent
    make_private_folder(home)
    with TemporaryDirectory(prefix="inspect-", dir=home) as folder:
        data = build_pipeline(replace(examples, batches=(None, None)), config, 1, cache_folder=Path(folder, "cache"))
        steps, cache, batches = data.steps_per_epoch, data.cache.kind, iter(data.train)
        if count("first", "first epoch", islice(batches, steps), steps, 3 * seconds) and cache != "off":
            for _ in islice(batches, steps):  # the start of the second epoch was prefetched while the first one ended
                pass
            count("later", "later epochs", batches, steps, seconds)
        del data, batches  # ends TensorFlow's threads, which may still be writing into the folder
    advice = [faster] if (faster := kind_of(config.dataset).faster) else []
    if cache == "off":
        advice.append("Every epoch reads and decodes again; data.cache=disk keeps the decoded examples in a file.")
    unit = "images" if len(examples.signature.shape) == 3 else "examples"
    return {"unit": unit, "parts": parts, "cache": cache, "advice": advice}
