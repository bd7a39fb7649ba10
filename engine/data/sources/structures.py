"""Turns what Keras's `fit` takes into unbatched datasets: arrays, tables, generators, `PyDataset` and `tf.data`.

An element of the result is ``(x,)``, ``(x, y)`` or ``(x, y, weight)``; x and y are tensors, tuples or dictionaries.
"""

from __future__ import annotations

import inspect
import itertools
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ...compat.tensorflow import yields_batches
from ...errors import UserCodeError
from ..examples import PassCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_TAKES = "Return (train, validation), each a tf.data.Dataset, a keras.utils.PyDataset, a generator function or (x, y)."
_LOOKED_AT = 32  # examples whose sizes are compared


@dataclass(frozen=True, slots=True)
class Unbatched:
    """One part of the data."""

    dataset: Any  # a `tf.data.Dataset` of single examples
    count: int | None  # their number; None if unknown
    was_batched: bool = False  # whether batches were taken apart
    is_fixed: bool = True  # whether each pass gives the same examples; a PyDataset may change them
    form: str = ""  # for exported scripts: ``arrays``, ``examples`` or ``batches``; empty for anything else
    pass_calls: PassCalls = field(default_factory=PassCalls)  # what is called around each pass in training
    notice: str = ""  # what the user should know


def split_parts(returned: Any) -> tuple[Any, Any]:
    """Split what a function returned into training and validation data, which may be None.

    Two tuples, or two datasets, are training and validation data; arrays are ``(x, y)``.
    """
    if isinstance(returned, tuple) and len(returned) == 2:
        train, validation = returned
        if _is_part(train) and (validation is None or _is_part(validation)):
            return train, validation
    return returned, None


def unbatched(part: Any, name: str) -> Unbatched:
    """Return training or validation data as a dataset of single examples; raise `UserCodeError` for anything else."""
    if isinstance(part, tf.data.Dataset):
        found = _of_dataset(part, name)
        return replace(found, dataset=_sized(found.dataset), form="batches" if found.was_batched else "examples")
    if _is_py_dataset(part):
        return _of_py_dataset(part, name)
    if inspect.isgenerator(part):
        return _of_batches(_ReadOnce(part, name), name)
    if inspect.isgeneratorfunction(part):
        return _of_batches(part, name)
    arrays = tuple(_with_columns(one) for one in (part if isinstance(part, tuple) else (part,)))
    lengths = {len(array) if np.ndim(array) else -1 for array in tf.nest.flatten(arrays)}
    if len(lengths) != 1 or -1 in lengths or not 1 <= len(arrays) <= 3:
        what = f"arrays of {' and '.join(f'{n:,}' for n in sorted(lengths))} examples" if len(lengths) > 1 else None
        raise UserCodeError(f"{name} returned {what or _kind(part)} instead of data.", remedy=_TAKES)
    has_tables = any(hasattr(one, "columns") for one in tf.nest.flatten(part))
    return Unbatched(tf.data.Dataset.from_tensor_slices(arrays), lengths.pop(), form="" if has_tables else "arrays")


def _is_py_dataset(part: Any) -> bool:
    return hasattr(part, "__getitem__") and hasattr(part, "on_epoch_end")


def _is_part(value: Any) -> bool:
    is_reader = inspect.isgenerator(value) or inspect.isgeneratorfunction(value) or _is_py_dataset(value)
    return is_reader or isinstance(value, tf.data.Dataset | tuple)


def _of_dataset(dataset: Any, name: str) -> Unbatched:
    if not isinstance(dataset.element_spec, tuple):
        dataset = dataset.map(lambda element: (element,))
    if not 1 <= len(dataset.element_spec) <= 3:
        raise UserCodeError(f"{name} returned a dataset of {len(dataset.element_spec)} parts.", remedy=_TAKES)
    if not _is_batched(dataset):
        return Unbatched(dataset, _known(dataset))
    count = _known(dataset)
    if count is not None:
        sizes = dataset.map(lambda *parts: tf.shape(tf.nest.flatten(parts)[0], tf.int64)[0])
        count = int(sizes.reduce(np.int64(0), lambda total, size: total + size))
    single = dataset.unbatch()
    if count is not None:
        single = single.apply(tf.data.experimental.assert_cardinality(count))
    return Unbatched(single, count, was_batched=True)


def _sized(dataset: Any) -> Any:
    """State the sizes of a dataset's examples if it does not, and the first examples have the same sizes."""
    stated = tf.nest.flatten(dataset.element_spec)
    is_plain = all(isinstance(spec, tf.TensorSpec) for spec in stated)
    if not is_plain or all(spec.shape.is_fully_defined() for spec in stated):
        return dataset
    seen = {tuple(tuple(part.shape) for part in tf.nest.flatten(one)) for one in dataset.take(_LOOKED_AT)}
    if len(seen) != 1:
        return dataset
    sizes = seen.pop()

    def ensured(*element: Any) -> Any:
        parts = map(tf.ensure_shape, tf.nest.flatten(element), sizes)
        return tf.nest.pack_sequence_as(element, list(parts))

    return dataset.map(ensured)


