"""Labels of examples: classes or numbers, their split into training and validation, and the weight of each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field

from ..errors import DataError
from .examples import Examples, Input, Signature, Task, label_of, of_arrays
from .places import shown
from .tables import class_order, first_of

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from ..config.run_config import RunConfig

    Parts = tuple[NDArray[np.intp], NDArray[np.intp]]
    """The indices of the training examples, in random order, and of the validation examples."""

_LABELS = 4096  # in a batch


class LabelScale(BaseModel):
    """How a number is scaled: its mean is subtracted, then it is divided by its standard deviation."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False, defer_build=True)
    mean: float
    deviation: Annotated[float, Field(gt=0)]


NO_SCALE = LabelScale(mean=0, deviation=1)


def scale_of(values: Any) -> LabelScale:
    """Return how to scale some numbers; equal ones are only moved to 0."""
    return LabelScale(mean=float(values.mean()), deviation=float(values.std(ddof=0)) or 1.0)


def signature_of(
    inputs: Mapping[str, Input], classes: int, scale: LabelScale = NO_SCALE, sizes: Mapping[str, int] | None = None
) -> Signature:
    """Return the signature of inputs and a label that is a class, or a number on a scale."""
    task = Task.CLASSES if classes else Task.NUMBER
    return Signature(task, inputs, classes, sizes or {}, scale.mean, scale.deviation)


def deviation_notice(labels: NDArray[Any]) -> str:
    """Say how far validation labels are from their mean, which is what a model has to beat."""
    error = f"{labels.std():.4g}"
    return f"The validation labels have a standard deviation of {error}, the error of predicting the mean."


class Labels(Struct, frozen=True):
    """The labels of examples in memory, and which examples are used for what."""

    values: NDArray[Any]  # class numbers, int32; or numbers, float32
    names: tuple[str, ...]  # of the classes; empty if the labels are numbers
    parts: Parts
    scale: LabelScale  # of labels that are numbers
    record: dict[str, Any]  # what a run's record says about them
    notices: tuple[str, ...]

    def examples(
        self,
        rows: NDArray[Any],
        inputs: Mapping[str, Input],
        record: Mapping[str, Any],
        notices: Sequence[str] = (),
        sizes: Mapping[str, int] | None = None,
        pixel_range: float = 0.0,
    ) -> Examples:
        """Return the examples with a row of inputs for each label; `record` and `notices` are said besides."""
        return of_arrays(
            *((rows[part], self.values[part]) for part in self.parts),
            signature=signature_of(inputs, len(self.names), self.scale, sizes),
            pixel_range=pixel_range,
            class_names=self.names,
            record={**record, **self.record},
            notices=(*self.notices, *notices),
        )


def split_classes(
    numbers: NDArray[Any], names: tuple[str, ...], config: RunConfig, parts: Parts | None = None
) -> Labels:
    """Split examples class by class, given the class number of each, unless both `parts` are given."""
    used, notices = stratified_split(numbers, names, config) if parts is None else (parts, [])
    counts = counts_by_class(numbers[used[0]], numbers[used[1]], len(names))
    return Labels(numbers, names, used, NO_SCALE, {"class_names": names, "class_counts": counts}, tuple(notices))


def split_by_label(column: pd.Series[str], path: str, config: RunConfig, parts: Parts | None = None) -> Labels:
    """Split the rows of a table by a column of labels, as `split_classes` does; `path` is for errors.

    Raises `DataError` if there is only one class, or there are too many.
    """
    names = tuple(sorted(column.str.strip().unique().tolist(), key=class_order))
    if len(names) == 1:
        what = f"{shown(path)}: all {len(column):,} labels in column '{column.name}' are '{names[0]}'."
        raise DataError(what, remedy="Training needs two or more classes; set data.options.label to another column.")
    if len(names) > len(column) // 2:
        what = f"{shown(path)}: column '{column.name}' has {len(names):,} different labels in {len(column):,} rows"
        remedy = "Set data.options.label to the column with the classes."
        raise DataError(f"{what}, too many for a classification.", remedy=remedy)
    numbers = column.str.strip().map({name: number for number, name in enumerate(names)})
    return split_classes(numbers.to_numpy().astype("int32"), names, config, parts)


def split_numbers(values: NDArray[Any], config: RunConfig, parts: Parts | None = None) -> Labels:
    """Split examples whose labels are numbers at random, unless both `parts` are given."""
    train, validation = parts or random_split(len(values), "rows", config)
    scale = scale_of(values[train])
    notice = deviation_notice(values[validation])
    return Labels(values, (), (train, validation), scale, {"label": scale.model_dump()}, (notice,))


def parts_of(train: int, total: int, config: RunConfig) -> Parts | None:
    """Return the parts of examples of which the first so many are for training; None if all of them are."""
    import numpy as np

    if train == total:
        return None
    rows = np.random.default_rng(config.seed).permutation(train)
    return rows[: config.data.train_limit or None], np.arange(train, total)


def random_split(count: int, what: str, config: RunConfig) -> Parts:
    """Return which of some examples without classes are used for what; raise `DataError` if they are too few."""
    import numpy as np

    order = np.random.default_rng(config.seed).permutation(count)
    held_out = max(1, round(count * config.data.validation_fraction))
    if held_out >= count:
        share = f"data.validation_fraction={config.data.validation_fraction}"
        raise DataError(f"{count:,} {what} are too few to split into training and validation data with {share}.")
    return order[held_out:][: config.data.train_limit or None], order[:held_out]


