"""How much memory a train step needs on a device, worked out from the model where no TPU compiler can be asked.

A step needs the most at the end of its forward pass, when every value that the backward pass reads again is kept. What
that is for each layer was fitted to what libtpu 0.0.51 told of ten models for v5e-8; docs/preflight.md has the errors.
Fusions and layouts are the compiler's own choice and cannot be foreseen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .layers import all_layers, first_call, products
from .result import Memory

if TYPE_CHECKING:
    from ..config.run_config import RunConfig

_SLOTS = {"adam": 2, "adamw": 2, "sgd": 0, "rmsprop": 1, "adagrad": 1, "adamax": 2, "nadam": 2, "lion": 1}
"""Numbers that an optimizer keeps for each weight; momentum adds one to `sgd` and `rmsprop`."""

_PROGRAM, _WINDOW_PROGRAM = 0.6e6, 1.5e6
"""Bytes of the program for each dense layer, and for each convolution: 0.2 to 0.6 and 0.3 to 2.2 MB were seen."""

ON_CHIP = 128 * 2**20
"""Fast memory of a chip from v4 on, beside its HBM ("How to scale your model", Austin et al. 2025); v2 and v3 have
16 MiB a device."""

_SHARE_ON_CHIP = 0.6
"""Up to this share of it the compiler keeps all of a step's values there, and HBM holds next to none."""

_LEAST = 1.5e6
"""Bytes of HBM that even the smallest step needs for itself."""

_ITEM = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1}
_NORMALISATIONS = ("BatchNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization")


@dataclass(frozen=True, slots=True)
class Activations:
    """Values that a step computes, in bytes.

    Args:
        kept: What the backward pass reads again.
        passing: The largest array that no gradient needs; it is there twice when a layer turns it into another.
    """

    kept: int
    passing: int


def estimate_memory(
    model: Any, config: RunConfig, replica_batch: int, limit_bytes: int, on_chip_bytes: int = ON_CHIP
) -> Memory:
    """Work out the memory of one device from a built model, on whatever backend; nothing is computed.

    Args:
        model: The built model, with the precision's policy.
        config: The configuration, for the optimizer and the labels.
        replica_batch: Examples a step and device.
        limit_bytes: What the device has for a program.
        on_chip_bytes: Fast memory of the chip that a device has for itself.
    """
    parameters = sum(_bytes(weight.shape, str(weight.dtype)) for weight in model.weights)
    trainable = sum(_bytes(weight.shape, str(weight.dtype)) for weight in model.trainable_weights)
    optimizer = trainable * _slots(config)
    batch = _batch_bytes(model, config, replica_batch)
    found = activations(model, replica_batch)
    values = max(found.kept, 2 * found.passing, trainable)
    in_hbm = values if values > _SHARE_ON_CHIP * on_chip_bytes else _LEAST
    temporaries = int(in_hbm + _program(model))
    peak = parameters + optimizer + batch + temporaries
    return Memory(parameters, optimizer, batch, temporaries, peak, limit_bytes, is_estimate=True)


def activations(model: Any, replica_batch: int) -> Activations:
    """Work out what a forward pass leaves for the backward pass.

    Args:
        model: The built model.
        replica_batch: Examples a step and device.
    """
    kept: dict[int, int] = {}
    passing, is_reached = 0, False
    for layer in all_layers(model):
        inputs, outputs = first_call(layer)
        # Gradients go back to the first layer that learns, and need nothing of what comes before it.
        is_reached = is_reached or bool(layer.trainable_weights)
        if not is_reached:
            passing = max([passing, *(_tensor_bytes(tensor, replica_batch) for tensor in outputs)])
            continue
        for tensor in _kept_by(layer, inputs, outputs):
            kept[id(tensor)] = _tensor_bytes(tensor, replica_batch)
        if (inside := _inside(layer)) > 0:
            kept[id(layer)] = inside * replica_batch * _ITEM.get(str(layer.compute_dtype), 4)
    return Activations(sum(kept.values()), passing)


def _kept_by(layer: Any, inputs: list[Any], outputs: list[Any]) -> list[Any]:
    """Return what a layer's gradient is computed from.

    What an element-wise layer reads is computed anew inside the next fusion, and so is the input of a depthwise
    convolution, which no matrix unit does.
    """
    kind = type(layer).__name__
    if products(layer):
        named = getattr(getattr(layer, "activation", None), "__name__", "linear")
        return inputs if named == "linear" else [*inputs, *outputs]
    if kind.startswith(_NORMALISATIONS) or "MaxPooling" in kind or kind == "Dot":
        return inputs
    return []


def _inside(layer: Any) -> int:
    """Return the numbers an example that attention keeps inside: projections, chances before and after dropping."""
    made = products(layer)
    if not any(one.is_alone for one in made):
        return 0
    projected = sum(one.places * one.columns for one in made if not one.is_alone)
    first = next(one for one in made if one.is_alone)
    return projected + 2 * first.repeats * first.places * first.contracted


def _program(model: Any) -> float:
    """Return the bytes of the compiled program, which lies in the same memory."""
    total = 0.0
    for layer in all_layers(model):
        if "Conv" in type(layer).__name__:
            total += _WINDOW_PROGRAM
        elif products(layer):
            total += _PROGRAM
    return total


def _slots(config: RunConfig) -> int:
    options = config.optimizer
    return _SLOTS[options.name] + (options.name in {"sgd", "rmsprop"} and options.momentum > 0)


def _batch_bytes(model: Any, config: RunConfig, replica_batch: int) -> int:
    """Return the bytes of a device's inputs and labels, which are 4 bytes a number whatever the policy."""
    numbers = sum(_numbers(tensor.shape[1:]) for tensor in model.inputs)
    is_sparse = config.effective_loss.startswith("sparse_")
    numbers += sum(_numbers(tensor.shape[1:-1] if is_sparse else tensor.shape[1:]) for tensor in model.outputs)
    return 4 * numbers * replica_batch


def _tensor_bytes(tensor: Any, replica_batch: int) -> int:
    return replica_batch * _bytes(tensor.shape[1:], str(tensor.dtype))


def _bytes(shape: tuple[int | None, ...], dtype: str) -> int:
    return _numbers(shape) * _ITEM.get(dtype, 4)


def _numbers(shape: tuple[int | None, ...]) -> int:
    return math.prod(size or 1 for size in shape)
