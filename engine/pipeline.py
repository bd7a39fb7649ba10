"""The input pipeline: cache → shuffle → repeat → augment → batch(drop the remainder) → prefetch.

Augmentation comes after the cache, so that every epoch sees new changes of the same cached examples, and only
training data is augmented.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from engine.augmentation import augmenter
from engine.errors import DataError
from engine.plan import LARGEST_SHUFFLE

if TYPE_CHECKING:
    from engine.config import RunConfig
    from engine.examples import Examples


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Batched data, ready for `fit`.

    Args:
        train: Endless batches of (examples, labels); batches have a static shape.
        validation: Batches of one pass over the validation data, or None.
        steps_per_epoch: Training steps an epoch.
        global_batch: Examples a step over all replicas.
        remainder: Examples that an epoch over the whole dataset leaves out.
    """

    train: Any
    validation: Any
    steps_per_epoch: int
    global_batch: int
    remainder: int


def build_pipeline(examples: Examples, config: RunConfig, replicas: int) -> Pipeline:
    """Build the pipeline of a run.

    Args:
        examples: What was loaded.
        config: The configuration.
        replicas: Copies of the model; each gets ``config.batch_size`` examples a step.

    Raises:
        DataError: A batch does not fit, or the number of steps cannot be known.
    """
    batch = config.batch_size * replicas
    steps, remainder = _steps(examples.train_count, config, batch, replicas)
    train = examples.train.cache() if config.data.cache != "off" else examples.train
    buffer = config.data.shuffle_buffer or min(examples.train_count or LARGEST_SHUFFLE, LARGEST_SHUFFLE)
    train = train.shuffle(buffer, seed=config.seed, reshuffle_each_iteration=True).repeat()
    if config.augmentation.is_active:
        change = augmenter(config.augmentation, examples, config.seed)
        train = train.map(change, num_parallel_calls=tf.data.AUTOTUNE)
    train = _prepared(train.batch(batch, drop_remainder=True), examples, config)
    validation = examples.validation
    if validation is not None:
        if config.data.cache != "off":
            validation = validation.cache()
        size = _validation_batch(examples.validation_count, batch, replicas)
        # Of an unknown number of examples the last batch might leave a replica empty-handed.
        drop = examples.validation_count is None and replicas > 1
        validation = _prepared(validation.batch(size, drop_remainder=drop), examples, config)
    return Pipeline(train, validation, steps, batch, remainder)


def calibration_batch(examples: Examples, config: RunConfig, batch: int) -> Any:
    """Return an endless dataset of one training batch, which draws nothing from the run's own shuffling."""
    first = _prepared(examples.train.take(batch).repeat().batch(batch, drop_remainder=True), examples, config)
    return first.take(1).cache().repeat()


def _prepared(dataset: Any, examples: Examples, config: RunConfig) -> Any:
    """Convert batches of pixels to float, labels to what the loss takes, and fetch ahead.

    Pixels stay bytes until here: a quarter of the size to cache, shuffle and copy.
    """
    if examples.pixel_range:
        scale = 1.0 / examples.pixel_range if config.data.pixels == "unit" else 1.0
        dataset = dataset.map(lambda x, y: (tf.cast(x, tf.float32) * scale, y), num_parallel_calls=tf.data.AUTOTUNE)
    if config.loss == "categorical_crossentropy" and _has_integer_labels(dataset):
        dataset = dataset.map(
            lambda x, y: (x, tf.one_hot(y, examples.signature.classes)), num_parallel_calls=tf.data.AUTOTUNE
        )
    return dataset.prefetch(tf.data.AUTOTUNE).with_options(_options())


def _options() -> Any:
    """Switch the tuning thread off; AUTOTUNE then means one parallel call a core, and prefetching tunes itself.

    That thread sleeps up to a minute at a time, and an iterator's end waits for it: `fit` returned 8 s late
    after a 35 s run on TensorFlow 2.21, and would hold a TPU that long.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


def _has_integer_labels(dataset: Any) -> bool:
    label = dataset.element_spec[1]
    return bool(label.shape.rank == 1 and label.dtype.is_integer)


def _steps(count: int | None, config: RunConfig, batch: int, replicas: int) -> tuple[int, int]:
    if count is not None and count < batch:
        largest = count // replicas
        fits = f"The largest batch size that fits is {largest}." if largest else "Use fewer replicas."
        raise DataError(
            f"A global batch of {batch:,} ({config.batch_size:,} × {replicas}) is larger than the {count:,} "
            "training examples.",
            remedy=fits,
        )
    if config.steps_per_epoch != "all":
        return config.steps_per_epoch, 0
    if count is None:
        raise DataError(
            f"{config.dataset} does not tell how many examples it has.",
            remedy="Set steps_per_epoch, or give it a length: tf.data.experimental.assert_cardinality.",
        )
    return count // batch, count % batch


def _validation_batch(count: int | None, batch: int, replicas: int) -> int:
    """Choose a batch whose last, smaller one still gives every replica an example.

    A strategy deals a batch out in shares of ``ceil(batch / replicas)``; a replica left without one fails.

    Raises:
        DataError: There are too few validation examples for the replicas.
    """
    if replicas == 1 or count is None:
        return batch
    for size in chain(range(batch, 0, -replicas), range(batch + replicas, count + replicas, replicas)):
        rest = count % size
        if rest == 0 or -(-rest // replicas) * (replicas - 1) < rest:
            return size
    raise DataError(
        f"The {count:,} validation examples cannot be dealt out to {replicas} replicas.",
        remedy="Use fewer replicas, or another data.validation_fraction.",
    )