def stratified_split(labels: NDArray[Any], class_names: Sequence[str], config: RunConfig) -> tuple[Parts, list[str]]:
    """Split examples so that each class has about the same share of both parts; return what to report as well.

    A class with one example is used for training; every other one is in both parts. `labels` are class numbers.
    """
    import numpy as np
    from sklearn.model_selection import train_test_split

    data, seed = config.data, config.seed
    counts = np.bincount(labels, minlength=len(class_names))
    indices = np.arange(len(labels))
    divisible = indices[counts[labels] > 1]
    kinds = int((counts > 1).sum())
    # scikit-learn needs room for every class in both parts.
    held_out = min(max(round(data.validation_fraction * len(labels)), kinds), len(divisible) - kinds)
    validation = divisible[:0]
    if held_out:
        kept, validation = train_test_split(
            divisible, test_size=held_out, random_state=seed, stratify=labels[divisible]
        )
        # scikit-learn's rounding can drop small classes: single examples are swapped until each is in both parts.
        for mine, other in ((kept, validation), (validation, kept)):
            for number in np.setdiff1d(labels[mine], labels[other]):
                largest = np.bincount(labels[other]).argmax()
                given, taken = np.argmax(labels[mine] == number), np.argmax(labels[other] == largest)
                mine[given], other[taken] = other[taken], mine[given]
    train = np.random.default_rng(seed).permutation(np.setdiff1d(indices, validation))[: data.train_limit or None]
    single = [class_names[number] for number in np.flatnonzero(counts == 1).tolist()]
    what = f"The class '{first_of(single)}' has one example: it is used for training only."
    if len(single) > 1:
        what = f"{len(single):,} classes have one example each, used for training only: {first_of(single)}."
    return (train, validation), [what] if single else []


def counts_by_class(train: NDArray[Any], validation: NDArray[Any], classes: int) -> dict[str, list[int]]:
    """Count the examples of each class in both parts."""
    import numpy as np

    parts = {"train": train, "validation": validation}
    return {name: np.bincount(labels, minlength=classes).tolist() for name, labels in parts.items()}


def has_class_labels(examples: Examples) -> bool:
    """Return whether labels are class numbers, or a probability for each class, of a known number of classes."""
    label, classes = label_of(examples.train), examples.signature.classes
    if label is None:
        return False
    is_number = label.shape.as_list() in ([], [1]) and label.dtype.is_integer
    return bool(classes) and (is_number or label.shape.as_list() == [classes])


def training_weights(examples: Examples, asked: str | Mapping[str, float]) -> NDArray[np.float32] | None:
    """Return the weight of each class as ``class_weight`` asks for it; None for ``none``.

    Balanced classes count equally: ``n / (k · n_c)`` for k classes with examples, as in scikit-learn. The counts are in
    the dataset's record, or need a pass over the labels. Raises `DataError` without class labels or a known length.
    """
    if asked == "none":
        return None
    import numpy as np

    label, classes = label_of(examples.train), examples.signature.classes
    if not isinstance(asked, str):
        if label is None or label.dtype.name == "string" or len(label.shape) > 1:
            raise DataError("class_weight needs one label for each example, a class.", remedy="Set class_weight=none.")
        if classes and (unknown := [number for number in asked if int(number) >= classes]):
            raise DataError(f"class_weight names class {unknown[0]}, but the data has classes 0 to {classes - 1:,}.")
        # One more than the classes: that of labels beyond the table.
        weights = np.ones(1 + max(classes, *(int(number) + 1 for number in asked), *label.shape), np.float32)
        for number, weight in asked.items():
            weights[int(number)] = weight
        return weights
    if not has_class_labels(examples):
        what = "class_weight=balanced needs labels that are class numbers or a probability for each class."
        raise DataError(what, remedy="Set class_weight=none.")
    counted = examples.record.get("class_counts", {}).get("train")
    if counted is None and examples.train_count is None:
        what = "class_weight=balanced has to count the classes, but the dataset has an unknown number of examples."
        remedy = "Set the number with tf.data.experimental.assert_cardinality, or set class_weight=none."
        raise DataError(what, remedy=remedy)
    counts = class_totals(examples.train, classes) if counted is None else np.asarray(counted, np.float64)
    present = counts > 0
    weights = np.zeros(len(counts), np.float32)
    weights[present] = counts.sum() / (present.sum() * counts[present])
    return weights


def class_totals(dataset: Any, classes: int) -> NDArray[np.float64]:
    """Count the examples of each class in one pass over the labels; probabilities count in part for each class."""
    import numpy as np
    import tensorflow as tf

    def shares(_: Any, label: Any, *__: Any) -> Any:
        is_number = label.dtype.is_integer and label.shape != [classes]
        return tf.one_hot(tf.reshape(label, ()), classes) if is_number else label

    batches = [] if dataset is None else dataset.map(shares).batch(_LABELS)  # small, whatever the examples are
    totals: NDArray[np.float64] = sum((batch.numpy().sum(axis=0, dtype=float) for batch in batches), np.zeros(classes))
    return totals


def class_numbers(labels: Any) -> Any:
    """Return a batch of class numbers without the axis that a column of them has."""
    return labels[:, 0] if labels.shape.rank == 2 and labels.shape[1] == 1 else labels


def sample_weights(labels: Any, weights: NDArray[np.float32]) -> Any:
    """Return the weight of each example of a batch, from its class number or its probability for each class."""
    import tensorflow as tf

    numbers = class_numbers(labels)
    if numbers.shape.rank == 1:
        numbers = tf.cast(tf.round(numbers), tf.int32)
        return tf.gather(tf.constant(weights), tf.minimum(numbers, len(weights) - 1))
    return tf.linalg.matvec(tf.cast(labels, tf.float32), tf.constant(weights[: labels.shape[-1]]))
