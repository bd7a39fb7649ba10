"""Describes texts: samples, their number of words, and the share of words outside the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .spread import histogram, spread
from .vocabulary import PADDING, UNKNOWN, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .examples import Examples

_SHOWN = 4
_LOOKED_AT = 20_000  # examples in which unknown words are counted
_BATCH = 1024


def describe_texts(texts: Mapping[str, Sequence[str]], cut_at: int, labels: Sequence[str] = ()) -> dict[str, Any]:
    """Describe columns of texts, and their labels if they have any.

    Returns:
        Some ``samples``; for each column of texts, under ``words``, the smallest, median and largest number of words,
        a ``histogram`` of them and the share of texts that is ``cut``; and ``cut_at``, the length they are cut to.
    """
    total = len(next(iter(texts.values())))
    chosen = range(0, total, max(1, total // _SHOWN))[:_SHOWN]
    lengths = {name: np.array([len(words_of(text)) for text in column]) for name, column in texts.items()}
    return {
        "samples": [
            {name: column[row] for name, column in texts.items()} | ({"label": labels[row]} if labels else {})
            for row in chosen
        ],
        "words": {
            name: {**spread(counts), "histogram": histogram(counts), "cut": float(np.mean(counts > cut_at))}
            for name, counts in lengths.items()
        },
        "cut_at": cut_at,
    }


def unknown_share(examples: Examples) -> dict[str, dict[str, float]]:
    """Return the share of words that are not in the vocabulary, per part of the dataset and input."""
    parts = {"train": examples.train, "validation": examples.validation}
    return {part: _unknown(dataset) for part, dataset in parts.items() if dataset is not None}


def _unknown(dataset: Any) -> dict[str, float]:
    unknown: dict[str, int] = {}
    words: dict[str, int] = {}
    for batch, *_ in dataset.take(_LOOKED_AT).batch(_BATCH):
        for name, numbers in (batch if isinstance(batch, dict) else {"text": batch}).items():
            values = numbers.numpy()
            unknown[name] = unknown.get(name, 0) + int((values == UNKNOWN).sum())
            words[name] = words.get(name, 0) + int((values != PADDING).sum())
    return {name: unknown[name] / max(words[name], 1) for name in words}
