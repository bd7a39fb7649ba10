"""A few example images of a dataset, small enough to draw in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...data.small_pictures import small_picture

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...data.examples import Examples

_LOOKED_AT = 40
"""Examples to search per image, to find one of every class."""


def picture_samples(examples: Examples, count: int) -> list[dict[str, Any]]:
    """Return some training examples as in `small_picture`, of as many classes as a short search finds."""
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
    return [small_picture(name, image, examples.pixel_range) for name, image in taken[:count]]


def _caption(label: NDArray[Any], examples: Examples) -> str:
    if label.ndim > 1 or not examples.signature.classes:
        return ""
    number = int(label.argmax()) if label.ndim == 1 else int(label)
    return examples.class_names[number] if number < len(examples.class_names) else str(number)
