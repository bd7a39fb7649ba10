"""The input pipeline: cached before anything random, shuffled and augmented differently in every epoch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import private_mode, replace, run_forked, run_host, small_config, the
from tpu_console.engine.accelerators.framework import Share
from tpu_console.engine.data.examples import Examples, Input, Signature, Task
from tpu_console.engine.errors import DataError
from tpu_console.engine.input.pipeline import Room, build_pipeline, choose_cache, validation_batch
from tpu_console.engine.runs.events import DataReady, RunFailed

ROTATED = {"flip": "both", "rotation": 30.0, "translation": 0.2}


def image_signature(shape: tuple[int, ...], classes: int) -> Signature:
    return Signature(Task.CLASSES, {"image": Input(shape)}, classes)


class Source:
    """Images that count how often they are read; image i is filled with i, label i."""

    def __init__(self, count: int, *, known: bool = True) -> None:
        self.reads = self.validation_reads = 0
        self.examples = Examples(
            train=self._dataset(count, "reads", known),
            validation=self._dataset(7, "validation_reads", known),
            train_count=count if known else None,
            validation_count=7 if known else None,
            signature=image_signature((6, 6, 1), max(10, count)),
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


def test_a_remainder_is_dropped_batches_have_one_shape_and_other_epochs_have_what_one_drops() -> None:
    pipeline = build_pipeline(Source(26).examples, small_config(batch_size=4), 2)
    assert (pipeline.steps_per_epoch, pipeline.global_batch, pipeline.remainder) == (3, 8, 2)
    assert pipeline.train.element_spec[0].shape.as_list() == [8, 6, 6, 1]
    epochs = epochs_of(pipeline.train, 3, 6)
    assert {len(batch) for epoch in epochs for _, batch in epoch} == {8}
    assert {label for epoch in epochs for label in labels(epoch)} == set(range(26))
    assert {len({*labels(epoch)}) for epoch in epochs} == {24}  # each at most once
    assert labels(epochs[0]) != labels(epochs[1])


@pytest.mark.parametrize(("cache", "passes"), [("memory", 1), ("disk", 1), ("off", 4)])
def test_the_data_is_read_once_unless_it_is_not_cached(tmp_path: Path, cache: str, passes: int) -> None:
    source, folder = Source(12), tmp_path / "cache"
    pipeline = build_pipeline(
        source.examples, small_config(batch_size=4, data={"cache": cache}), 1, cache_folder=folder
    )
    held = build_pipeline(Source(12).examples, small_config(batch_size=4), 1)
    assert [*map(labels, epochs_of(pipeline.train, 3, 4))] == [*map(labels, epochs_of(held.train, 3, 4))]
    assert all(labels(list(pipeline.validation)) == list(range(7)) for _ in range(2))
    assert source.reads >= 12 * passes
    assert (source.reads == 12, source.validation_reads) == (passes == 1, 7 if passes == 1 else 14)
    if cache == "disk":
        assert sum(file.stat().st_size for file in folder.iterdir()) > 12 * 6 * 6 * 4
        assert private_mode(folder) == 0o700
    else:
        assert not folder.exists()


def test_every_epoch_sees_the_same_cached_images_changed_differently_and_validation_is_never_changed() -> None:
    source = Source(8)
    pipeline = build_pipeline(source.examples, small_config(batch_size=4, augmentation=ROTATED), 1)
    first, second = (images_by_label(epoch) for epoch in epochs_of(pipeline.train, 2, 2))
    assert first.keys() == second.keys() == set(range(8))
    assert sum(not np.array_equal(first[label], second[label]) for label in first) >= 6
    assert source.reads == 8
    plain = build_pipeline(Source(8).examples, small_config(batch_size=4), 1)
    held_out, unchanged = (images_by_label(list(data.validation)) for data in (pipeline, plain))
    assert [*held_out] == [*range(7)]
    assert all(np.array_equal(held_out[label], unchanged[label]) for label in held_out)


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
    whole = build_pipeline(Source(count).examples, small_config(batch_size=8), 1)
    config = small_config(batch_size=4)
    parts = [build_pipeline(Source(count).examples, config, 2, share=Share(index, 2)) for index in range(2)]
    steps = 3 * whole.steps_per_epoch
    (expected,) = epochs_of(whole.train, steps, 1)
    for first in (0, 4):
        shares = [epochs_of(part.train_from(first), steps - first, 1)[0] for part in parts]
        for batch, *halves in zip(expected[first:], *shares, strict=True):
            assert set(labels([batch])) == set(labels(halves))


MEGABYTE = 1_000_000
COUNT, EACH = 1000, MEGABYTE - 256  # 1 GB with what TensorFlow needs beside
HUGE = Room(10**12, 10**12)


@pytest.mark.parametrize(
    ("asked", "memory", "disk", "kind"),
    [
        ("auto", 2000, 0, "memory"),
        ("auto", 1900, 1200, "disk"),
        ("auto", 1900, 1100, "off"),
        ("auto", 1900, 0, "off"),
        ("memory", 100, 64_000, "memory"),
        ("disk", 64_000, 64_000, "disk"),
        ("off", 64_000, 64_000, "off"),
    ],
)
def test_the_cache_is_the_configured_one_or_the_fastest_with_room(
    asked: str, memory: int, disk: int, kind: str
) -> None:
    cache = choose_cache(asked, COUNT, EACH, Room(memory * MEGABYTE, disk * MEGABYTE))
    assert cache.kind == kind
    assert ("1,000 examples (1.0 GB)" in cache.reason) == (asked == "auto")
    assert bool(cache.notice) == (asked == "auto" and kind == "off")
    assert cache.shuffle_most == (None if kind == "memory" else memory // 8)


@pytest.mark.parametrize(("count", "each", "is_fixed"), [(None, EACH, True), (COUNT, None, True), (COUNT, EACH, False)])
def test_examples_of_unknown_size_or_that_may_change_are_cached_only_on_request(
    count: int | None, each: int | None, is_fixed: bool
) -> None:
    cache = choose_cache("auto", count, each, HUGE, is_fixed=is_fixed)
    assert (cache.kind, "data.cache=" in cache.notice) == ("off", is_fixed)
    assert choose_cache("memory", count, each, HUGE, is_fixed=is_fixed).kind == "memory"


def test_a_file_that_the_disk_has_no_room_for_is_refused() -> None:
    with pytest.raises(DataError, match=r"1,000 examples .* 500 MB"):
        choose_cache("disk", COUNT, EACH, Room(64_000 * MEGABYTE, 500 * MEGABYTE))


@pytest.mark.slow
def test_a_failed_run_removes_its_cache_file(tmp_path: Path) -> None:
    code = """
