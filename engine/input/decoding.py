"""Caches examples; images are decoded when they are first needed, or before training if damaged ones are skipped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from ..machine.resources import usable_cores
from .decoded_images import DecodedImages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from ..data.examples import Examples
    from .cache import Cache

_NOT_DECODED = (
    "Images are not cached, so they are not all decoded before training: an image with a valid header and damaged "
    "contents ends the run, with its name."
)


@dataclass(frozen=True, slots=True)
class CachedExamples:
    """Examples and the datasets that they are read from."""

    examples: Examples  # the examples that are left
    train: Any  # the training examples, read through the cache; of decoded images only their places
    validation: Any  # the validation examples, likewise; None without them
    # Makes training examples of a batch of places; None if `train` has the examples.
    fetch_train: Callable[[Any], Any] | None = None
    fetch_validation: Callable[[Any], Any] | None = None  # likewise
    images: DecodedImages | None = None  # the decoded images, if there are any
    notices: tuple[str, ...] = ()  # what the user should know


def cache_examples(
    examples: Examples, cache: Cache, folder: Path | None, on_progress: Callable[[str], None] | None = None
) -> CachedExamples:
    """Cache examples; raise `DataError` if images cannot be decoded, and too few are left.

    A folder for a cache file is created if needed. `on_progress` is called as in `DecodedImages.decode_missing`; None
    leaves images to the first epoch and to TensorFlow's own cache.
    """
    files = examples.files
    if on_progress is None or files is None:
        train = _cached(examples.train, cache, folder, "train")
        return CachedExamples(examples, train, _cached(examples.validation, cache, folder, "validation"))
    if cache.kind == "off" or (cache.kind == "disk" and folder is None):
        return CachedExamples(examples, examples.train, examples.validation, notices=(_NOT_DECODED,))
    images = DecodedImages(files, folder / "images" if cache.kind == "disk" and folder is not None else None)
    notices: tuple[str, ...] = ()
    if files.skips_damaged:
        images.decode_missing(on_progress)
        examples = files.without(examples, images.is_decoded)
        notices = examples.notices
        files = examples.files or files
    fetch_train = _fetch(images, files.train, files.train_labels)
    fetch_validation = _fetch(images, files.validation, files.validation_labels)
    train, validation = _places(files.train), _places(files.validation)
    examples = replace(examples, train=_single(train, fetch_train), validation=_single(validation, fetch_validation))
    return CachedExamples(examples, train, validation, fetch_train, fetch_validation, images, notices)


def fetched(batches: Any, fetch: Callable[[Any], Any] | None) -> Any:
    """Replace the places in batches by examples."""
    return batches if fetch is None else batches.map(fetch, num_parallel_calls=max(1, int(usable_cores())))


def _cached(dataset: Any, cache: Cache, folder: Path | None, name: str) -> Any:
    if dataset is not None and cache.kind == "memory":
        return dataset.cache()
    if dataset is None or cache.kind == "off" or folder is None:
        return dataset
    folder.mkdir(mode=0o700, exist_ok=True)
    return dataset.cache(str(folder / name))


def _places(numbers: NDArray[Any]) -> Any:
    return tf.data.Dataset.range(len(numbers)) if len(numbers) else None


def _fetch(images: DecodedImages, numbers: NDArray[Any], labels: NDArray[Any]) -> Callable[[Any], Any]:
    with tf.device("CPU:0"):
        known, classes = tf.constant(numbers), tf.constant(labels)
    return lambda places: (images.fetch(tf.gather(known, places)), tf.gather(classes, places))


def _single(places: Any, fetch: Callable[[Any], Any]) -> Any:
    """Return the examples at places one by one."""
    if places is None:
        return None
    count = int(places.cardinality())
    return places.batch(1).map(fetch).unbatch().apply(tf.data.experimental.assert_cardinality(count))
