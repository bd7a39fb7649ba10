"""Builds the input pipeline: cache → shuffle → batch (dropping the remainder) → repeat → augment → prefetch.

Augmentation comes after the cache, so that it differs in every epoch, and applies to training data only. It works on
whole batches, which is faster; each image still has its own random numbers.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import tensorflow as tf
from msgspec import Struct

from ..accelerators.framework import Share
from ..config.options import LARGEST_SHUFFLE
from ..config.run_config import RunConfig
from ..config.values import USUAL_BATCH
from ..data.examples import Examples, PassCalls, known_length, label_of
from ..data.images.examples import DAMAGED, as_written, untuned
from ..data.labels import class_numbers, has_class_labels, sample_weights, training_weights
from ..errors import DataError
from ..machine.environment import free_memory_bytes, usable_cores
from ..storage.files import free_bytes, size_text
from .augment import Placement, augmenter, choose_placement

_MEMORY_SHARE = 0.5  # fraction of free memory that cached examples may take
# Fraction of free memory for the shuffle buffer, if examples are not cached in memory. Its examples are allocated and
# freed in other threads, which takes three times their size (measured with glibc).
_SHUFFLE_SHARE = 0.125
_DISK_SHARE = 0.9
_OVERHEAD_BYTES = 256  # what TensorFlow needs per cached example besides its values
_BATCHES_AT_ONCE_BYTES = 1 << 30  # most memory for batches that are prepared in parallel
_CONVERTED_APART, _CHANGED_APART = 1 << 18, 1 << 15
"""Values in a batch from which other threads are worth it, to convert batches and to augment them.

