"""Private names of TensorFlow: they exist and do what is expected."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops as iterators

from tpu_console.engine.compat.tensorflow import switch_off_tuning_of_device_iterators, yields_batches


def test_what_makes_a_device_s_dataset_still_sets_no_option_itself() -> None:
    source = inspect.getsource(iterators._create_device_dataset)
    assert "options" not in source, "a dataset's own options may reach it now"


def test_a_device_s_dataset_is_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterators, "_create_device_dataset", tf.data.Dataset.range)
    switch_off_tuning_of_device_iterators()
    assert iterators._create_device_dataset(3).options().autotune.enabled is False


def test_a_tensorflow_without_the_private_name_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(iterators, "_create_device_dataset")
    switch_off_tuning_of_device_iterators()
    assert not hasattr(iterators, "_create_device_dataset")


SLICES = tf.data.Dataset.from_tensor_slices([[1.0, 2.0]] * 8)
BATCHES = SLICES.batch(2, drop_remainder=True)


@pytest.mark.parametrize(
    ("dataset", "expected"),
    [
        (SLICES, False),
        (SLICES.shuffle(8).map(lambda x: x + 1, num_parallel_calls=2).cache().prefetch(1), False),
        (BATCHES, True),
        (SLICES.batch(2, num_parallel_calls=2), True),
        (SLICES.padded_batch(2), True),
        (SLICES.rebatch(4), True),
        (BATCHES.map(lambda x: (x, x)).repeat(2).shuffle(2).take(3).with_options(tf.data.Options()), True),
        (BATCHES.cache().filter(lambda x: x[0, 0] > 0).shard(2, 0).skip(1).enumerate(), None),
        (BATCHES.unbatch().prefetch(1), False),
        (tf.data.Dataset.zip((BATCHES, BATCHES.map(lambda x: x))), True),
        (tf.data.Dataset.zip((BATCHES, SLICES)), None),
        (SLICES.flat_map(tf.data.Dataset.from_tensors), None),
        (tf.data.Dataset.from_generator(lambda: iter(()), output_signature=tf.TensorSpec((2, 3))), None),
    ],
)
def test_datasets_of_batches_are_recognised(dataset: Any, expected: bool | None) -> None:
    assert yields_batches(dataset) is expected
