"""Private names of TensorFlow: they exist and do what is expected."""

import inspect
import threading
from contextlib import nullcontext
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops as iterators
from tensorflow.python.distribute import mirrored_run

from tpu_console.engine.compat.tensorflow import (
    switch_off_tuning_of_device_iterators,
    wait_for_replica_threads,
    yields_batches,
)


def test_what_makes_a_device_s_dataset_still_sets_no_option_itself() -> None:
    source = inspect.getsource(iterators._create_device_dataset)
    assert "options" not in source, "a dataset's own options may reach it now"


def test_a_device_s_dataset_is_not_tuned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iterators, "_create_device_dataset", tf.data.Dataset.range)
    switch_off_tuning_of_device_iterators()
    assert iterators._create_device_dataset(3).options().autotune.enabled is False


@pytest.mark.parametrize("fails", [False, True])
def test_threads_of_replicas_are_waited_for_no_longer_than_they_run(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr(mirrored_run, "coordinator", mirrored_run.coordinator)
    wait_for_replica_threads()
    joined = mirrored_run.coordinator.Coordinator()
    # It looks once a second at its threads; the first look is to find none that still runs.
    monkeypatch.setattr(joined, "wait_for_stop", lambda _: pytest.fail("waits for a second"))
    gate = threading.Event()

    def trace() -> None:
        with joined.stop_on_exception():
            gate.wait(0.1)
            if fails:
                raise ValueError("a step")

    thread = threading.Thread(target=trace)
    thread.start()
    with pytest.raises(ValueError, match="a step") if fails else nullcontext():
        joined.join([thread])
    assert not thread.is_alive()


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
def test_datasets_of_batches_are_recognized(dataset: Any, expected: bool | None) -> None:
    assert yields_batches(dataset) is expected
