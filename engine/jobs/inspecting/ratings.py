"""Describes ratings: how many there are per user and item, and how they are distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .spread import histogram, spread

if TYPE_CHECKING:
    from ...data.examples import Examples

_BATCH = 1 << 16


def describe_ratings(examples: Examples) -> dict[str, Any]:
    """Describe ratings, training and validation together; user or item 0 means no training ratings.

    Returns:
        How many ``ratings``, ``users`` and ``items``; the share of all pairs that is rated, ``density``; the number of
        ratings per user and per item, ``by_user`` and ``by_item``; the ``mean`` rating, and a ``histogram``.
    """
    parts = [part for part in (examples.train, examples.validation) if part is not None]
    batches = [(inputs["user"].numpy(), inputs["item"].numpy(), ratings.numpy())
               for part in parts for inputs, ratings, *_ in part.batch(_BATCH)]  # fmt: skip
    users, items, ratings = (np.concatenate(column) for column in zip(*batches, strict=True))
    by_user, by_item = (np.bincount(numbers)[1:] for numbers in (users, items))
    by_user, by_item = by_user[by_user > 0], by_item[by_item > 0]
    return {
        "ratings": len(ratings),
        "users": len(by_user),
        "items": len(by_item),
        "density": len(ratings) / (len(by_user) * len(by_item)),
        "by_user": spread(by_user),
        "by_item": spread(by_item),
        "mean": float(ratings.mean()),
        "histogram": histogram(ratings),
    }
