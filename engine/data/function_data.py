"""Reads what the user's dataset function returns, which is what Keras's `fit` takes.

That is arrays, tables, `tf.data`, `PyDataset`, data loaders and generators, and the `datasets.Dataset` of Hugging Face,
whose label is its class or the column called ``label``.

An element of a dataset is ``(x,)``, ``(x, y)`` or ``(x, y, weight)``; x and y are tensors, tuples or dictionaries.
"""

from __future__ import annotations

import inspect
import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import length_hint
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
from msgspec import Struct, field
from msgspec.structs import replace

from ..compat.tensorflow import yields_batches
from ..config.user_code import call_user_function
from ..errors import UserCodeError
from ..storage.keyed_store import today
from .cached_facts import FunctionRecord, save_function_record
from .examples import Examples, Input, PassCalls, known_length, label_of, own_signature

if TYPE_CHECKING:
    from ..config.run_config import RunConfig

    Shapes = tuple[tuple[int, ...], ...]  # of the arrays of an element

_TAKES = (
    "Return (train, validation), each a tf.data.Dataset, a keras.utils.PyDataset, a data loader, a generator function "
    "or (x, y)."
)
_LOOKED_AT = 32  # examples whose sizes are compared
_COUNTED_S = 60.0  # how long data of unknown length is counted
_LABELS = 32  # that are looked at to find out what they are


def load(config: RunConfig, on_fetch: Callable[[str], None]) -> Examples:
    """Call the user's function; raise `UserCodeError`, or an error of TensorFlow while the data is read."""
    name, is_asked = config.dataset, config.batch_size > 0
    returned = call_user_function(name, **config.data.options)
    parts = split_parts(returned)
    train = PartReader(name, on_fetch, config.steps_per_epoch == "all", new_batches=is_asked).read(parts[0])
    validation = Part(None, 0) if parts[1] is None else PartReader(name, on_fetch).read(parts[1])
    if not any(True for _ in train.dataset.take(1)):
        raise UserCodeError(f"{name} returned a training dataset without examples.")
    labels = []  # the first ones; none without labels, or if an example has several
    if label_of(train.dataset) is not None:
        labels = [np.asarray(label) for _, label, *_ in train.dataset.take(_LABELS).as_numpy_iterator()]
    # The first are those of keras.utils.image_dataset_from_directory.
    named = getattr(parts[0], "class_names", ()) or (_hub_label(parts[0])[1] if _is_hub_dataset(parts[0]) else ())
    class_names = tuple(map(str, named))
    keeps = train.batches is not None and not (is_asked and train.has_one_size)
    notices = [part.notice for part in (train, validation) if part.notice]
    if keeps and is_asked:
        what = f"the examples of {name} differ in size, so no other batches can be made of them"
        notices.append(f"batch_size={config.batch_size} has no effect: {what}.")
    forms = [None if part.dataset is None else "kept" if is_kept and part.form == "batches" else part.form
             for part, is_kept in ((train, keeps), (validation, True))]  # fmt: skip
    specs = [() if part.dataset is None else part.dataset.element_spec for part in (train, validation)]
    elements: Any = tf.nest.map_structure(_described, specs)
    classes = _count_classes(train.dataset, labels)
    are_numbers = bool(labels) and labels[0].dtype.kind in "iuf"
    record = FunctionRecord(
        train=elements[0],
        validation=elements[1],
        classes=classes,
        train_count=train.count,
        validation_count=validation.count,
        day=today(),
        whole_labels=all(bool((label == np.round(label)).all()) for label in labels) if are_numbers else None,
        batch=train.batch,
        batches=None if train.batches is None else known_length(train.batches),
        has_one_size=train.has_one_size,
    )
    save_function_record(config, record)
    return Examples(
        train=train.dataset,
        validation=validation.dataset,
        train_count=train.count,
        validation_count=validation.count,
        signature=own_signature(elements[0][0], classes),
        class_names=class_names,
        record={"returned": forms[:1] if parts[0] is returned else forms}
        | ({"class_names": class_names} if class_names else {}),
        notices=tuple(notices),
        is_fixed=train.is_fixed,
        pass_calls=(train.pass_calls, validation.pass_calls),
        batches=(train.batches if keeps else None, validation.batches),
        batch=train.batch,
    )


def _described(spec: Any) -> Input:
    return Input((None,) if spec.shape.rank is None else tuple(spec.shape), spec.dtype.name)


