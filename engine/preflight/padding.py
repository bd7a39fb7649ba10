"""Finds how much of each layer's work is padding to the tiles of a TPU.

A TPU keeps the two innermost dimensions of an array in tiles of 8 × 128 numbers (16 × 128 of 16 bits), and its matrix
unit multiplies blocks of 128 × 128 numbers, or 256 × 256 from v6e on (Google Cloud, "Cloud TPU performance guide" and
"TPU v6e"; JAX, "Pallas TPU", on tiles). For each product the unit holds one operand, whose two sides are padded to 128,
and streams the other through in rows that are padded to 8 or 16. The compiler chooses which one to hold: the better one
is counted here, so the waste is a lower bound. Blocks of 128 are counted for every TPU, although from v6e on only
multiples of 256 fill the unit.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..config.batch import padded
from .layers import all_layers, count, has_open_sides, products, shapes_of
from .result import Waste
from .traffic import LANES

if TYPE_CHECKING:
    from collections.abc import Callable

    from .layers import Product

_LEAST_SHARE = 0.005  # waste below this share is not reported
_FARTHEST = 4096  # how far from a size to search for one that wastes nothing


def find_waste(model: Any, replica_batch: int, precision: str) -> tuple[Waste, ...]:
    """Return the layers that compute padding, sorted by wasted operations.

    There is at most one entry per layer and dimension; attention has two widths, its own and a head's. Layers for any
    length are left out, except tables: how much they compute is not known.
    """
    rows = 16 if precision.endswith(("bfloat16", "float16")) else 8
    found: list[Waste] = []
    for layer in all_layers(model):
        if type(layer).__name__ == "Embedding":
            found += _of_embedding(layer)
        elif has_open_sides(layer, "output"):
            continue
        elif made := products(layer):
            found += _of_products(layer.name, made, replica_batch, rows)
        elif "Depthwise" in type(layer).__name__ or "Separable" in type(layer).__name__:
            found += _of_depthwise(layer, replica_batch, rows)
    return tuple(sorted(found, key=lambda waste: (-waste.flops * waste.share, -waste.share, waste.layer)))


def _of_products(name: str, made: list[Product], batch: int, rows: int) -> list[Waste]:
    """Return the waste of a layer from its products in a step: one forward, and two backward."""
    flops = sum(_cost(one, batch, one.feature, rows) for one in made)
    exact_batch = sum(_cost(one, batch, one.feature, rows, is_batch_exact=True) for one in made)
    found = []
    for feature in dict.fromkeys(one.feature for one in made):
        own = [one for one in made if one.feature == feature]
        exact = sum(_cost(one, batch, feature, rows, is_feature_exact=True) for one in own)
        lost = (sum(_cost(one, batch, feature, rows) for one in own) - exact) / flops
        if lost < _LEAST_SHARE:
            continue

        def is_clean(size: int, own: list[Product] = own) -> bool:
            paid = sum(_cost(one, batch, size, rows) for one in own)
            return paid <= sum(_cost(one, batch, size, rows, is_feature_exact=True) for one in own) * (1 + 1e-9)

        nearest = _nearest(feature, is_clean)
        found.append(Waste(name, "features", feature, padded(feature, LANES), lost, flops, nearest))
    if (lost := 1 - exact_batch / flops) >= _LEAST_SHARE:
        best = _nearest(
            batch,
            lambda size: all(
                _cost(one, size, one.feature, rows)
                <= _cost(one, size, one.feature, rows, is_batch_exact=True) * (1 + 1e-9)
                for one in made
            ),
        )
        # Weight gradients are sums over the batch, which the unit computes in blocks of 128.
        found.append(Waste(name, "batch", batch, padded(batch, LANES), lost, flops, best))
    return found


def _cost(
    one: Product, batch: int, feature: int, rows: int, *, is_feature_exact: bool = False, is_batch_exact: bool = False
) -> float:
    """Return the operations per step of a product, padding included except in an exact dimension.

    `feature` is the layer's size, or another one to try; `rows` are the rows per tile.
    """
    columns = max(1, one.columns * feature // one.feature)

    def side(size: int, to: int, kind: str) -> int:
        is_exact = is_feature_exact if kind == "feature" else kind == "batch" and is_batch_exact
        return size if is_exact else padded(size, to)

    def product(contracted: tuple[int, str], left: tuple[int, str], right: tuple[int, str]) -> int:
        held, streamed = [side(s, LANES, k) for s, k in (left, right)], [side(s, rows, k) for s, k in (left, right)]
        return side(contracted[0], LANES, contracted[1]) * min(held[0] * streamed[1], streamed[0] * held[1])

    # To the matrix unit, a convolution's places are like examples.
    many, put = (one.places, "other") if one.is_alone else (batch * one.places, "batch")
    given, made = (one.contracted, "other"), (columns, "feature")
    forward = product(given, (many, put), made)
    weights = product((many, put), given, made)
    # Backward, the window goes over the output and produces the input's channels.
    inputs = product((columns * one.kernel, "feature"), (many, put), (max(1, one.contracted // one.kernel), "other"))
    times = one.repeats * (batch if one.is_alone else 1)
    return 2.0 * times * (forward + weights + inputs)


def _of_depthwise(layer: Any, batch: int, rows: int) -> list[Waste]:
    """A depthwise convolution is not a product: the vector unit computes it, on tiles of channels and examples."""
    outputs = shapes_of(layer, "output")
    kernel = next((weight for weight in layer.weights if len(weight.shape) >= 3), None)
    if not outputs or kernel is None:
        return []
    channels = int(outputs[0][-1] or 1)
    places = count(outputs[0]) // channels
    paid = min(padded(channels, LANES) * padded(batch, rows), padded(channels, rows) * padded(batch, LANES))
    exact = min(channels * padded(batch, rows), channels * padded(batch, LANES))
    share = 1 - exact / paid
    if share < _LEAST_SHARE:
        return []
    flops = 6.0 * math.prod(kernel.shape[:-2]) * places * paid
    return [
        Waste(layer.name, "features", channels, padded(channels, LANES), share, flops, _nearest(channels, _is_whole))
    ]


def _of_embedding(layer: Any) -> list[Waste]:
    """An embedding multiplies nothing; it wastes memory traffic."""
    width = int(layer.output_dim)
    share = 1 - width / padded(width, LANES)
    if share < _LEAST_SHARE:
        return []
    return [Waste(layer.name, "features", width, padded(width, LANES), share, 0.0, _nearest(width, _is_whole))]


def _is_whole(size: int) -> bool:
    return size % LANES == 0


def _nearest(size: int, is_clean: Callable[[int], bool]) -> int:
    """Return the nearest size that wastes nothing, the larger one of two."""
    for distance in range(_FARTHEST):
        for candidate in (size + distance, size - distance):
            if candidate > 0 and is_clean(candidate):
                return candidate
    return padded(size, LANES)