Passing a batch to another thread takes some 10 µs of CPU, and timing it in `engine.monitoring.input_rate` as much
again: with steps of a millisecond that is 2% of a core.
"""


class Cache(Struct, frozen=True):
    """Where decoded examples are cached."""

    kind: str  # ``memory``, ``disk`` or ``off``
    reason: str  # where and why, in one phrase
    shuffle_most: int | None = None  # most examples in the shuffle buffer; None without a limit
    notice: str = ""  # what the user should know; empty if there is nothing


class Room(Struct, frozen=True):
    """Free space for cached examples."""

    memory_bytes: int
    disk_bytes: int  # free space on the run's disk; 0 without a folder


def choose_cache(
    asked: str, count: int | None, example_bytes: int | None, room: Room, *, is_fixed: bool = True
) -> Cache:
    """Decide where examples are cached; `count` and `example_bytes` are None if unknown or varying.

    Examples that may differ from epoch to epoch, so not `is_fixed`, are only cached if that is asked for. Raises
    `DataError` if the cache must be on disk, and the disk is too small.
    """
    each = None if example_bytes is None else example_bytes + _OVERHEAD_BYTES
    most = None if each is None else int(_SHUFFLE_SHARE * room.memory_bytes / each)
    needed = None if each is None or count is None else count * each
    size = "examples of unknown size" if needed is None else f"{count:,} examples ({size_text(needed)})"
    fits_disk = needed is not None and needed <= _DISK_SHARE * room.disk_bytes
    if asked == "disk" and needed is not None and not fits_disk:
        what = f"data.cache is disk, but {size} do not fit: {size_text(room.disk_bytes)} are free on the run's disk."
        remedy = "Free space, set data.cache=off, or set TPU_CONSOLE_HOME to a folder on a larger disk."
        raise DataError(what, remedy=remedy)
    kind, why = asked, f" (data.cache={asked})"
    if asked == "auto" and not is_fixed:
        kind, why = "off", ": your data may give other examples in each epoch"
    elif asked == "auto":
        fits_memory = needed is not None and needed <= _MEMORY_SHARE * room.memory_bytes
        kind = "memory" if fits_memory else "disk" if fits_disk else "off"
        why = f": {size}, with {size_text(room.memory_bytes)} of memory and {size_text(room.disk_bytes)} of disk free"
    reason = {"memory": "in memory", "disk": "in a file in the run folder", "off": "not cached"}[kind] + why
    notice = ""
    if kind == "off" and asked == "auto" and is_fixed:
        notice = f"Examples are read again in every epoch{why}. data.cache=memory or disk caches them."
    return Cache(kind, reason, None if kind == "memory" else most, notice)


class Pipeline(Struct, frozen=True):
    """Batched data, ready for `fit`."""

    train: Any  # endless batches of (examples, labels), with sample weights if there are any; of a static shape
    train_from: Callable[[int], Any]  # makes the same batches without the first so many
    validation: Any  # batches of one pass over the validation data, or None
    steps_per_epoch: int  # training steps per epoch
    global_batch: int  # examples per step over all replicas
    remainder: int  # examples that an epoch over the whole dataset drops
    # Makes an endless dataset of one training batch, without advancing the run's shuffling.
    calibration: Callable[[], Any]
    cache: Cache  # where decoded examples are cached, and why
    placement: Placement  # where images are augmented, and why
    examples: Examples  # the examples that it is built from
    shuffle_buffer: int | None = None  # examples in the shuffle buffer
    notices: tuple[str, ...] = ()  # what the user should know

    @contextmanager
    def reading(self, on_decoding: Callable[[str], None]) -> Iterator[None]:
        """Train in the body: an error about a damaged image becomes one that names all damaged images.

        `on_decoding` is called with the progress of the search for them.
        """
        try:
            yield
        except tf.errors.OpError as error:
            if self.examples.without_damaged is not None and DAMAGED in error.message:
                self.examples.without_damaged(on_decoding)
            raise


def build_pipeline(
    examples: Examples,
    config: RunConfig,
    replicas: int,
    accelerator: str = "cpu",
    cache_folder: Path | None = None,
    room: Room | None = None,
    share: Share | None = None,
) -> Pipeline:
    """Build the pipeline of a run, in which each replica gets ``config.batch_size`` examples per step.

    The name of the accelerator decides where augmentation happens. A folder for cached examples is created if needed.
    `room` is the free memory and disk space, by default measured; `share` this host's share of every batch, by default
    all. Raises `DataError` if a batch is too large, the number of steps is unknown, examples differ in size, or the
    configuration does not fit them.
    """
    kept, held_out = examples.batches  # the user's
    if replicas > 1 and held_out is not None and _example_bytes(examples.validation) is not None:
        held_out = None  # its examples are batched so that replicas can share them without a rest
    count, batch = examples.train_count, (config.batch_size or USUAL_BATCH) * replicas
    if kept:
        batch = examples.batch // replicas * replicas
    _check(examples, config, batch, replicas)
    in_pass = known_length(kept) if kept else None if count is None else count // batch
    is_pass = config.steps_per_epoch == "all"
    steps: Any = in_pass if is_pass else config.steps_per_epoch
    if steps is None:
        remedy = "Set steps_per_epoch, or set the number with tf.data.experimental.assert_cardinality."
        raise DataError(f"{config.dataset} has an unknown number of examples.", remedy=remedy)
    placement = choose_placement(config.augmentation, accelerator)
    cache = choose_cache(
        config.data.cache,
        None if count is None or examples.validation_count is None else count + examples.validation_count,
        _example_bytes(examples.train),
        room or Room(free_memory_bytes(), (free_bytes(cache_folder.parent) if cache_folder else None) or 0),
        is_fixed=examples.is_fixed and not kept,
    )
    cached, validation = (
        _cached(batches or single, cache, cache_folder, name)
        for batches, single, name in ((kept, examples.train, "train"), (held_out, examples.validation, "validation"))
    )
    buffer = config.data.shuffle_buffer or min(count or LARGEST_SHUFFLE, LARGEST_SHUFFLE)
    notices = [cache.notice]
    if not config.data.shuffle_buffer and cache.shuffle_most is not None and cache.shuffle_most < buffer:
        notices.append(
            f"The shuffle buffer holds {max(1, cache.shuffle_most):,} examples instead of {buffer:,}: more do not fit "
            "in memory. Change it with data.shuffle_buffer."
        )
        buffer = max(1, cache.shuffle_most)
    batching = _Batching(examples, config, replicas, batch, in_pass, share or Share())
    weights = training_weights(examples, config.class_weight)
    in_pipeline = config.augmentation.is_active and not placement.in_model

    def train_from(first: int) -> Any:
        return batching.prepared(
            batching.endless(cached, first, 0 if kept else buffer), weights, first if in_pipeline else None
        )

    def calibration() -> Any:
        if kept:
            batches = batching.divided(kept.take(1).repeat(), Share())
        else:
            batches = examples.train.take(batch).repeat().batch(batch, drop_remainder=True)
        return batching.prepared(batches, weights).take(1).cache().repeat()

    if validation is not None:
        if held_out is not None:
            validation = batching.divided(validation, batching.share)
        else:
            validation, notice = batching.validation(validation)
            notices.append(notice)
        validation = batching.prepared(_calling(validation, examples.pass_calls[1]))
    return Pipeline(
        train_from(0),
        train_from,
        validation,
        steps,
        batch,
        count % batch if is_pass and count and not kept else 0,
        calibration,
        cache,
        placement,
        examples,
        buffer,
        tuple(filter(None, notices)),
    )


def _check(examples: Examples, config: RunConfig, batch: int, replicas: int) -> None:
    """Raise `DataError` if examples cannot be put into batches of a size, or their labels cannot be mixed or smoothed.

    Ragged examples can be batched.
    """
    kept, count = examples.batches[0] is not None, examples.train_count
    for part in tf.nest.flatten(examples.train.element_spec[0]):
        is_batched = kept and not config.augmentation.is_active
        if isinstance(part, tf.TensorSpec) and not is_batched and not part.shape.is_fully_defined():
            raise DataError(
                f"The examples of {config.dataset} have shape {part.shape}: their sizes differ or are unknown.",
                why="A batch needs examples of one size, and so does a compiled TPU program.",
                remedy="Give them one size in the dataset function, such as with tf.image.resize or tf.ensure_shape. "
                "Or batch them there, as with padded_batch.",
            )
    if config.effective_loss != config.loss_name and not has_class_labels(examples):
        key = "label_smoothing" if config.label_smoothing else "augmentation.mixup and cutmix"
        what = f"{key} needs one class for each example of {config.dataset}, and a known number of classes."
        raise DataError(what, remedy="Set it to 0, or return one-hot labels from the dataset function.")
    if kept and not batch:
        what = f"{config.dataset} gives batches of {examples.batch:,} examples, too small for {replicas} replicas."
        raise DataError(what, remedy="Return larger batches, or use fewer replicas.")
    if not kept and count is not None and count < batch:
        largest = count // replicas
        fits = f"The largest batch size that fits is {largest}." if largest else "Use fewer replicas."
        batches = f"A global batch of {batch:,} ({batch // replicas:,} × {replicas})"
        raise DataError(f"{batches} is larger than the {count:,} training examples.", remedy=fits)


def _cached(dataset: Any, cache: Cache, folder: Path | None, name: str) -> Any:
    if dataset is not None and cache.kind == "memory":
        return dataset.cache()
    if dataset is None or cache.kind == "off" or folder is None:
        return dataset
    folder.mkdir(mode=0o700, exist_ok=True)
    return dataset.cache(str(folder / name))


def largest_pixel(examples: Examples, config: RunConfig) -> float:
    """Return the largest value of a pixel as the model gets it."""
    return 1.0 if examples.pixel_range and config.data.pixels == "unit" else _largest_stored(examples)


def _largest_stored(examples: Examples) -> float:
    """Return the largest value of a pixel in the dataset, from its number format if the dataset does not say."""
    images = tf.nest.flatten(examples.train.element_spec[0])[0]
    return examples.pixel_range or (255.0 if images.dtype == tf.uint8 else 1.0)


def _example_bytes(dataset: Any) -> int | None:
    """Return the size of one example with its label in bytes; None if sizes differ."""
    parts = tf.nest.flatten(dataset.element_spec)
    sizes = [None if part.dtype == tf.string else part.shape.num_elements() for part in parts]
    return None if None in sizes else sum(size * part.dtype.size for size, part in zip(sizes, parts, strict=True))


def _calling(dataset: Any, calls: PassCalls) -> Any:
    """Return a dataset that calls functions before its first element is read, and when all have been."""

    def only(function: Callable[[], object]) -> Any:
        def nothing() -> Iterator[Any]:
            function()
            yield from ()

        return tf.data.Dataset.from_generator(nothing, output_signature=dataset.element_spec)

    called = dataset if calls.begin is None else only(calls.begin).concatenate(dataset)
    return called if calls.end is None else called.concatenate(only(calls.end))


class _Batching(Struct, frozen=True):
    """Makes batches of a run's examples."""

    examples: Examples
    config: RunConfig
    replicas: int
    size: int  # examples in a batch over all replicas
    in_pass: int | None  # batches in a pass over the training data; None if unknown
    share: Share  # this host's share of every batch

    def endless(self, dataset: Any, first: int, buffer: int) -> Any:
        """Return this host's training batches after the first so many, without end; each pass drops its remainder.

        The order of a pass depends only on the seed and its number; without a `buffer`, batches keep theirs.
        """
        calls, share, in_pass = self.examples.pass_calls[0], self.share, self.in_pass
        if not buffer:
            dataset = self.divided(dataset, share)

        def examples_of(number: Any) -> Any:
            if not buffer:
                return _calling(dataset, calls)
            # The seed of this function's graph: TensorFlow refuses 0 together with a seed that is a tensor.
            tf.compat.v1.set_random_seed(self.config.seed % (2**31 - 2) + 1)
            return _calling(dataset.shuffle(buffer, seed=number, reshuffle_each_iteration=False), calls)

        def batched(examples: Any) -> Any:
            # Every host shuffles all examples in the same order and takes every n-th: together they see whole batches.
            return self._batched(examples, self.size, drop_remainder=True) if buffer else examples

        def batches_of(number: Any) -> Any:
            batches = batched(examples_of(number))
            if share.count == 1:
                return batches
            # A host's part of the remainder may be another batch. Not `take`: only a whole pass fills the cache.
            return batches.enumerate().filter(lambda index, _: index < in_pass).map(lambda _, element: element)

        if in_pass is None:  # where a pass ends is only known there: read from the beginning
            return batched(tf.data.Dataset.counter().flat_map(as_written(examples_of))).skip(first)
        passes = tf.data.Dataset.counter(first // in_pass).flat_map(as_written(batches_of))
        return passes.skip(first % in_pass)

    def validation(self, dataset: Any) -> tuple[Any, str]:
        """Return this host's batches of the validation examples, and a notice about skipped ones."""
        count, replicas, notice = self.examples.validation_count, self.replicas, ""
        if self.share.is_even and count is not None and (rest := count % replicas):
            notice = f"Validation skips {rest} of {count:,} examples, which {replicas} replicas cannot share evenly."
            count -= rest
            dataset = dataset.take(count)
        size = validation_batch(count, self.size, replicas)
        # With an unknown number of examples, the last batch might leave a replica without any.
        return self._batched(dataset, size, drop_remainder=count is None and replicas > 1), notice

    def _batched(self, dataset: Any, size: int, *, drop_remainder: bool) -> Any:
        """Return this host's part of batches of a size."""
        share = self.share
        part = dataset.shard(share.count, share.index) if share.count > 1 else dataset
        return part.batch(size // share.count, drop_remainder=drop_remainder)

    def divided(self, batches: Any, share: Share) -> Any:
        """Return a host's part of batches that replicas share equally; a rest that they cannot share is dropped."""
        replicas = self.replicas
        if replicas == 1:
            return batches

        def size_of(*element: Any) -> Any:
            first = tf.nest.flatten(element)[0]
            return first.shape[0] or (first.nrows() if isinstance(first, tf.RaggedTensor) else tf.shape(first)[0])

        def part(*element: Any) -> Any:
            shared = size_of(*element) // replicas * replicas
            return tf.nest.map_structure(lambda one: one[:shared][share.index :: share.count], element)

        return batches.filter(lambda *element: size_of(*element) >= replicas).map(part)

    def prepared(self, dataset: Any, weights: Any = None, first: int | None = None) -> Any:
        """Convert batches to what the model and its loss need, and prefetch.

        Pixels stay uint8 until here: a quarter of the size to cache, shuffle and copy. The weights are those of the
        classes in training. With the number of the `first` batch, images are augmented, differently on each host.
        """
        examples, config, share = self.examples, self.config, self.share
        label, signature = label_of(dataset), examples.signature
        has_numbers = label is not None and (label.shape.rank == 1 or label.shape.as_list()[1:] == [1])
        one_hot = config.takes_shares and has_numbers and label.dtype.is_integer
        top = _largest_stored(examples)
        scale = largest_pixel(examples, config) / top
        change = None if first is None else augmenter(config.augmentation, signature.shape, top, scale, config.seed)

        def prepare(number: Any, element: Any) -> Any:
            inputs, *rest = element
            if not rest:  # no labels
                return element
            labels, *given = rest
            if one_hot:
                labels = tf.one_hot(class_numbers(labels), signature.classes)
            if change is not None:
                inputs, (labels, *given) = change(number, inputs, (labels, *given))
            elif examples.pixel_range:
                inputs = tf.cast(inputs, tf.float32) * scale
            if weights is not None:
                balance = sample_weights(labels, weights)
                given = [balance * tf.cast(given[0], tf.float32) if given else balance]
            return (inputs, labels, *given)

        if one_hot or change is not None or examples.pixel_range or weights is not None:
            # One batch per core in parallel, or fewer if they need too much memory; small ones need no other threads.
            sizes = [part.shape.num_elements() for part in tf.nest.flatten(dataset.element_spec)]
            values, least = sum(size or 1 for size in sizes), _CONVERTED_APART if change is None else _CHANGED_APART
            most = max(1, min(usable_cores(), _BATCHES_AT_ONCE_BYTES // (4 * values)))
            calls = None if None not in sizes and values < least else most
            if first is None:
                dataset = dataset.map(as_written(lambda *element: prepare(0, element)), num_parallel_calls=calls)
            else:
                numbers = tf.data.Dataset.counter(first * share.count + share.index, share.count)
                dataset = tf.data.Dataset.zip((numbers, dataset)).map(as_written(prepare), num_parallel_calls=calls)
        if len(dataset.element_spec) == 1 and not isinstance(dataset.element_spec[0], tuple):
            dataset = dataset.map(lambda inputs: inputs)  # as Keras passes inputs alone to a training step
        return dataset.prefetch(tf.data.AUTOTUNE).with_options(untuned())


def validation_batch(count: int | None, batch: int, replicas: int) -> int:
    """Choose a batch size with which the last, smaller batch still has an example for every replica.

    A strategy splits a batch into parts of ``ceil(batch / replicas)``; a replica without examples fails. Raises
    `DataError` if there are too few for the replicas.
    """
    if replicas == 1 or count is None:
        return batch
    for size in chain(range(batch, 0, -replicas), range(batch + replicas, count + replicas, replicas)):
        rest = count % size
        if rest == 0 or -(-rest // replicas) * (replicas - 1) < rest:
            return size
    what = f"The {count:,} validation examples cannot be split over {replicas} replicas."
    raise DataError(what, remedy="Use fewer replicas or another data.validation_fraction.")