def _count_classes(dataset: Any, labels: list[Any]) -> int:
    """Take the width of labels with a share per class, or the largest class number plus one of 10,000 or fewer.

    `labels` are the first ones: rows of other numbers, such as the tokens of a text, are no classes.
    """
    if not labels:
        return 0
    first = labels[0]
    if first.ndim == 1 and first.size > 1:
        are_shares = first.dtype.kind in "biuf" and all(0 <= one.min() <= one.max() <= 1 for one in labels)
        return first.size if are_shares else 0
    if first.dtype.kind in "iu" and first.size == 1:  # also of shape (1,), as in keras.datasets.cifar10
        counted = dataset.take(10_000 if dataset.cardinality() >= 0 else 1_000).map(
            lambda _, label, *__: tf.reshape(label, ())
        )
        return int(counted.reduce(np.int64(0), lambda top, label: tf.maximum(top, tf.cast(label, tf.int64)))) + 1
    return 0


class Part(Struct, frozen=True):
    """One part of the data."""

    dataset: Any  # a `tf.data.Dataset` of single examples
    count: int | None  # their number; None if unknown
    batches: Any = None  # the same examples as the user batched them; None for single examples
    batch: int = 0  # examples in the first of these batches; 0 for single examples
    has_one_size: bool = True  # whether other batches can be made of the examples
    is_fixed: bool = True  # whether each pass gives the same examples; a PyDataset may change them
    form: str = ""  # for exported scripts: ``arrays``, ``examples`` or ``batches``; empty for anything else
    pass_calls: PassCalls = field(default_factory=PassCalls)  # what is called around each pass in training
    notice: str = ""  # what the user should know


def split_parts(returned: Any) -> tuple[Any, Any]:
    """Split what a function returned into training and validation data, which may be None.

    They are two tuples, two datasets, or the splits of a `datasets.DatasetDict`; two arrays are ``(x, y)``.
    """
    if isinstance(returned, dict) and returned and all(map(_is_hub_dataset, returned.values())):
        others = [returned[name] for name in ("validation", "test") if name in returned]
        return returned.get("train", next(iter(returned.values()))), next(iter(others), None)
    if isinstance(returned, tuple | list) and len(returned) == 2:
        train, validation = returned
        if _is_part(train) and (validation is None or _is_part(validation)):
            return train, validation
    return returned, None


def _is_py_dataset(part: Any) -> bool:
    return hasattr(part, "__getitem__") and hasattr(part, "on_epoch_end")


def _is_hub_dataset(part: Any) -> bool:
    return all(hasattr(part, name) for name in ("features", "column_names", "select_columns"))


def _hub_label(part: Any) -> tuple[str, tuple[str, ...]]:
    """Return the column with the label, the first of classes or the one called ``label``, and the names of classes."""
    classes = ((name, tuple(kind.names)) for name, kind in (part.features or {}).items() if hasattr(kind, "names"))
    return next(classes, ("label", ()))


def _is_loader(part: Any) -> bool:
    """Return whether a value gives examples or batches one by one, such as torch's or Grain's DataLoader."""
    return isinstance(part, Iterable) and not (
        isinstance(part, tuple | list | dict | str | bytes) or hasattr(part, "shape") or hasattr(part, "columns")
    )


def _is_part(value: Any) -> bool:
    is_kind = isinstance(value, tf.data.Dataset | tuple) or inspect.isgeneratorfunction(value)
    return is_kind or _is_hub_dataset(value) or _is_py_dataset(value) or _is_loader(value)


def _is_batched(dataset: Any) -> bool:
    """Return whether elements are batches: as the dataset was built, or else if all their lengths are unknown."""
    if (known := yields_batches(dataset)) is not None:
        return known
    shapes = [spec.shape for spec in tf.nest.flatten(dataset.element_spec)]
    is_image = len(shapes) == 1 and tuple(shapes[0][:2]) == (None, None)  # one of any size
    return all(shape.rank and shape[0] is None for shape in shapes) and not is_image


