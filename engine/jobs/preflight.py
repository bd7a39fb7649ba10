"""Reports what a run would do on TPUs that this machine lacks: from their compiler, or else from known sizes alone."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from ..config.reading import parse_config
from ..config.run_config import RunConfig
from ..data.examples import map_nested
from ..data.kinds.kind import UnknownShapesError
from ..data.kinds.table import load_examples
from ..data.places import reporting
from ..messages import Reporter
from ..preflight.choice import Batch, batch_of, cached_verdicts, choices_of, versions
from ..preflight.result import Outcome
from ..preflight.topologies import find_topology
from ..preflight.worker_pool import check_compiler, reach_verdicts


def preflight_choices(
    reporter: Reporter,
    config: Mapping[str, Any],
    on: Sequence[str],
    batches: Sequence[int] = (),
    precisions: Sequence[str] = (),
    *,
    search: bool = False,
    use_cache: bool = True,
    limit_s: float | None = None,
) -> dict[str, Any]:
    """Return the verdict on every choice of TPU, batch and precision; by default those of the configuration.

    Returns ``verdicts``, each from `Verdict.as_dict`: every precision and batch of the first TPU, then of the next; and
    the ``versions`` of the packages that a verdict depends on. After `limit_s` seconds the others are undecided. Raises
    `ConsoleError` if there is no such TPU, or no TPU compiler on this machine.
    """
    settings = parse_config(config)
    choices = choices_of(settings, [find_topology(name) for name in on], batches, precisions)
    verdicts = cached_verdicts(choices, search=search) if use_cache else None
    if verdicts is None:
        check_compiler()
        verdicts = reach_verdicts(
            choices,
            lambda what, seconds, expected_s: reporter.progress(what, seconds, expected_s, "seconds"),
            search=search,
            use_cache=use_cache,
            limit_s=limit_s,
        )
    return {"verdicts": [verdict.as_dict() for verdict in verdicts], "versions": versions()}


def least_memory_of_choices(
    reporter: Reporter,
    config: Mapping[str, Any],
    on: Sequence[str],
    batches: Sequence[int],
    precisions: Sequence[str],
    reason: str,
) -> dict[str, Any]:
    """Return what `preflight_choices` does, undecided for a reason, with the least memory of every choice.

    It is the exact size of what a step is given: weights, optimizer slots and the batch. What it computes is left out,
    since the compiler decides how much of that is in memory at the same time. So are the gradients: the compiler can
    apply each one as soon as it is computed. A text classifier needed less than weights, slots and all gradients.
    Raises `ConsoleError` if the model cannot be built.
    """
    settings = parse_config(config)
    built: dict[str, tuple[Any, int, Batch]] = {}
    with suppress(UnknownShapesError):
        if not settings.only_backend[0]:  # a SavedModel would have to be downloaded
            batch = batch_of(settings)
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

    from ..models.build import bytes_of, refuse_loose_weights, training_phases, unfreeze
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


def call_dataset(reporter: Reporter, config: Mapping[str, Any]) -> dict[str, Any]:
    """Call a configuration's dataset function to record what it returns; raise `ConsoleError` if it fails."""

    def report(what: str) -> None:
        reporter.progress(what, 0, None, "seconds")

    settings = parse_config(config)
    report(f"calling {settings.dataset}")
    load_examples(settings, reporting(reporter, report))
    return {}
