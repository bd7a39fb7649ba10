"""The preflight without the TPU compiler: builds the model and adds up the memory that it needs at least.

It is the exact size of what a step is given: weights, optimizer slots and the batch. What it computes is left out,
since the compiler decides how much of that is in memory at the same time. So are the gradients: the compiler can apply
each one as soon as it is computed. A text classifier needed less than weights, slots and all gradients together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..config.reading import parse_config
from ..data.examples import map_nested
from ..data.kinds.kind import UnknownShapesError
from ..preflight.cache import choices_of
from ..preflight.inputs import Batch, batch_of
from ..preflight.result import Outcome
from ..preflight.topologies import find_topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..config.run_config import RunConfig
    from ..messages import Reporter


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
    built: dict[str, tuple[Any, int, Batch]] = {}
    if batch is not None:
        for precision in precisions:
            reporter.progress("building the model", 0, None, "seconds")
            built[precision] = _built(settings.model_copy(update={"precision": precision}), batch)
    verdicts = []
    for choice in choices_of(settings, [find_topology(name) for name in on], batches, precisions):
        verdict = replace(choice.undecided(reason), versions={})
        if built:
            from ..preflight.build import least_memory

            of_choice = built[choice.config.precision]
            memory = least_memory(*of_choice, choice.config.batch_size, choice.topology.usable_hbm_bytes)
            verdict = replace(verdict, memory=memory)
            if memory.peak > memory.limit:
                text = "Its weights, optimizer slots and batch alone are larger than a device's memory."
                verdict = replace(verdict, outcome=Outcome.DOES_NOT_FIT, reason=text)
        verdicts.append(verdict.as_dict())
    return {"verdicts": verdicts, "versions": {}}


def _built(config: RunConfig, batch: Batch) -> tuple[Any, int, Batch]:
    """Return the model as the last phase of the run trains it, its optimizer's bytes, and the batch that it gets."""
    import keras

    from ..models.build import bytes_of, refuse_loose_weights
    from ..models.fine_tuning import training_phases, unfreeze
    from ..preflight.build import as_trained, built_from_shapes, only_shapes

    model = built_from_shapes(config, batch)
    batch = as_trained(model, config, batch)
    with only_shapes():
        inputs = map_nested(lambda part: keras.KerasTensor((None, *part.shape), part.dtype), batch.train[0])
        refuse_loose_weights(model, inputs)
    if training_phases(config)[-1].is_fine_tuning:
        unfreeze(model, config)
    return model, slots_per_weight(config) * bytes_of(model.trainable_variables), batch


def slots_per_weight(config: RunConfig) -> int:
    """Return how many numbers the optimizer keeps for each trained weight, from building it for a few."""
    import keras

    from ..models.build import bytes_of
    from ..models.compile import make_optimizer

    optimizer = make_optimizer(config, replicas=1, steps_per_epoch=1)
    weights = keras.Variable(keras.ops.zeros((64, 64)))
    optimizer.build([weights])
    return bytes_of(optimizer.variables) // bytes_of([weights])