class PartReader(Struct, frozen=True):
    """Reads training or validation data that a function returned."""

    name: str  # the user's function
    on_progress: Callable[[str], None] = lambda _: None  # called with the progress while data is counted
    count: bool = True  # whether data of unknown length is counted
    new_batches: bool = True  # whether its batches may be taken apart, for which all are read

    def read(self, part: Any) -> Part:
        """Return training or validation data; raise `UserCodeError` for what `fit` does not take."""
        if isinstance(part, tf.data.Dataset):
            if not isinstance(part.element_spec, tuple):
                part = part.map(lambda element: (element,))
            if not 1 <= len(part.element_spec) <= 3:
                what = f"{self.name} returned a dataset of {len(part.element_spec)} parts."
                raise UserCodeError(what, remedy=_TAKES)
            found = self._surveyed(part, is_batched=_is_batched(part))
            return replace(found, form="examples" if found.batches is None else "batches")
        if _is_hub_dataset(part):
            return self._of_hub_dataset(part)
        if _is_py_dataset(part):
            return self._of_py_dataset(part)
        if isinstance(part, Iterator):  # as a generator; what is read of it is gone
            dataset, first = self._from_elements(_read_once(part, self.name))
            return self._surveyed(dataset, is_batched=all(first), seen=[first])
        if inspect.isgeneratorfunction(part) or _is_loader(part):  # torch's loader of a stream has no length
            make = part if callable(part) else part.__iter__
            dataset, first = self._from_elements(make, length_hint(part, tf.data.UNKNOWN_CARDINALITY))
            return self._surveyed(dataset, is_batched=all(first))
        arrays = tuple(_with_columns(one) for one in (part if isinstance(part, tuple) else (part,)))
        lengths = {
            int(one.nrows()) if isinstance(one, tf.RaggedTensor) else len(one) if np.ndim(one) else -1
            for one in tf.nest.flatten(arrays)
        }
        if len(lengths) != 1 or -1 in lengths or not 1 <= len(arrays) <= 3:
            sizes = " and ".join(map(str, sorted(lengths)))
            what = f"arrays of {sizes} examples" if len(lengths) > 1 else f"a value of type {type(part).__name__}"
            raise UserCodeError(f"{self.name} returned {what} instead of data.", remedy=_TAKES)
        has_tables = any(hasattr(one, "columns") for one in tf.nest.flatten(part))
        return Part(tf.data.Dataset.from_tensor_slices(arrays), lengths.pop(), form="" if has_tables else "arrays")

    def _of_hub_dataset(self, part: Any) -> Part:
        """Return a `datasets.Dataset` or a stream of one; plain columns are read into memory."""
        names, rows = part.column_names or [*next(iter(part), {})], part.with_format("numpy")
        label = _hub_label(part)[0]
        inputs = [name for name in names if name != label]

        def element(row: Any) -> tuple[Any, ...]:
            seen = row[inputs[0]] if len(inputs) == 1 else {name: row[name] for name in inputs}
            return (seen, row[label]) if label in names else (seen,)

        length = length_hint(part, tf.data.UNKNOWN_CARDINALITY)
        if length > 0 and {type(feature).__name__ for feature in part.features.values()} <= {"Value", "ClassLabel"}:
            return replace(self.read(element(rows[:])), form="")
        dataset, _ = self._from_elements(lambda: map(element, rows), length)
        return self._surveyed(dataset, is_batched=False)

    def _of_py_dataset(self, part: Any) -> Part:
        """Return a PyDataset, of which the first, second and last batch are looked at if the others seem as large."""
        batches = part.num_batches if hasattr(type(part), "num_batches") else len(part)  # Keras 2 has no num_batches
        numbers = itertools.count() if batches is None else range(batches)
        length = tf.data.INFINITE_CARDINALITY if batches is None else batches
        dataset, first = self._from_elements(lambda: map(part.__getitem__, numbers), length)
        seen: list[Shapes] = []
        if batches and all(first):
            second, last = (_shapes(_element(part[index])) for index in (min(1, batches - 1), batches - 1))
            if last[0][0] <= first[0][0] and (second[0][0] == first[0][0] or batches <= 2):
                seen = [first, *[second] * (batches - 2), last][-batches:]
        found = self._surveyed(dataset, is_batched=all(first), seen=seen, is_all=bool(seen))
        methods = ((name, getattr(type(part), name, None)) for name in ("on_epoch_begin", "on_epoch_end"))
        # Keras's own methods do nothing.
        own = {name: getattr(part, name) for name, method in methods
               if method is not None and not method.__module__.startswith("keras.")}  # fmt: skip
        if batches is not None:
            calls = PassCalls(own.get("on_epoch_begin"), own.get("on_epoch_end"))
            return replace(found, is_fixed=False, pass_calls=calls)
        # The pipeline reads ahead of training, so it knows only the ends of the data, not those of the epochs.
        never = f"{' and '.join(own)} of {type(part).__name__} {'is' if len(own) == 1 else 'are'} never called"
        return replace(found, is_fixed=False, notice=f"{never}, because the data has no end." if own else "")

    def _from_elements(
        self, make: Callable[[], Iterator[Any]], length: int = tf.data.UNKNOWN_CARDINALITY
    ) -> tuple[Any, Shapes]:
        """Return a dataset of what an iterator gives, and the shapes of the first element; a scalar is no batch."""
        first = next(iter(make()), None)
        if first is None:
            raise UserCodeError(f"{self.name} returned data without examples.")
        first = _element(first)

        def spec(value: Any) -> Any:
            array = np.asarray(value)
            return tf.TensorSpec([None] * array.ndim, tf.string if array.dtype.kind in "OSU" else array.dtype)

        signature = tf.nest.map_structure(spec, first)
        dataset = tf.data.Dataset.from_generator(lambda: map(_element, make()), output_signature=signature)
        return dataset if length == tf.data.UNKNOWN_CARDINALITY else _of_length(dataset, length), _shapes(first)

    def _surveyed(self, dataset: Any, *, is_batched: bool, seen: Sequence[Shapes] = (), is_all: bool = False) -> Part:
        """Find the number and the sizes of the examples of a dataset, by the shapes of elements.

        They are read if none were seen; `is_all` says whether all were seen.
        """
        specs, known = tf.nest.flatten(dataset.element_spec), int(dataset.cardinality())
        is_plain = all(isinstance(spec, tf.TensorSpec) for spec in specs)
        is_stated = is_plain and all(spec.shape[is_batched:].is_fully_defined() for spec in specs)
        is_unknown = known == tf.data.UNKNOWN_CARDINALITY and self.count
        shapes = [*seen]
        if not seen and (is_unknown or (known >= 0 and is_batched and (self.new_batches or not is_stated))):
            shapes = self._read_shapes(dataset, None if known >= 0 and self.new_batches else _COUNTED_S)
            is_all = shapes[-1:] != [()]
        elif not seen and (is_batched or not is_stated):
            shapes = self._read_shapes(dataset.take(2 if is_batched else _LOOKED_AT), None)
        sizes = {tuple(shape[is_batched:] for shape in one) for one in shapes}
        has_one_size = is_plain and (is_stated or len(sizes) == 1)
        if has_one_size and not is_stated:
            stated = [(*spec.shape[:is_batched], *size) for spec, size in zip(specs, sizes.pop(), strict=True)]

            def ensured(*element: Any) -> Any:
                parts = map(tf.ensure_shape, tf.nest.flatten(element), stated)
                return tf.nest.pack_sequence_as(element, list(parts))

            dataset = dataset.map(ensured)
        length = len(shapes) if is_all else known
        if not is_batched:
            return Part(dataset, None if length < 0 else length, has_one_size=has_one_size)
        if is_all:
            dataset = _of_length(dataset, length)
        single, each = dataset.unbatch(), specs[0].shape[0]
        count = sum(one[0][0] for one in shapes) if is_all else length * each if each and length >= 0 else None
        if count is not None:
            single = _of_length(single, count)
        return Part(single, count, dataset, shapes[0][0][0] if shapes else 0, has_one_size=has_one_size)

    def _read_shapes(self, dataset: Any, limit_s: float | None) -> list[Shapes]:
        """Return the shapes of all elements; the last one is empty if that takes longer than the limit."""

        def shapes_of(*element: Any) -> Any:
            arrays = tf.nest.flatten(element)
            return tuple(one.bounding_shape() if isinstance(one, tf.RaggedTensor) else tf.shape(one) for one in arrays)

        found: list[Shapes] = []
        began = said = time.monotonic()
        for shapes in dataset.map(shapes_of):
            found.append(tuple(tuple(shape.numpy().tolist()) for shape in shapes))
            if (now := time.monotonic()) - said > 1:
                said = now
                self.on_progress(f"{self.name}: {len(found):,} counted")
            if limit_s is not None and now - began > limit_s:
                return [*found, ()]
        return found


