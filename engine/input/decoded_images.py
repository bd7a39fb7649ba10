"""Decoded images, in memory or in a file of the run: each is decoded when it is first needed, and never again.

Training begins at once and decodes what its next batches need, while a thread decodes the others.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import tensorflow as tf

from ..storage.files import open_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from ..data.examples import ImageFiles

_STRIDE = 16  # only every n-th image of a pass is reported to Python, to save time
_REPORT_EVERY_S = 2.0
_LONGEST_ENDING_S = 10.0  # a process that is asked to end has 18 s
_TRIED, _DECODED = 1, 2


def untuned() -> Any:
    """Return options that turn off the autotune thread; prefetching still tunes itself.

    That thread sleeps up to a minute, and the end of an iterator waits for it: `fit` returned 8 s late after a 35 s
    run on TensorFlow 2.21, and would hold a TPU that long.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


class DecodedImages:
    """The decoded images of a dataset, by the numbers of their files; stored in memory, or at a path."""

    def __init__(self, files: ImageFiles, path: Path | None = None) -> None:
        self._files = files
        self._is_over = threading.Event()
        self._ahead = threading.Thread(target=self._decode_ahead, name="tpu-console-decode", daemon=True)
        with tf.device("CPU:0"):
            self._rows: _Rows = _Memory(files) if path is None else _File(files, path)
            self._states = tf.Variable(np.zeros(files.count, np.uint8), trainable=False)
            self._must_end = tf.Variable(False, trainable=False)
        self._fetch = tf.function(self._fetched, input_signature=[tf.TensorSpec((None,), tf.int64)])  # traced once

    @property
    def fills_in_first_epoch(self) -> bool:
        """Whether the first epoch has to wait until images are decoded."""
        return not self._files.skips_damaged

    @property
    def is_decoded(self) -> NDArray[np.bool_]:
        """Whether each file has been decoded."""
        decoded: NDArray[np.bool_] = self._states.numpy() == _DECODED
        return decoded

    def fetch(self, numbers: Any) -> Any:
        """Return the images of files numbered ``(n,)`` in a TensorFlow function; what is missing is decoded."""
        return tf.ensure_shape(self._fetch(numbers), (*numbers.shape, *self._files.shape))

    def _fetched(self, numbers: Any) -> Any:
        with tf.control_dependencies([tf.debugging.Assert(~self._must_end, ["an image is damaged"])]):
            numbers = tf.identity(numbers)
        missing = tf.boolean_mask(numbers, ~self._has(numbers))
        decoded = tf.map_fn(self._decode, missing, fn_output_signature=tf.int64)
        with tf.control_dependencies([decoded]):
            return self._rows.read(numbers)

    def decode_missing(self, on_progress: Callable[[str], None]) -> None:
        """Decode all images that are not decoded yet; what is damaged stays missing.

        `on_progress` is called with a sentence about the progress every few seconds, and often with an empty string in
        between; an exception from it ends the pass.
        """
        missing = np.flatnonzero(~self.is_decoded)
        if not missing.size:
            return
        on_progress(f"decoding {missing.size:,} images")
        reported_s = time.monotonic()
        # Training may have decoded some meanwhile: up to a fifth, if it waits for its images.
        numbers = tf.data.Dataset.from_tensor_slices(missing).filter(lambda number: ~self._has(number))
        decoded = numbers.map(self._decode, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
        decoded = decoded.ignore_errors(log_warning=True).shard(_STRIDE, 0).with_options(untuned())
        for count, _ in enumerate(decoded):
            is_due = time.monotonic() - reported_s > _REPORT_EVERY_S
            reported_s = time.monotonic() if is_due else reported_s
            on_progress(f"decoding {count * _STRIDE + 1:,} of {missing.size:,} images" if is_due else "")

    def start(self) -> None:
        """Begin to decode what training has not needed yet.

        If a file is damaged and may not be skipped, the next `fetch` fails.
        """
        self._ahead.start()

    def finish(self) -> None:
        """Stop; images cannot be fetched any more."""
        self._is_over.set()
        self._ahead.join(_LONGEST_ENDING_S)
        self._rows.close()

    def has_failed(self) -> bool:
        """Return whether a file that training needs cannot be decoded. Nothing is decoded ahead from now on."""
        self._is_over.set()
        self._ahead.join(_LONGEST_ENDING_S)
        tried = np.flatnonzero(self._states.numpy() == _TRIED)
        numbers = tf.data.Dataset.from_tensor_slices(tried).map(self._decode)  # some were interrupted
        return sum(1 for _ in numbers.ignore_errors().with_options(untuned())) < len(tried)

    def _decode_ahead(self) -> None:
        with suppress(Exception):  # whatever else goes wrong goes wrong in the main thread too
            self.decode_missing(self._go_on)
            if not self.is_decoded.all() and not self._files.skips_damaged:
                self._must_end.assign(True)

    def _go_on(self, _: str) -> None:
        if self._is_over.is_set():
            raise InterruptedError

    def _decode(self, number: Any) -> Any:
        """Decode and store one image, as part of a TensorFlow function."""
        with tf.control_dependencies([self._mark(number, _TRIED)]):
            image = self._files.decode(number)
        with tf.control_dependencies([self._rows.write(number[tf.newaxis], image[tf.newaxis])]):
            marked = self._mark(number, _DECODED)
        with tf.control_dependencies([marked]):
            return tf.identity(number)

    def _has(self, numbers: Any) -> Any:
        """Return whether images are decoded, in a TensorFlow function."""
        return self._states.sparse_read(numbers) == _DECODED

    def _mark(self, number: Any, state: int) -> Any:
        return self._states.scatter_update(tf.IndexedSlices(tf.constant(state, tf.uint8), number))


class _Rows(Protocol):
    """Images of one size by number."""

    def write(self, numbers: Any, images: Any) -> Any:
        """Store images, of shape ``(n, height, width, 3)``."""

    def read(self, numbers: Any) -> Any:
        """Return images."""

    def close(self) -> None:
        """Free the space on the disk, which a removed file takes until it is closed."""


class _Memory:
    """A variable that is never read as a whole, which would copy it."""

    def __init__(self, files: ImageFiles) -> None:
        empty = tf.raw_ops.Empty(shape=(files.count, *files.shape), dtype=tf.uint8)
        self._images = tf.Variable(empty, trainable=False)

    def write(self, numbers: Any, images: Any) -> Any:
        return self._images.scatter_update(tf.IndexedSlices(images, numbers))

    def read(self, numbers: Any) -> Any:
        return self._images.sparse_read(numbers)

    def close(self) -> None:
        pass


class _File:
    """A file in the run folder, which the end of the run removes."""

    def __init__(self, files: ImageFiles, path: Path) -> None:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._shape = files.shape
        self._each = int(np.prod(files.shape))
        descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)

    def write(self, numbers: Any, images: Any) -> Any:
        return tf.numpy_function(self._write, [numbers, images], tf.int64)

    def read(self, numbers: Any) -> Any:
        images = tf.numpy_function(self._read, [numbers], tf.uint8)
        return tf.ensure_shape(images, (*numbers.shape, *self._shape))

    def close(self) -> None:
        self._file.close()

    def _write(self, numbers: NDArray[np.int64], images: NDArray[np.uint8]) -> NDArray[np.int64]:
        for number, image in zip(numbers, images, strict=True):
            if os.pwrite(self._file.fileno(), image.tobytes(), int(number) * self._each) < self._each:
                raise OSError(f"an image of {self._each} bytes was not written whole")
        return numbers

    def _read(self, numbers: NDArray[np.int64]) -> NDArray[np.uint8]:
        images = np.empty((len(numbers), *self._shape), np.uint8)
        for number, image in zip(numbers, images, strict=True):
            os.preadv(self._file.fileno(), [image.data], int(number) * self._each)
        return images
