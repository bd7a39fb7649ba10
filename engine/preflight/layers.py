"""The layers of a built Keras model, the matrix products that they compute, and how much of these is padding.

A TPU keeps the two innermost dimensions of an array in tiles of 8 × 128 numbers (16 × 128 of 16 bits), and its matrix
unit multiplies blocks of 128 × 128 numbers, or 256 × 256 from v6e on (Google Cloud, "Cloud TPU performance guide" and
"TPU v6e"; JAX, "Pallas TPU", on tiles). For each product the unit holds one operand, whose two sides are padded to 128,
and streams the other through in rows that are padded to 8 or 16. The compiler chooses which one to hold: the better one
is counted here, so the waste is a lower bound. Blocks of 128 are counted for every TPU, although from v6e on only
multiples of 256 fill the unit.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from ..compat.keras import attention_projection
from ..planning import TILE, padded
from .result import Waste


class Product(Struct, frozen=True):
    """One product of matrices in a layer's forward pass: ``(rows, contracted) · (contracted, columns)``, repeated."""

    places: int  # how often it is done per example, such as once per pixel
    contracted: int  # length of the sums
    columns: int  # numbers in the result per example and place
    feature: int  # the layer's size that these numbers, or the sums, come from, such as its filters
    kernel: int = 1  # numbers of the kernel per feature: columns per feature if it is contracted in the backward pass
    repeats: int = 1  # independent products of this kind per example: heads, groups
    # Whether each example is multiplied by its own matrices, as in attention, and not by weights.
    is_alone: bool = False


def all_layers(model: Any) -> Iterator[Any]:
    """Yield every layer of a model that is not itself a model, including those in inner models and wrappers, once."""
    seen: set[int] = set()
    waiting = list(reversed(model.layers))
    while waiting:
        layer = waiting.pop()
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        inner = list(getattr(layer, "layers", None) or [])
        if not inner:
            yield layer
        # Wrappers such as `TimeDistributed` and `Bidirectional` use these names; anything else there is ignored.
        wrapped = (getattr(layer, name, None) for name in ("layer", "forward_layer", "backward_layer"))
        waiting += reversed([*inner, *(one for one in wrapped if hasattr(one, "weights"))])


def shapes_of(layer: Any, side: str) -> list[tuple[int | None, ...]]:
    """Return the shapes of a layer's ``input`` or ``output``, batch included; empty if the layer was never called."""
    end = getattr(layer, side, None)  # Keras raises AttributeError before a call
    return [tuple(tensor.shape) for tensor in (end if isinstance(end, list | tuple) else [end]) if tensor is not None]


def layer_text(layer: Any) -> str:
    """Return a layer as the subject of a sentence."""
    return f"The layer '{layer.name}' ({type(layer).__name__})"


def has_open_sides(layer: Any, side: str) -> bool:
    """Whether Keras does not know a length of a layer's ``input`` or ``output``, as in a model for any length."""
    return any(None in shape[1:] for shape in shapes_of(layer, side))


def count(shape: tuple[int | None, ...]) -> int:
    """Return the numbers per example in a shape that begins with the batch; an unknown side counts as 1."""
    return math.prod(size or 1 for size in shape[1:])


