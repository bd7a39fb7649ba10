"""Caches decoded examples, and decodes all image files before training to find the damaged ones.

Only decoding shows whether the contents of an image file are valid. This pass fills the cache that training reads, so
nothing is decoded twice.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ..data.examples import Examples
    from .cache import Cache

_STRIDE = 16  # only every n-th image of the pass is passed to Python, to save time; the others only go into the cache
_REPORT_EVERY_S = 2.0
_NOT_DECODED = (
    "Images are not cached, so they are not all decoded before training: an image with a valid header and damaged "
    "contents ends the run, with its name."
)


@dataclass(frozen=True, slots=True)
class CachedExamples:
    """Examples and the cached datasets that they are read from."""

    examples: Examples
    train: Any  # the training examples, read through the cache
    validation: Any  # the validation examples, likewise; None without them
    notices: tuple[str, ...] = ()  # what the user should know


def cache_examples(
    examples: Examples, cache: Cache, folder: Path | None, on_progress: Callable[[str], None] | None = None
) -> CachedExamples:
    """Cache examples; images are decoded and cached before training.

    Args:
        folder: The folder for a cache file, created if needed; None without one.
        on_progress: Called with a sentence about the progress every few seconds, and often with an empty string in
            between; an exception from it ends the pass. None leaves decoding to the first epoch.

    Raises:
        DataError: Images cannot be decoded, and the dataset's options do not skip them.
    """
    if on_progress is None or examples.sift is None:
        train = _cached(examples.train, cache, folder, "train")
        return CachedExamples(examples, train, _cached(examples.validation, cache, folder, "validation"))
    if cache.kind == "off" or (cache.kind == "disk" and folder is None):
        return CachedExamples(examples, examples.train, examples.validation, (_NOT_DECODED,))
    sifted = examples.sift()
    train = _cached(sifted.train, cache, folder, "train")
    validation = _cached(sifted.validation, cache, folder, "validation")
    _pass_over(((train, examples.train_count), (validation, examples.validation_count)), on_progress)
    return _left(sifted.finish(examples), train, validation)


def untuned() -> Any:
    """Return options that turn off the autotune thread; prefetching still tunes itself.

    That thread sleeps up to a minute, and the end of an iterator waits for it: `fit` returned 8 s late after a 35 s
    run on TensorFlow 2.21, and would hold a TPU that long.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


def _cached(dataset: Any, cache: Cache, folder: Path | None, name: str) -> Any:
    if dataset is not None and cache.kind == "memory":
        return dataset.cache()
    if dataset is None or cache.kind == "off" or folder is None:
        return dataset
    folder.mkdir(mode=0o700, exist_ok=True)
    return dataset.cache(str(folder / name))


def _pass_over(parts: Sequence[tuple[Any, int | None]], on_progress: Callable[[str], None]) -> None:
    """Iterate once over cached datasets, given with their numbers of images."""
    total = sum(count or 0 for _, count in parts)
    on_progress(f"decoding {total:,} images")
    before, reported_s = 0, time.monotonic()
    for dataset, count in parts:
        elements = () if dataset is None else dataset.shard(_STRIDE, 0).with_options(untuned())
        for number, _ in enumerate(elements):
            is_due = time.monotonic() - reported_s > _REPORT_EVERY_S
            reported_s = time.monotonic() if is_due else reported_s
            on_progress(f"decoding {before + number * _STRIDE + 1:,} of {total:,} images" if is_due else "")
        before += count or 0


def _left(left: Examples, train: Any, validation: Any) -> CachedExamples:
    """Return the examples that are left after the pass, with their number, which a cached dataset does not know."""
    counted = tf.data.experimental.assert_cardinality
    train = train.apply(counted(left.train_count))
    validation = validation.apply(counted(left.validation_count)) if left.validation_count else None
    return CachedExamples(replace(left, train=train, validation=validation), train, validation, left.notices)