def _is_batched(dataset: Any) -> bool:
    """Return whether elements are batches: as the dataset was built, or else if all their lengths are unknown."""
    if (known := yields_batches(dataset)) is not None:
        return known
    shapes = [spec.shape for spec in tf.nest.flatten(dataset.element_spec)]
    is_image = len(shapes) == 1 and tuple(shapes[0][:2]) == (None, None)  # one of any size
    return all(shape.rank and shape[0] is None for shape in shapes) and not is_image


def _known(dataset: Any) -> int | None:
    count = int(dataset.cardinality())
    return count if count >= 0 else None


def _of_py_dataset(part: Any, name: str) -> Unbatched:
    """Return the examples of a PyDataset; their number is known if all batches except the last seem equally large."""
    batches = part.num_batches if hasattr(type(part), "num_batches") else len(part)  # a Sequence of Keras 2 has none
    found = _of_batches(lambda: map(part.__getitem__, itertools.count() if batches is None else range(batches)), name)
    found = replace(found, is_fixed=False)
    own = {name: getattr(part, name) for name in ("on_epoch_begin", "on_epoch_end") if _overrides(part, name)}
    if batches is not None:
        found = replace(found, pass_calls=PassCalls(own.get("on_epoch_begin"), own.get("on_epoch_end")))
    elif own:
        # The pipeline reads ahead of training, so it knows only the ends of the data, not those of the epochs.
        are = "are" if len(own) > 1 else "is"
        never = f"{' and '.join(own)} of {type(part).__name__} {are} never called: its data has no end."
        found = replace(found, notice=never)
    if batches is None or not found.was_batched:
        return replace(found, count=batches)
    looked_at = (part[index] for index in (0, min(1, batches - 1), batches - 1))
    first, second, last = (len(tf.nest.flatten(_with_columns(batch))[0]) for batch in looked_at)
    is_even = last <= first and (second == first or batches <= 2)
    return replace(found, count=(batches - 1) * first + last if is_even else None)


def _overrides(part: Any, name: str) -> bool:
    """Return whether the user's class has a method of its own in place of Keras's, which does nothing."""
    method = getattr(type(part), name, None)
    return method is not None and not method.__module__.startswith("keras.")


def _of_batches(make: Callable[[], Iterator[Any]], name: str) -> Unbatched:
    """Return the examples in the batches of a generator; scalar labels mean that it yields single examples."""
    first = next(make(), None)
    if first is None:
        raise UserCodeError(f"{name} returned data without examples.")
    first = _with_columns(first if isinstance(first, tuple) else (first,))
    is_batched = all(np.ndim(value) for value in tf.nest.flatten(first))

    def elements() -> Iterator[Any]:
        for element in make():
            yield _with_columns(element if isinstance(element, tuple) else (element,))

    def spec(value: Any) -> Any:
        array = np.asarray(value)
        shape = (None, *array.shape[1:]) if is_batched else array.shape
        return tf.TensorSpec(shape, tf.string if array.dtype.kind in "OSU" else array.dtype)

    dataset = tf.data.Dataset.from_generator(elements, output_signature=tf.nest.map_structure(spec, first))
    return Unbatched(dataset.unbatch() if is_batched else dataset, None, was_batched=is_batched)


class _ReadOnce:
    """Reads a generator, which cannot start again: the first call gives only its first batch, later ones go on."""

    def __init__(self, generator: Iterator[Any], name: str) -> None:
        self._generator = generator
        self._name = name
        self._lock = threading.Lock()
        self._first: list[Any] | None = None

    def __call__(self) -> Iterator[Any]:
        if self._first is None:
            self._first = [next(self._generator, None)]
            return iter([*self._first])
        return self._rest()

    def _rest(self) -> Iterator[Any]:
        if self._first:
            yield self._first.pop()
        while True:
            with self._lock:
                batch = next(self._generator, None)
            if batch is None:
                raise RuntimeError(f"The generator of {self._name} ended; return its function, which can start again.")
            yield batch


def _with_columns(value: Any) -> Any:
    """Turn tables into arrays: a table of numbers into one array, as in `fit`, others into a dictionary of columns."""
    if isinstance(value, tuple | list) and not all(np.isscalar(part) for part in value):
        return tuple(_with_columns(part) for part in value)
    if isinstance(value, dict):
        return {key: _with_columns(part) for key, part in value.items()}
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        if all(dtype.kind in "biuf" for dtype in value.dtypes):
            return value.to_numpy("float32")
        return {str(column): _with_columns(value[column]) for column in value.columns}
    array = np.asarray(value)
    if array.dtype.kind == "O":
        return array.astype(str)
    return array.astype("float32") if array.dtype == "float64" else array


def _kind(part: Any) -> str:
    name = type(part).__name__
    return f"a{'n' if name[:1] in 'aeiou' else ''} {name}"
