"""The preflight without the TPU compiler: builds the model and adds up the memory that it needs at least.

It is the exact size of what a step is given: weights, optimizer slots and the batch. What it computes is left out,
since the compiler decides how much of that is in memory at the same time. So are the gradients: the compiler can apply
each one as soon as it is computed. A text classifier needed less than weights, slots and all gradients together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...config.pieces import parse_piece
from ...config.reading import parse_config
from ...data.examples import map_nested, named_parts
from ...data.kinds.kind import UnknownShapesError
from ...preflight.cache import choices_of
from ...preflight.inputs import batch_of
from ...preflight.result import Memory, Outcome
from ...preflight.topologies import find_topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...config.run_config import RunConfig
    from ...messages import Reporter
    from ...preflight.inputs import Batch


_SLOTS = {
    **dict.fromkeys(("adadelta", "adam", "adamax", "adamw", "ftrl", "lamb", "nadam"), 2),
    **dict.fromkeys(("adagrad", "lion", "rmsprop"), 1),
}
"""Numbers that an optimizer keeps per trainable weight; momentum adds one to `sgd` and `rmsprop`, and what is unknown,
such as those of custom optimizers, counts as none."""


def least_memory(model: Any, config: RunConfig, batch: Batch, limit_bytes: int) -> Memory:
    """Return the least memory of one device, for a model whose layers that will be trained are trainable."""
    from ...preflight.build import size_of

    options = config.optimizer
    name = parse_piece(options.name).name
    slots = _SLOTS.get(name, 0) + (name in {"sgd", "rmsprop"} and options.momentum > 0)
    parameters = sum(size_of(weight.shape, weight.dtype) for weight in model.weights)
    optimizer = slots * sum(size_of(weight.shape, weight.dtype) for weight in model.trainable_weights)
    example = sum(size_of(part.shape, part.dtype) for _, part in named_parts(batch.train, ""))
    given = config.batch_size * example
    return Memory(parameters, optimizer, given, 0, parameters + optimizer + given, limit_bytes, is_lower_bound=True)


def least_memory_of_choices(
    reporter: Reporter,
    config: Mapping[str, Any],
    on: Sequence[str],
    batches: Sequence[int],
    precisions: Sequence[str],
    reason: str,
) -> dict[str, Any]:
    """Add up the least memory of every choice, and give the reason why nothing can be compiled.

    Returns ``verdicts``, in the order of the job `preflight`, and ``versions``, which is empty.

    Raises:
        ConsoleError: The model cannot be built.
    """
    settings = parse_config(config)
    try:
        batch = None if settings.only_backend[0] else batch_of(settings)  # a SavedModel would have to be downloaded
    except UnknownShapesError:
        batch = None
    built = {}
    if batch is not None:
        for precision in precisions:
            reporter.progress("building the model", 0, None, "seconds")
            built[precision] = _built(settings.model_copy(update={"precision": precision}), batch)
    verdicts = []
    for choice in choices_of(settings, [find_topology(name) for name in on], batches, precisions):
        verdict = replace(choice.undecided(reason), versions={})
        if built:
            model, batch = built[choice.config.precision]
            memory = least_memory(model, choice.config, batch, choice.topology.usable_hbm_bytes)
            verdict = replace(verdict, memory=memory)
            if memory.peak > memory.limit:
                text = "Its weights, optimizer slots and batch alone are larger than a device's memory."
                verdict = replace(verdict, outcome=Outcome.DOES_NOT_FIT, reason=text)
        verdicts.append(verdict.as_dict())
    return {"verdicts": verdicts, "versions": {}}


def _built(config: RunConfig, batch: Batch) -> tuple[Any, Batch]:
    """Return the model as the last phase of the run trains it, with all its variables, and the batch that it gets."""
    import keras

    from ...models.fine_tuning import training_phases, unfreeze
    from ...models.loose_weights import refuse_loose_weights
    from ...preflight.build import as_trained, built_from_shapes, only_shapes

    model = built_from_shapes(config, batch)
    batch = as_trained(model, config, batch)
    with only_shapes():
        inputs = map_nested(lambda part: keras.KerasTensor((None, *part.shape), part.dtype), batch.train[0])
        refuse_loose_weights(model, inputs)
    if training_phases(config)[-1].is_fine_tuning:
        unfreeze(model, config)
    return model, batch