def _of_length(dataset: Any, length: int) -> Any:
    return dataset.apply(tf.data.experimental.assert_cardinality(length))


def _shapes(element: Any) -> Shapes:
    return tuple(np.shape(array) for array in tf.nest.flatten(element))


def _element(element: Any) -> tuple[Any, ...]:
    """Return an element of data as a tuple of arrays; a list is one, as Keras takes it."""
    return tuple(map(_with_columns, element)) if isinstance(element, tuple | list) else (_with_columns(element),)


def _read_once(generator: Iterator[Any], name: str) -> Callable[[], Iterator[Any]]:
    """Return a function that reads a generator, which cannot start again: each call goes on, after its first batch."""
    first, lock = [next(generator, None)], threading.Lock()

    def rest() -> Iterator[Any]:
        while True:
            with lock:
                batch = first.pop() if first else next(generator, None)
            if batch is None:
                raise RuntimeError(f"The generator of {name} ended; return its function, which can start again.")
            yield batch

    calls = itertools.count()
    return lambda: rest() if next(calls) else iter([*first])


def _with_columns(value: Any) -> Any:
    """Turn tables into arrays: a table of numbers into one array, as in `fit`, others into a dictionary of columns."""
    if isinstance(value, tuple | list) and not all(np.isscalar(part) for part in value):
        return tuple(_with_columns(part) for part in value)
    if isinstance(value, dict):
        return {key: _with_columns(part) for key, part in value.items()}
    if isinstance(value, tf.RaggedTensor):
        return value
    if hasattr(value, "columns") and hasattr(value, "to_numpy"):
        if all(dtype.kind in "biuf" for dtype in value.dtypes):
            return value.to_numpy("float32")
        return {str(column): _with_columns(value[column]) for column in value.columns}
    array = np.asarray(value)
    if array.dtype.kind == "O":
        return array.astype(str)
    return array.astype("float32") if array.dtype == "float64" else array