def fails(input_shape, classes):
    import keras, tensorflow as tf

    class Breaks(keras.layers.Layer):
        def call(self, x, training=False):
            with tf.control_dependencies([tf.debugging.assert_less(tf.reduce_max(x), -1.0)]):
                return tf.identity(x)

    return keras.Sequential([keras.Input(input_shape), keras.layers.Flatten(), Breaks(), keras.layers.Dense(10)])
"""
    (tmp_path / "broken.py").write_text(code, encoding="utf-8")
    config = small_config(data={"cache": "disk"}, model=f"{tmp_path / 'broken.py'}:fails", model_options={})
    run = run_host(config, tmp_path / "runs")
    assert the(run, RunFailed).what
    assert "data.cache=disk" in the(run, DataReady).cache
    assert not run.cache.exists()


_PEAK = """
import json, sys
from pathlib import Path
import tensorflow as tf
from tpu_console.engine.input.pipeline import Room
from tpu_console.engine.data.examples import Examples, Input, Signature, Task
from tpu_console.engine.input.pipeline import build_pipeline
from tests.helpers import small_config

folder, memory, count = Path(sys.argv[1]), int(sys.argv[2]), 2000
def peak():  # of this process: what getrusage tells begins with that of whoever started it
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

def decode(number):  # a quarter of a megabyte each, half a gigabyte in all
    return tf.fill((256, 341, 3), tf.cast(number % 255, tf.uint8)), tf.cast(number % 10, tf.int32)

data = tf.data.Dataset.range(count).map(decode, num_parallel_calls=2)
examples = Examples(data, None, count, 0, Signature(Task.CLASSES, {"image": Input((256, 341, 3))}, 10), 255.0)
config = small_config(batch_size=8, augmentation={"flip": "horizontal"})
pipeline = build_pipeline(examples, config, 1, cache_folder=folder, room=Room(memory, 10**12))
Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
before, sums = peak(), []
batches = iter(pipeline.train)
for epoch in range(2):
    sums.append(sum(int(tf.reduce_sum(next(batches)[1])) for _ in range(pipeline.steps_per_epoch)))
print(json.dumps({"kind": pipeline.cache.kind, "bytes": peak() - before, "sums": sums, "notices": pipeline.notices}))
"""


@pytest.mark.slow
def test_memory_stays_bounded_if_the_data_is_larger_than_its_share(tmp_path: Path) -> None:
    data, memory = 2000 * 256 * 341 * 3, 400_000_000
    figures = json.loads(run_forked(_PEAK, str(tmp_path / "cache"), str(memory), cwd=tmp_path))
    assert figures["kind"] == "disk"
    assert figures["sums"] == [9000, 9000]  # each epoch has every example once
    assert figures["bytes"] < 1.2 * memory < data  # the allocator keeps some of what was freed
    assert "examples instead of 2,000" in figures["notices"][0]
