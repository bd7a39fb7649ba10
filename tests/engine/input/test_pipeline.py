"""The input pipeline: cached before anything random, shuffled and augmented anew in every epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import private_mode, replace, small_config
from tpu_console.engine.accelerators.framework import Share
from tpu_console.engine.data.examples import Examples, Input, Signature, Task
from tpu_console.engine.errors import DataError
from tpu_console.engine.input.pipeline import Room, build_pipeline, validation_batch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tpu_console.engine.config.run_config import RunConfig


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


def test_a_remainder_is_dropped_and_batches_have_one_static_shape() -> None:
    pipeline = build_pipeline(Source(26).examples, small_config(batch_size=4), 2)
    assert (pipeline.steps_per_epoch, pipeline.global_batch, pipeline.remainder) == (3, 8, 2)
    assert pipeline.train.element_spec[0].shape.as_list() == [8, 6, 6, 1]
    assert {len(batch) for _, batch in epochs_of(pipeline.train, 9, 1)[0]} == {8}


def test_examples_that_one_epoch_drops_appear_in_another() -> None:
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


def test_without_a_cache_every_epoch_reads_again() -> None:
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


def test_validation_images_are_never_changed() -> None:
    pipeline = build_pipeline(Source(8).examples, small_config(batch_size=4, augmentation=ROTATED), 1)
    plain = build_pipeline(Source(8).examples, small_config(batch_size=4), 1)
    changed_batches, plain_batches = list(pipeline.validation), list(plain.validation)
    assert sum(len(batch) for _, batch in changed_batches) == 7
    for (image, label), (same, also) in zip(changed_batches, plain_batches, strict=True):
        assert np.array_equal(image, same)
        assert label.numpy().tolist() == also.numpy().tolist()


def test_two_runs_of_one_seed_see_the_same_batches() -> None:
    def batches(seed: int) -> list[bytes]:
        changes = {"flip": "both", "erasing": 0.5}
        config = small_config(batch_size=4, seed=seed, augmentation=changes)
        (epoch,) = epochs_of(build_pipeline(Source(12).examples, config, 1).train, 6, 1)
        return [images.tobytes() + labels.tobytes() for images, labels in epoch]

    first = batches(1)
    assert batches(1) == first
    assert len(set(first) | set(batches(2))) == 12


def test_mixed_labels_are_shares_for_training_and_one_hot_for_validation() -> None:
    config = small_config(batch_size=8, augmentation={"mixup": 1.0})
    pipeline = build_pipeline(Source(16).examples, config, 1)
    train, validation = next(iter(pipeline.train))[1].numpy(), next(iter(pipeline.validation))[1].numpy()
    assert train.shape == (8, 16)
    assert np.allclose(train.sum(axis=1), 1)
    assert 0 < np.sort(train, axis=1)[:, -2].max() < 1  # two classes share
    assert np.array_equal(validation, np.eye(16)[:7])


@pytest.mark.parametrize("changes", [{"label_smoothing": 0.1}, {"loss": "categorical_crossentropy"}])
def test_labels_are_one_hot_if_the_loss_needs_a_probability_per_class(changes: dict[str, Any]) -> None:
    pipeline = build_pipeline(Source(8).examples, small_config(batch_size=4, **changes), 1)
    for labels in (next(iter(data))[1].numpy() for data in (pipeline.train, pipeline.validation)):
        assert labels.shape == (4, 10)
        assert set(np.unique(labels)) == {0, 1}


def test_only_examples_of_one_known_class_have_labels_to_smooth() -> None:
    unknown = replace(Source(8).examples, signature=image_signature((6, 6, 1), 0))
    words = tf.data.Dataset.from_tensor_slices((np.zeros((8, 5), np.int32), np.zeros((8, 6), np.int32)))
    sentences = Examples(words, None, 8, 0, Signature(Task.TRANSLATION, {"source": Input((5,), "int32")}))
    for examples in (unknown, sentences):
        with pytest.raises(DataError, match="label_smoothing needs"):
            build_pipeline(examples, small_config(batch_size=4, label_smoothing=0.1), 1)


@pytest.mark.parametrize("shape", [(6, None, 3), None])
def test_examples_of_different_sizes_are_refused(shape: tuple[int | None, ...] | None) -> None:
    vague = tf.data.Dataset.from_generator(
        lambda: iter(()), output_signature=(tf.TensorSpec(shape, tf.float32), tf.TensorSpec((), tf.int32))
    )
    with pytest.raises(DataError, match=r"sizes differ.*tf\.image\.resize"):
        build_pipeline(replace(Source(8).examples, train=vague), small_config(batch_size=4), 1)


def test_a_file_keeps_examples_as_memory_does(tmp_path: Path) -> None:
    source = Source(12)
    config = small_config(batch_size=4, data={"cache": "disk"})
    pipeline = build_pipeline(source.examples, config, 1, cache_folder=tmp_path / "cache")
    held = build_pipeline(Source(12).examples, small_config(batch_size=4), 1)
    assert [labels(epoch) for epoch in epochs_of(pipeline.train, 3, 4)] == [
        labels(epoch) for epoch in epochs_of(held.train, 3, 4)
    ]
    for _ in range(2):
        assert labels(list(pipeline.validation)) == list(range(7))
    assert (source.reads, source.validation_reads) == (12, 7)
    assert sum(file.stat().st_size for file in (tmp_path / "cache").iterdir()) > 12 * 6 * 6 * 4
    assert private_mode(tmp_path / "cache") == 0o700


def test_the_shuffle_buffer_fits_in_memory() -> None:
    each = 6 * 6 * 4 + 4 + 256
    config = small_config(batch_size=4, data={"cache": "off"})
    pipeline = build_pipeline(Source(100).examples, config, 1, room=Room(memory_bytes=8 * 10 * each, disk_bytes=0))
    (notice,) = pipeline.notices
    assert "10 examples instead of 100" in notice
    first = labels(epochs_of(pipeline.train, 25, 1)[0])
    assert sorted(first) == list(range(100))
    assert max(number - place for place, number in enumerate(first)) < 10


def test_changes_placed_in_the_model_are_not_made_here_as_well() -> None:
    config = small_config(batch_size=8, augmentation={"flip": "both", "placement": "model"})
    pipeline = build_pipeline(Source(8).examples, config, 1)
    plain = build_pipeline(Source(8).examples, small_config(batch_size=8), 1)
    assert pipeline.placement.in_model
    changed, same = (images_by_label(epochs_of(data.train, 1, 1)[0]) for data in (pipeline, plain))
    assert all(np.array_equal(changed[label], same[label]) for label in range(8))


def test_only_images_can_be_augmented() -> None:
    rows = tf.data.Dataset.from_tensor_slices((np.zeros((8, 3), np.float32), np.zeros(8, np.int32)))
    examples = Examples(rows, None, 8, 0, image_signature((3,), 2), 0.0)
    with pytest.raises(DataError, match=r"augmentation needs images.*\(3,\).*\[augmentation\]"):
        build_pipeline(examples, small_config(batch_size=4, augmentation={"flip": "horizontal"}), 1)


@pytest.mark.parametrize(("pixels", "largest"), [("unit", 1.0), ("raw", 16.0)])
def test_pixels_are_floats_in_the_configured_range(pixels: str, largest: float) -> None:
    data = (np.full((8, 6, 6, 1), 16, np.uint8), np.zeros(8, np.int32))
    dataset = tf.data.Dataset.from_tensor_slices(data)
    examples = Examples(dataset, dataset, 8, 8, image_signature((6, 6, 1), 10), 16.0)
    pipeline = build_pipeline(examples, small_config(batch_size=4, data={"pixels": pixels}), 1)
    for images, _ in (next(iter(pipeline.train)), next(iter(pipeline.validation))):
        assert images.dtype == tf.float32
        assert float(tf.reduce_max(images)) == largest


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
    with pytest.raises(DataError, match=r"an unknown number of examples.*steps_per_epoch"):
        build_pipeline(source.examples, small_config(batch_size=4), 1)
    pipeline = build_pipeline(source.examples, small_config(batch_size=4, steps_per_epoch=5), 1)
    assert pipeline.steps_per_epoch == 5
    assert len(labels(epochs_of(pipeline.train, 5, 1)[0])) == 20


def leaves_none_empty_handed(size: int, replicas: int) -> bool:
    """Whether a batch, dealt out in shares of its rounded-up part, has something for every replica."""
    return -(-size // replicas) * (replicas - 1) < size


@pytest.mark.parametrize("replicas", [2, 3, 8])
@pytest.mark.parametrize("count", [8, 9, 17, 41, 100, 360, 1001])
def test_every_replica_gets_examples_of_the_last_validation_batch(count: int, replicas: int) -> None:
    whole = range(replicas, count + replicas, replicas)
    is_possible = any(leaves_none_empty_handed(count % size or size, replicas) for size in whole)
    for batch in (1, 4, 16):
        if is_possible:
            size = validation_batch(count, batch * replicas, replicas)
            assert all(leaves_none_empty_handed(last, replicas) for last in (size, count % size or size))
        else:
            with pytest.raises(DataError, match=f"cannot be split over {replicas} replicas"):
                validation_batch(count, batch * replicas, replicas)


def test_timing_reads_a_separate_batch_and_keeps_the_order_of_the_run() -> None:
    source = Source(100)
    config = small_config(batch_size=4)
    pipeline = build_pipeline(source.examples, config, 1)
    first = epochs_of(pipeline.calibration(), 5, 1)[0]
    assert len({image.tobytes() for image, _ in first}) == 1
    assert source.reads <= 12  # the batch, and what was fetched ahead
    undisturbed = build_pipeline(Source(100).examples, config, 1)
    assert labels(epochs_of(pipeline.train, 2, 1)[0]) == labels(epochs_of(undisturbed.train, 2, 1)[0])


@pytest.mark.parametrize(
    ("count", "changes", "seed"),
    [
        (26, {}, 2**31 - 2),  # whose next seeds do not fit into 32 bits
        (26, {"augmentation": {"flip": "both"}}, 2**31 - 2),
        (26, {"class_weight": "balanced"}, 0),
        (26, {"steps_per_epoch": 7}, 0),
        (24, {"data": {"shuffle_buffer": 3}}, 2**31 - 2),
        (None, {"steps_per_epoch": 4}, 0),
    ],
)
def test_batches_from_the_middle_of_a_run_are_those_of_the_run(
    count: int | None, changes: dict[str, Any], seed: int
) -> None:
    source = Source(count or 26, known=count is not None)
    examples = replace(source.examples, signature=image_signature((6, 6, 1), 26))
    pipeline = build_pipeline(examples, small_config(batch_size=4, seed=seed, **changes), 1)
    (whole,) = epochs_of(pipeline.train, 20, 1)
    for first in (1, 6, 13):
        (rest,) = epochs_of(pipeline.train_from(first), 20 - first, 1)
        for one, same in zip(rest, whole[first:], strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))


def test_several_hosts_go_over_the_same_passes() -> None:
    count = 31
    config = small_config(batch_size=4)
    whole = build_pipeline(Source(count).examples, replace_batch(config, 8), 1)
    parts = [build_pipeline(Source(count).examples, config, 2, share=Share(index, 2)) for index in range(2)]
    steps = 3 * whole.steps_per_epoch
    (expected,) = epochs_of(whole.train, steps, 1)
    for first in (0, 4):
        shares = [epochs_of(part.train_from(first), steps - first, 1)[0] for part in parts]
        for batch, *halves in zip(expected[first:], *shares, strict=True):
            assert set(labels([batch])) == set(labels(halves))


def replace_batch(config: RunConfig, size: int) -> RunConfig:
    return config.model_copy(update={"batch_size": size})
