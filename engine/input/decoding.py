"""Keeps decoded examples, and decodes image files before training, so that every damaged one is known by then.

Whether the inside of an image file is whole shows only when it is decoded. The pass that finds it out fills the cache
that training reads, so nothing is decoded twice.
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

_STRIDE = 16
"""One image of so many is handed to Python in the pass; the others only go into the cache, which costs less."""

_TELL_EVERY_S = 2.0
_NOT_DECODED = (
    "Images are not kept, and so they are not decoded before training: one whose header is right and whose inside is "
    "damaged ends the run, with its name."
)


@dataclass(frozen=True, slots=True)
class CachedExamples:
    """Examples that are read from a cache, as far as there is one.

    Args:
        examples: What is trained on; those that could not be decoded are no longer among them.
        train: The training examples, by way of the cache.
        validation: Likewise, or None.
        notices: What a person should know.
    """

    examples: Examples
    train: Any
    validation: Any
    notices: tuple[str, ...] = ()


def keep(
    examples: Examples, cache: Cache, folder: Path | None, on_progress: Callable[[str], None] | None = None
) -> CachedExamples:
    """Put a cache behind examples, and fill it with images.

    Args:
        examples: What was loaded.
        cache: Where they are kept.
        folder: The folder for a file, which may be made; None when there is none.
        on_progress: Told with a sentence every few seconds how far decoding is, and with an empty one often in
            between; what it raises ends the pass. None leaves decoding to the first epoch.

    Raises:
        DataError: Images cannot be decoded, and the dataset's options do not allow to leave them out.
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
    return _left(sifted.judge(examples), train, validation)


def untuned() -> Any:
    """Return options that switch the tuning thread off; prefetching then still tunes itself.

    That thread sleeps up to a minute at a time, and an iterator's end waits for it: `fit` returned 8 s late
    after a 35 s run on TensorFlow 2.21, and would hold a TPU that long.
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
    """Go once over datasets that are cached, given with the number of their images, and do nothing else with them."""
    total = sum(count or 0 for _, count in parts)
    on_progress(f"decoding {total:,} images")
    before, told = 0, time.monotonic()
    for dataset, count in parts:
        elements = () if dataset is None else dataset.shard(_STRIDE, 0).with_options(untuned())
        for number, _ in enumerate(elements):
            is_due = time.monotonic() - told > _TELL_EVERY_S
            told = time.monotonic() if is_due else told
            on_progress(f"decoding {before + number * _STRIDE + 1:,} of {total:,} images" if is_due else "")
        before += count or 0


def _left(left: Examples, train: Any, validation: Any) -> CachedExamples:
    """Return what is left after the pass, with its number, which the cache itself does not tell."""
    counted = tf.data.experimental.assert_cardinality
    train = train.apply(counted(left.train_count))
    validation = validation.apply(counted(left.validation_count)) if left.validation_count else None
    return CachedExamples(replace(left, train=train, validation=validation), train, validation, left.notices)
