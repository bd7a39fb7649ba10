"""The layers of a built Keras model, and the matrix products that they compute."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..compat.keras import attention_projection

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Product:
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
        inner = inner_layers(layer)
        if inner:
            waiting += reversed(inner)
        if not getattr(layer, "layers", None):
            yield layer


def model_names(model: Any) -> tuple[str, ...]:
    """Return the names of a model and of the models in it, such as ``resnet50``."""
    inner = [model_names(layer) for layer in model.layers if getattr(layer, "layers", None)]
    return (str(model.name), *(name for names in inner for name in names))


def inner_layers(layer: Any) -> list[Any]:
    """Return the layers inside an inner model or a wrapper such as `TimeDistributed` or `Bidirectional`."""
    inner = list(getattr(layer, "layers", None) or [])
    for name in ("layer", "forward_layer", "backward_layer"):
        # Keras's wrappers use these names; anything else with such a name is ignored.
        found = getattr(layer, name, None)
        if found is not None and hasattr(found, "weights"):
            inner.append(found)
    return inner


def first_call(layer: Any) -> tuple[list[Any], list[Any]]:
    """Return the inputs and outputs of a layer's first call; empty lists if it was never called."""
    ends = (getattr(layer, name, None) for name in ("input", "output"))  # Keras raises AttributeError before a call
    inputs, outputs = ([] if end is None else list(end) if isinstance(end, list | tuple) else [end] for end in ends)
    return inputs, outputs


def shapes_of(layer: Any, side: str) -> list[tuple[int | None, ...]]:
    """Return the shapes of a layer's ``input`` or ``output``, batch included; empty if the layer was never called."""
    inputs, outputs = first_call(layer)
    return [tuple(tensor.shape) for tensor in (inputs if side == "input" else outputs)]


def subject(layer: Any) -> str:
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
        return _recurrent(layer, cell)
    if kernel is None or "Depthwise" in kind or "Separable" in kind:
        return []
    shape = tuple(kernel.shape)
    outputs = shapes_of(layer, "output")
    if kind == "EinsumDense":
        columns = math.prod(size or 1 for size in layer.full_output_shape[1:] if size in shape) or shape[-1]
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
    found = []
    inputs = shapes_of(layer, "input")
    length = (inputs[0][1] or 1) if inputs and len(inputs[0]) > 1 else 1
    other = (inputs[1][1] or 1) if len(inputs) > 1 and len(inputs[1]) > 1 else length
    for name, steps in (
        ("query", length),
        ("key", other),
        ("value", other),
        ("output", length),
    ):
        dense = attention_projection(layer, name)
        if dense is None or getattr(dense, "kernel", None) is None:
            continue
        shape = tuple(dense.kernel.shape)
        contracted, columns = (shape[0], shape[1:]) if name != "output" else (math.prod(shape[:-1]), shape[-1:])
        found.append(Product(steps, contracted, math.prod(columns), math.prod(columns)))
    if found:
        # Places by places, and the sums over them, for each head.
        heads = int(getattr(layer, "num_heads", None) or layer.num_query_heads)
        for name in ("key_dim", "value_dim"):
            size = int(getattr(layer, name, None) or getattr(layer, "head_dim", 0) or found[0].columns // heads)
            found.append(Product(length, other, size, size, repeats=heads, is_alone=True))
    return found


def _recurrent(layer: Any, cell: Any) -> list[Product]:
    """A recurrent layer multiplies its input and its state at every step."""
    inputs = shapes_of(layer, "input")
    steps = (inputs[0][1] or 1) if inputs and len(inputs[0]) > 1 else 1
    kernels = [getattr(cell, name, None) for name in ("kernel", "recurrent_kernel")]
    shapes = [tuple(kernel.shape) for kernel in kernels if kernel is not None and len(kernel.shape) == 2]
    return [Product(steps, shape[0], shape[1], int(getattr(layer, "units", shape[1]))) for shape in shapes]
