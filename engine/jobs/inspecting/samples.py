"""A few example images of a dataset, small enough to draw in a terminal."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...data.examples import Examples

_LARGEST = 48  # longest side of a picture, in pixels
_LOOKED_AT = 40  # examples to search per image, to find one of every class


def picture_samples(examples: Examples, count: int) -> list[dict[str, Any]]:
    """Return some training examples as images, of as many classes as a short search finds.

    Returns:
        For each its class as ``caption``, ``height``, ``width``, and ``rgb``: three bytes per pixel, in base64.
    """
    shape = examples.signature.shape
    if len(shape) != 3 or shape[-1] not in {1, 3}:
        return []
    by_class: dict[str, list[NDArray[Any]]] = {}
    most = min(count * _LOOKED_AT, examples.train_count or count * _LOOKED_AT)
    wanted = min(examples.signature.classes or 1, count)
    for image, label, *_ in examples.train.take(most):
        by_class.setdefault(_caption(label.numpy(), examples), []).append(image.numpy())
        if len(by_class) >= wanted and sum(map(len, by_class.values())) >= count:
            break
    # One of each class, then a second one of each class, and so on.
    rounds = max(map(len, by_class.values()), default=0)
    taken = [(name, by_class[name][turn]) for turn in range(rounds) for name in sorted(by_class)
             if turn < len(by_class[name])]  # fmt: skip
    return [_picture(name, image, examples.pixel_range) for name, image in taken[:count]]


def _caption(label: NDArray[Any], examples: Examples) -> str:
    if label.ndim > 1 or not examples.signature.classes:
        return ""
    number = int(label.argmax()) if label.ndim == 1 else int(label)
    return examples.class_names[number] if number < len(examples.class_names) else str(number)


def _picture(caption: str, image: NDArray[Any], pixel_range: float) -> dict[str, Any]:
    pixels = image.astype(np.float32)
    height, width = pixels.shape[:2]
    if (longest := max(height, width)) > _LARGEST:
        size = [max(1, round(side * _LARGEST / longest)) for side in (height, width)]
        pixels = tf.image.resize(pixels, size, method="area").numpy()
    # The range of a custom dataset is unknown: values above 1 are bytes, others are shares.
    scale = 255 / (pixel_range or (1.0 if float(pixels.max(initial=0)) <= 1.0 else 255.0))
    values = np.clip(pixels * scale, 0, 255).astype(np.uint8)
    values = np.broadcast_to(values, (*values.shape[:2], 3))
    return {
        "caption": caption,
        "height": values.shape[0],
        "width": values.shape[1],
        "rgb": base64.b64encode(values.tobytes()).decode("ascii"),
    }
