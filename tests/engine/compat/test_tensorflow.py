"""Private names of TensorFlow: they exist and do what is expected."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops as iterators

from tpu_console.engine.compat.tensorflow import switch_off_tuning_of_device_iterators

if TYPE_CHECKING:
    import pytest


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
