"""The least memory that a training step needs on a device, for machines without the TPU compiler.

It is the exact size of what a step is given: weights, optimizer slots and the batch. What it computes is left out,
since the compiler decides how much of that is in memory at the same time. So are the gradients: the compiler can apply
each one as soon as it is computed. A text classifier needed less than weights, slots and all gradients together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ..config.pieces import parse_piece
from ..data.examples import named_parts
from .result import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..config.run_config import RunConfig
    from .inputs import Batch

_SLOTS = {
    **dict.fromkeys(("adadelta", "adam", "adamax", "adamw", "ftrl", "lamb", "nadam"), 2),
    **dict.fromkeys(("adagrad", "lion", "rmsprop"), 1),
}
"""Numbers that an optimizer keeps per trainable weight; momentum adds one to `sgd` and `rmsprop`, and what is unknown,
such as those of custom optimizers, counts as none."""

_ITEM_BYTES = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "bool": 1}


def least_memory(model: Any, config: RunConfig, batch: Batch, limit_bytes: int) -> Memory:
    """Return the least memory of one device, for a model whose layers that will be trained are trainable."""
    options = config.optimizer
    name = parse_piece(options.name).name
    slots = _SLOTS.get(name, 0) + (name in {"sgd", "rmsprop"} and options.momentum > 0)
    parameters = sum(_bytes(weight.shape, weight.dtype) for weight in model.weights)
    optimizer = slots * sum(_bytes(weight.shape, weight.dtype) for weight in model.trainable_weights)
    example = sum(_bytes(part.shape, part.dtype) for _, part in named_parts(batch.train, ""))
    given = config.batch_size * example
    return Memory(parameters, optimizer, given, 0, parameters + optimizer + given, limit_bytes, is_lower_bound=True)


def _bytes(shape: Sequence[int | None], dtype: Any) -> int:
    return math.prod(size or 1 for size in shape) * _ITEM_BYTES.get(str(dtype), 4)
