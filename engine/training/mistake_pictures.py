"""Pictures of validation examples that the final model got wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..data.small_pictures import small_picture
from ..models.outputs import apply_activation
from ..runs.class_report import MOST_PICTURES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..data.examples import Examples

_MOST_EXAMPLES = 2_000
_MOST_BYTES = 64 << 20


def mistake_pictures(
    model: Any, validation: Any, examples: Examples, names: Sequence[str], activation: str
) -> list[dict[str, Any]]:
    """Return the mistakes among the first examples that the model was most sure of; empty if they are not images.

    The activation turns the model's outputs into probabilities; empty if they are probabilities.
    """
    shape = examples.signature.shape
    if len(shape) != 3 or shape[-1] not in {1, 3}:
        return []
    images, labels = _first(validation)
    given = model.predict(images, batch_size=batch_size(validation), verbose=0)
    outputs = np.asarray(apply_activation(activation, given), np.float32)
    if outputs.shape[1] == 1:
        outputs = np.hstack([1 - outputs, outputs])
    guesses, sure = outputs.argmax(axis=1), outputs.max(axis=1)
    wrong = np.flatnonzero((guesses != labels) & np.isfinite(outputs).all(axis=1))
    surest = wrong[np.argsort(-sure[wrong], kind="stable")][:MOST_PICTURES]
    # The pipeline may have scaled the pixels: what counts is their range now.
    low, high = float(images.min()), float(images.max())
    return [
        small_picture(f"{names[labels[at]]} → {names[guesses[at]]}", images[at] - low, high - low or 1.0)
        for at in surest.tolist()
    ]


def batch_size(validation: Any) -> int:
    """Return the number of examples in the first batch of (inputs, labels)."""
    return int(tf.nest.flatten(next(iter(validation)))[0].shape[0])


def _first(validation: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Return the images and class numbers of the first batches of equal size, which replicas can share."""
    images: list[npt.NDArray[Any]] = []
    labels: list[npt.NDArray[Any]] = []
    for batch, label, *_ in validation:
        if images and len(batch) != len(images[0]):
            break
        images.append(batch.numpy())
        labels.append(label.numpy())
        if len(images) * len(batch) >= _MOST_EXAMPLES or len(images) * images[0].nbytes >= _MOST_BYTES:
            break
    values = np.concatenate(labels)
    if values.ndim == 2:
        values = values.argmax(axis=1) if values.shape[1] > 1 else values[:, 0]
    return np.concatenate(images).astype(np.float32), values.astype(np.int64)
