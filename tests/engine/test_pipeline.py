"""The input pipeline: cached before anything random, shuffled and augmented anew in every epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from engine.errors import DataError
from engine.examples import Examples, Input, Signature, Task
from engine.pipeline import build_pipeline, calibration_batch
from tests.helpers import small_config

if TYPE_CHECKING:
    from collections.abc import Iterator


def image_signature(shape: tuple[int, ...], classes: int) -> Signature:
    """The signature of examples with one input and class numbers."""
    return Signature(Task.CLASSES, {"image": Input(shape)}, classes)


ROTATED = {"flip": "both", "rotation": 30.0, "translation": 0.2}


class Source:
    """Images that count how often they are read; image i is filled with i, label i."""

    def __init__(self, count: int, *, known: bool = True, pixel_range: float = 0.0) -> None:
        self.reads = 0
        self.validation_reads = 0
        self.examples = Examples(
            train=self._dataset(count, "reads", known),
            validation=self._dataset(7, "validation_reads", known),
            train_count=count if known else None,
            validation_count=7 if known else None,
            signature=image_signature((6, 6, 1), max(10, count)),
            pixel_range=pixel_range,
        )

    def _dataset(self, count: int, counter: str, known: bool) -> Any:
        def read() -> Iterator[tuple[Any, Any]]:
            for number in range(count):
                setattr(self, counter, getattr(self, counter) + 1)
                image = np.full((6, 6, 1), number, np.float32)
                image[:3, :2] += 100  # so that no turn or flip leaves it as it is
                yield image, np.int32(number)

        signature = (tf.TensorSpec((6, 6, 1), tf.float32), tf.TensorSpec((), tf.int32))
        dataset = tf.data.Dataset.from_generator(read, output_signature=signature)
        return dataset.apply(tf.data.experimental.assert_cardinality(count)) if known else dataset


def epochs_of(dataset: Any, steps: int, epochs: int) -> list[list[tuple[Any, Any]]]:
    """Batches of some epochs, drawn from one iterator as `fit` does."""
    iterator = iter(dataset)
    return [[tuple(part.numpy() for part in next(iterator)) for _ in range(steps)] for _ in range(epochs)]


def labels(epoch: list[tuple[Any, Any]]) -> list[int]:
    return [int(label) for _, batch in epoch for label in batch]


def images_by_label(epoch: list[tuple[Any, Any]]) -> dict[int, Any]:
    return {int(label): image for images, batch in epoch for image, label in zip(images, batch, strict=True)}


def test_every_epoch_holds_the_whole_dataset_once_in_another_order() -> None:
    pipeline = build_pipeline(Source(24).examples, small_config(batch_size=4), 1)
    assert (pipeline.steps_per_epoch, pipeline.global_batch, pipeline.remainder) == (6, 4, 0)
    first, second = (labels(epoch) for epoch in epochs_of(pipeline.train, 6, 2))
    assert sorted(first) == sorted(second) == list(range(24))
    assert first != second


def test_the_order_comes_from_the_seed() -> None:
    def order(seed: int) -> list[int]:
        pipeline = build_pipeline(Source(24).examples, small_config(batch_size=4, seed=seed), 1)
        return labels(epochs_of(pipeline.train, 6, 1)[0])

    assert order(1) == order(1) != order(2)


def test_a_remainder_is_dropped_and_batches_have_one_static_shape() -> None:
    pipeline = build_pipeline(Source(26).examples, small_config(batch_size=4), 2)
    assert (pipeline.steps_per_epoch, pipeline.global_batch, pipeline.remainder) == (3, 8, 2)
    assert pipeline.train.element_spec[0].shape.as_list() == [8, 6, 6, 1]
    assert {len(batch) for _, batch in epochs_of(pipeline.train, 9, 1)[0]} == {8}


def test_what_one_epoch_leaves_out_another_one_has() -> None:
    pipeline = build_pipeline(Source(26).examples, small_config(batch_size=8), 1)
    seen = {label for epoch in epochs_of(pipeline.train, 3, 6) for label in labels(epoch)}
    assert seen == set(range(26))


def test_the_data_is_read_once_and_then_cached() -> None:
    source = Source(12)
    pipeline = build_pipeline(source.examples, small_config(batch_size=4), 1)
    epochs_of(pipeline.train, 3, 4)
    list(pipeline.validation)
    list(pipeline.validation)
    assert (source.reads, source.validation_reads) == (12, 7)


def test_without_a_cache_every_epoch_reads_anew() -> None:
    source = Source(12)
    pipeline = build_pipeline(source.examples, small_config(batch_size=4, data={"cache": "off"}), 1)
    epochs_of(pipeline.train, 3, 4)
    list(pipeline.validation)
    list(pipeline.validation)
    assert source.reads >= 4 * 12
    assert source.validation_reads == 14


def test_every_epoch_sees_the_same_cached_images_changed_differently() -> None:
    source = Source(8)
    pipeline = build_pipeline(source.examples, small_config(batch_size=4, augmentation=ROTATED), 1)
    first, second = (images_by_label(epoch) for epoch in epochs_of(pipeline.train, 2, 2))
    assert first.keys() == second.keys() == set(range(8))
    assert sum(not np.array_equal(first[label], second[label]) for label in first) >= 6
    assert source.reads == 8


def test_images_of_one_batch_are_changed_differently() -> None:
    image = np.arange(36, dtype=np.float32).reshape(6, 6, 1)
    same = tf.data.Dataset.from_tensors((image, np.int32(0))).repeat(8)
    examples = Examples(same, None, 8, 0, image_signature((6, 6, 1), 10), 0.0)
    pipeline = build_pipeline(examples, small_config(batch_size=8, augmentation=ROTATED), 1)
    images = next(iter(pipeline.train))[0].numpy()
    assert len({image.tobytes() for image in images}) >= 6


def test_validation_images_are_never_changed() -> None:
    pipeline = build_pipeline(Source(8).examples, small_config(batch_size=4, augmentation=ROTATED), 1)
    plain = build_pipeline(Source(8).examples, small_config(batch_size=4), 1)
    changed_batches, plain_batches = list(pipeline.validation), list(plain.validation)
    assert sum(len(batch) for _, batch in changed_batches) == 7
    for (image, label), (same, also) in zip(changed_batches, plain_batches, strict=True):
        assert np.array_equal(image, same)
        assert label.numpy().tolist() == also.numpy().tolist()


@pytest.mark.parametrize("change", ["flip", "rotation", "translation", "zoom", "contrast", "brightness"])
def test_each_kind_of_change_changes_images(change: str) -> None:
    value = "both" if change == "flip" else 90.0 if change == "rotation" else 0.5
    generator = np.random.default_rng(1)
    data = (generator.integers(0, 255, (16, 6, 6, 1)).astype(np.uint8), np.arange(16, dtype=np.int32))
    examples = Examples(tf.data.Dataset.from_tensor_slices(data), None, 16, 0, image_signature((6, 6, 1), 16), 255.0)
    pipeline = build_pipeline(examples, small_config(batch_size=16, augmentation={change: value}), 1)
    images = images_by_label(epochs_of(pipeline.train, 1, 1)[0])
    before = {number: data[0][number].astype(np.float32) / 255 for number in range(16)}
    assert sum(not np.allclose(images[number], before[number], atol=1e-3) for number in images) >= 6
    assert all(
        image.shape == (6, 6, 1) and image.min() >= -1e-5 and image.max() <= 1 + 1e-5 for image in images.values()
    )


def test_changes_are_drawn_independently_of_each_other() -> None:
    image = np.arange(36, dtype=np.float32).reshape(6, 6, 1)
    examples = Examples(
        tf.data.Dataset.from_tensors((image, np.int32(0))).repeat(64), None, 64, 0, image_signature((6, 6, 1), 10)
    )
    pipeline = build_pipeline(examples, small_config(batch_size=64, augmentation={"flip": "both"}), 1)
    seen = {batch.tobytes() for batch in next(iter(pipeline.train))[0].numpy()}
    assert seen == {flipped.tobytes() for flipped in (image, image[::-1], image[:, ::-1], image[::-1, ::-1])}


def test_only_images_can_be_augmented() -> None:
    rows = tf.data.Dataset.from_tensor_slices((np.zeros((8, 3), np.float32), np.zeros(8, np.int32)))
    examples = Examples(rows, None, 8, 0, image_signature((3,), 2), 0.0)
    with pytest.raises(DataError, match=r"augmentation needs images.*\(3,\).*\[augmentation\]"):
        build_pipeline(examples, small_config(batch_size=4, augmentation={"flip": "horizontal"}), 1)


@pytest.mark.parametrize(("pixels", "largest"), [("unit", 1.0), ("raw", 16.0)])
def test_pixels_are_floats_of_the_range_that_was_asked_for(pixels: str, largest: float) -> None:
    data = (np.full((8, 6, 6, 1), 16, np.uint8), np.zeros(8, np.int32))
    dataset = tf.data.Dataset.from_tensor_slices(data)
    examples = Examples(dataset, dataset, 8, 8, image_signature((6, 6, 1), 10), 16.0)
    pipeline = build_pipeline(examples, small_config(batch_size=4, data={"pixels": pixels}), 1)
    for images, _ in (next(iter(pipeline.train)), next(iter(pipeline.validation))):
        assert images.dtype == tf.float32
        assert float(tf.reduce_max(images)) == largest


def test_labels_are_one_hot_where_the_loss_takes_a_probability_a_class() -> None:
    pipeline = build_pipeline(Source(8).examples, small_config(batch_size=4, loss="categorical_crossentropy"), 1)
    assert next(iter(pipeline.train))[1].shape == (4, 10)
    assert next(iter(pipeline.validation))[1].shape == (4, 10)


@pytest.mark.parametrize(
    ("count", "batch", "replicas", "remedy"),
    [(10, 11, 1, "The largest batch size that fits is 10."), (10, 3, 4, "fits is 2"), (3, 1, 4, "Use fewer replicas.")],
)
def test_a_batch_larger_than_the_data_is_explained(count: int, batch: int, replicas: int, remedy: str) -> None:
    with pytest.raises(DataError) as caught:
        build_pipeline(Source(count).examples, small_config(batch_size=batch), replicas)
    assert f"A global batch of {batch * replicas}" in caught.value.what
    assert remedy in caught.value.remedy


def test_an_unknown_number_of_examples_needs_a_number_of_steps() -> None:
    source = Source(10, known=False)
    with pytest.raises(DataError, match=r"does not tell how many examples.*steps_per_epoch"):
        build_pipeline(source.examples, small_config(batch_size=4), 1)
    pipeline = build_pipeline(source.examples, small_config(batch_size=4, steps_per_epoch=5), 1)
    assert pipeline.steps_per_epoch == 5
    assert len(labels(epochs_of(pipeline.train, 5, 1)[0])) == 20


def leaves_none_empty_handed(size: int, replicas: int) -> bool:
    """Whether a batch, dealt out in shares of its rounded-up part, has something for every replica."""
    return -(-size // replicas) * (replicas - 1) < size


@pytest.mark.parametrize("batch", [1, 4, 16])
@pytest.mark.parametrize("replicas", [2, 3, 8])
@pytest.mark.parametrize("count", [8, 9, 17, 41, 100, 360, 1001])
def test_the_last_validation_batch_leaves_no_replica_empty_handed(count: int, replicas: int, batch: int) -> None:
    dataset = tf.data.Dataset.range(count).map(lambda n: (tf.cast(n, tf.float32), n))
    examples = Examples(dataset.repeat(), dataset, 1000, count, image_signature((), 2), 0.0)
    config = small_config(batch_size=batch)
    whole = range(replicas, count + replicas, replicas)
    if not any(leaves_none_empty_handed(count % size or size, replicas) for size in whole):
        with pytest.raises(
            DataError, match=f"{count:,} validation examples cannot be dealt out to {replicas} replicas"
        ):
            build_pipeline(examples, config, replicas)
        return
    sizes = [len(labels) for _, labels in build_pipeline(examples, config, replicas).validation]
    assert sum(sizes) == count
    assert all(leaves_none_empty_handed(size, replicas) for size in sizes)


def test_timing_reads_a_batch_of_its_own_and_leaves_the_run_s_order_alone() -> None:
    source = Source(100)
    config = small_config(batch_size=4)
    pipeline = build_pipeline(source.examples, config, 1)
    first = epochs_of(calibration_batch(source.examples, config, 4), 5, 1)[0]
    assert len({image.tobytes() for image, _ in first}) == 1
    assert source.reads <= 12  # the batch, and what was fetched ahead
    undisturbed = build_pipeline(Source(100).examples, config, 1)
    assert labels(epochs_of(pipeline.train, 2, 1)[0]) == labels(epochs_of(undisturbed.train, 2, 1)[0])
