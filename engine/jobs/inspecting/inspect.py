"""Inspects a dataset: its examples, their classes and sizes, bad files, and the speed of the pipeline."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from ...config.data_options import DATA_OPTIONS
from ...config.reading import parse_config
from ...data.examples import Task
from ...data.input_speed import save_input_speed
from ...data.sources.load import load_examples
from ...errors import ConsoleError
from .classes import class_balance
from .files import describe_images
from .ratings import describe_ratings
from .samples import picture_samples
from .texts import describe_texts, unknown_share

if TYPE_CHECKING:
    from collections.abc import Mapping

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
