"""Describes examples for `inspect`: statistics, texts, and images small enough to draw in a terminal."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .vocabulary import PADDING, UNKNOWN, without_markup, words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .examples import Examples

_BINS = 10
_SHOWN = 4
_LOOKED_AT = 20_000  # examples in which unknown words are counted
_BATCH = 1024
LARGEST_SIDE = 48  # of a picture, in pixels


def spread(values: NDArray[Any]) -> dict[str, float]:
    """Return the ``min``, ``median`` and ``max`` of some values."""
    return {"min": float(values.min()), "median": float(np.median(values)), "max": float(values.max())}


def histogram(values: NDArray[Any]) -> list[dict[str, float]]:
    """Count at least one value in bins of equal width, each with its ``low``, ``high`` and ``count``.

    The last bin takes all outliers above. A bin of whole numbers includes both ends. If there are few different values,
    each gets a bin, and both ends are the value.
    """
    lows, counts = np.unique(values, return_counts=True)
    highs = lows
    if len(lows) > _BINS:
        low, high = float(values.min()), float(np.quantile(values, 0.99))
        is_whole = np.issubdtype(values.dtype, np.integer)
        step = float(np.ceil((high - low + 1) / _BINS)) if is_whole else max((high - low) / _BINS, 1e-12)
        edges = low + step * np.arange(_BINS + 1)
        counts = np.bincount(np.digitize(values, edges[1:-1]), minlength=_BINS)
        lows, highs = edges[:-1], edges[1:] - is_whole
        highs[-1] = max(highs[-1], float(values.max()))
    bins = zip(lows.tolist(), highs.tolist(), counts.tolist(), strict=True)
    return [{"low": float(low), "high": float(high), "count": count} for low, high, count in bins]


def describe_texts(texts: Mapping[str, Sequence[str]], cut_at: int, labels: Sequence[str] = ()) -> dict[str, Any]:
    """Describe columns of texts without their markup, and their labels if they have any.

    Returns some ``samples``; for each column of texts, under ``words``, the smallest, median and largest number of
    words, a ``histogram`` of them and the share of texts that is ``cut``; and ``cut_at``, the length they are cut to.
    """
    texts = {name: [*map(without_markup, column)] for name, column in texts.items()}
    columns = {**texts, **({"label": labels} if labels else {})}
    total = len(next(iter(texts.values())))
    chosen = range(0, total, max(1, total // _SHOWN))[:_SHOWN]
    lengths = {name: np.array([len(words_of(text)) for text in column]) for name, column in texts.items()}
    words = {
        name: {**spread(counts), "histogram": histogram(counts), "cut": float(np.mean(counts > cut_at))}
        for name, counts in lengths.items()
    }
    samples = [{name: column[row] for name, column in columns.items()} for row in chosen]
    return {"samples": samples, "words": words, "cut_at": cut_at}


def unknown_share(examples: Examples) -> dict[str, dict[str, float]]:
    """Return the share of words that are not in the vocabulary, per part of the dataset and input."""
    shares = {}
    for part, dataset in (("train", examples.train), ("validation", examples.validation)):
        unknown, words = Counter[str](), Counter[str]()
        for batch, *_ in () if dataset is None else dataset.take(_LOOKED_AT).batch(_BATCH):
            for name, numbers in (batch if isinstance(batch, dict) else {"text": batch}).items():
                values = numbers.numpy()
                unknown[name] += int((values == UNKNOWN).sum())
                words[name] += int((values != PADDING).sum())
        if dataset is not None:
            shares[part] = {name: unknown[name] / max(words[name], 1) for name in words}
    return shares


def small_picture(caption: str, image: NDArray[Any], pixel_range: float) -> dict[str, Any]:
    """Return an image small enough to draw in a terminal: its caption, height, width and ``rgb``, bytes in base64.

    Its pixels have shape (height, width, 1 or 3); `pixel_range` is the largest value of one, 0 if unknown.
    """
    import tensorflow as tf

    pixels = image.astype(np.float32)
    height, width = pixels.shape[:2]
    if (longest := max(height, width)) > LARGEST_SIDE:
        size = [max(1, round(side * LARGEST_SIDE / longest)) for side in (height, width)]
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
