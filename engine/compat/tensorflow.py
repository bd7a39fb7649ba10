"""Private calls of TensorFlow, checked on TensorFlow 2.21.0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable


def switch_off_tuning_of_device_iterators() -> None:
    """Switch off the tuning thread of the iterators that give each replica its part of a batch.

    Private: `multi_device_iterator_ops._create_device_dataset`. The thread sleeps for up to a minute at a time, and the
    end of an iterator waits for it: with 4 replicas, `fit` returned minutes late. A dataset's own options
    (`engine.input.pipeline`) do not reach these iterators, and no public setting does. Does nothing on a TensorFlow
    that has no such function.
    """
    from tensorflow.python.data.ops import multi_device_iterator_ops as iterators

    make: Callable[..., Any] | None = getattr(iterators, "_create_device_dataset", None)
    if make is None:
        return
    options = tf.data.Options()
    options.autotune.enabled = False
    iterators._create_device_dataset = lambda *args, **named: make(*args, **named).with_options(options)  # noqa: SLF001