def products(layer: Any) -> list[Product]:
    """Return the products that a layer computes; empty if it multiplies no matrices."""
    kind = type(layer).__name__
    if kind in {"MultiHeadAttention", "GroupedQueryAttention"}:
        return _attention(layer)
    kernel = getattr(layer, "kernel", None)
    if kernel is None and (cell := getattr(layer, "cell", None)) is not None:
        # A recurrent layer multiplies its input and its state at every step.
        kernels = [getattr(cell, name, None) for name in ("kernel", "recurrent_kernel")]
        shapes = [tuple(one.shape) for one in kernels if one is not None and len(one.shape) == 2]
        return [Product(_length(layer), one[0], one[1], int(getattr(layer, "units", one[1]))) for one in shapes]
    if kernel is None or "Depthwise" in kind or "Separable" in kind:
        return []
    shape = tuple(kernel.shape)
    outputs = shapes_of(layer, "output")
    if kind == "EinsumDense":
        columns = math.prod(size or 1 for size in outputs[0][1:] if size in shape) if outputs else shape[-1]
        rows = count(outputs[0]) // columns if outputs else 1
        return [Product(max(1, rows), max(1, math.prod(shape) // columns), columns, columns)]
    if "Transpose" in kind:  # its kernel is that of the convolution that it reverses
        *window, filters, channels = shape
        inputs = shapes_of(layer, "input")
        places = count(inputs[0]) // channels if inputs else 1
        return [Product(places, channels, filters * math.prod(window), filters)]
    *window, contracted, columns = shape
    groups = int(getattr(layer, "groups", 1) or 1)
    places = count(outputs[0]) // columns if outputs else 1
    area = math.prod(window)
    return [Product(places, contracted * area, columns // groups, columns, area, groups)]


def _attention(layer: Any) -> list[Product]:
    """Split attention into its projections, which multiply by weights, and the products of heads."""
    length, other = (_length(layer, number) for number in (0, 1))
    found = []
    for name, steps in (("query", length), ("key", other), ("value", other), ("output", length)):
        kernel = getattr(attention_projection(layer, name), "kernel", None)
        if kernel is not None:
            shape = tuple(kernel.shape)
            contracted, columns = (shape[0], shape[1:]) if name != "output" else (math.prod(shape[:-1]), shape[-1:])
            found.append(Product(steps, contracted, math.prod(columns), math.prod(columns)))
    if found:
        # Places by places, and the sums over them, for each head.
        heads = int(getattr(layer, "num_heads", None) or layer.num_query_heads)
        for name in ("key_dim", "value_dim"):
            size = int(getattr(layer, name, None) or getattr(layer, "head_dim", 0) or found[0].columns // heads)
            found.append(Product(length, other, size, size, repeats=heads, is_alone=True))
    return found


def _length(layer: Any, number: int = 0) -> int:
    """Return the length of the sequences that a layer gets as one of its inputs, or else as the first."""
    inputs = shapes_of(layer, "input")
    shape = next((one for one in (*inputs[number : number + 1], *inputs[:1]) if len(one) > 1), (None, None))
    return shape[1] or 1


_LEAST_SHARE = 0.005  # waste below this share is not reported
_SAME = 1 + 1e-9  # how many times as much counts as the same
_FARTHEST = 4096  # how far from a size to search for one that wastes nothing


def find_waste(model: Any, replica_batch: int, precision: str) -> tuple[Waste, ...]:
    """Return the layers that compute padding, sorted by wasted operations.

    There is at most one entry per layer and dimension; attention has two widths, its own and a head's. Layers for any
    length are left out, except tables: how much they compute is not known.
    """
    rows = 16 if precision.endswith(("bfloat16", "float16")) else 8
    found = (waste for layer in all_layers(model) for waste in _of_layer(layer, replica_batch, rows))
    return tuple(sorted(found, key=lambda waste: (-waste.flops * waste.share, -waste.share, waste.layer)))


def _of_layer(layer: Any, batch: int, rows: int) -> Iterator[Waste]:
    kind = type(layer).__name__
    if kind == "Embedding":  # it multiplies nothing, and wastes memory traffic
        width = int(layer.output_dim)
        yield from _of_width(layer.name, width, 1 - width / padded(width, TILE), 0.0)
    elif has_open_sides(layer, "output"):
        return
    elif made := products(layer):
        yield from _of_products(layer.name, made, batch, rows)
    elif ("Depthwise" in kind or "Separable" in kind) and (outputs := shapes_of(layer, "output")):
        # This is not a product: the vector unit computes it, on tiles of channels and examples.
        channels = int(outputs[0][-1] or 1)
        paid = min(padded(channels, TILE) * padded(batch, rows), padded(channels, rows) * padded(batch, TILE))
        exact = min(channels * padded(batch, rows), channels * padded(batch, TILE))
        for kernel in [weight for weight in layer.weights if len(weight.shape) >= 3][:1]:
            flops = 6.0 * math.prod(kernel.shape[:-2]) * (count(outputs[0]) // channels) * paid
            yield from _of_width(layer.name, channels, 1 - exact / paid, flops)


def _of_width(name: str, size: int, share: float, flops: float) -> Iterator[Waste]:
    if share >= _LEAST_SHARE:
        nearest = max(TILE, (size + TILE // 2) // TILE * TILE)  # the larger one of two
        yield Waste(name, "features", size, padded(size, TILE), share, flops, nearest)


def _of_products(name: str, made: list[Product], batch: int, rows: int) -> Iterator[Waste]:
    """Yield the waste of a layer from its products in a step: one forward, and two backward."""

    def cost(part: list[Product], batch: int, feature: int = 0, exact: str = "") -> float:
        return sum(_cost(one, batch, feature or one.feature, rows, exact) for one in part)

    flops = cost(made, batch)
    for feature in dict.fromkeys(one.feature for one in made):
        own = [one for one in made if one.feature == feature]

        def is_clean(size: int, own: list[Product] = own) -> bool:
            return cost(own, batch, size) <= _SAME * cost(own, batch, size, "feature")

        if (lost := (cost(own, batch) - cost(own, batch, exact="feature")) / flops) >= _LEAST_SHARE:
            nearest = _nearest(feature, is_clean)
            yield Waste(name, "features", feature, padded(feature, TILE), lost, flops, nearest)
    if (lost := 1 - cost(made, batch, exact="batch") / flops) >= _LEAST_SHARE:
        best = _nearest(batch, lambda size: cost(made, size) <= _SAME * cost(made, size, exact="batch"))
        # Weight gradients are sums over the batch, which the unit computes in blocks of 128.
        yield Waste(name, "batch", batch, padded(batch, TILE), lost, flops, best)


def _cost(one: Product, batch: int, feature: int, rows: int, exact: str = "") -> float:
    """Return the operations per step of a product, padding included except in the `exact` dimension, if any.

    `feature` is the layer's size, or another one to try; `rows` are the rows per tile.
    """
    columns = max(1, one.columns * feature // one.feature)

    def side(size: int, to: int, kind: str) -> int:
        return size if kind == exact else padded(size, to)

    def product(contracted: tuple[int, str], left: tuple[int, str], right: tuple[int, str]) -> int:
        held, streamed = [side(s, TILE, k) for s, k in (left, right)], [side(s, rows, k) for s, k in (left, right)]
        return side(contracted[0], TILE, contracted[1]) * min(held[0] * streamed[1], streamed[0] * held[1])

    # To the matrix unit, a convolution's places are like examples.
    many, put = (one.places, "other") if one.is_alone else (batch * one.places, "batch")
    given, made = (one.contracted, "other"), (columns, "feature")
    forward = product(given, (many, put), made)
    weights = product((many, put), given, made)
    # Backward, the window goes over the output and produces the input's channels.
    inputs = product((columns * one.kernel, "feature"), (many, put), (max(1, one.contracted // one.kernel), "other"))
    times = one.repeats * (batch if one.is_alone else 1)
    return 2.0 * times * (forward + weights + inputs)


def _nearest(size: int, is_clean: Callable[[int], bool]) -> int:
    """Return the nearest size that wastes nothing, the larger one of two."""
    sizes = (size + sign * distance for distance in range(_FARTHEST) for sign in (1, -1))
    return next((one for one in sizes if one > 0 and is_clean(one)), padded(size, TILE))
