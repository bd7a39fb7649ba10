"""Estimates what a run would need on TPUs where there is no TPU compiler: the model is built, nothing is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...config.reading import parse_config
from ...preflight.inputs import UnknownShapesError, batch_of
from ...preflight.result import Outcome, Verdict
from ...preflight.topologies import find_topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...config.run_config import RunConfig
    from ...preflight.result import Memory
    from ...preflight.topologies import Topology
    from ..job import Reporter

_OLD_ON_CHIP = 16 * 2**20  # fast memory of a device of v2 and v3


def perform(
    reporter: Reporter,
    config: Mapping[str, Any],
    on: Sequence[str],
    batches: Sequence[int],
    precisions: Sequence[str],
    reason: str,
) -> dict[str, Any]:
    """Estimate a configuration's memory for every choice.

    Args:
        reporter: Told how far it is.
        config: The configuration as plain values.
        on: Names of TPUs.
        batches: Examples a device.
        precisions: Keras's dtype policies.
        reason: Why nothing can be compiled, which every verdict says.

    Returns:
        ``verdicts``, all of which could not tell, in the order of the job `preflight`; and ``versions``, none.

    Raises:
        ConsoleError: The model cannot be built.
    """
    settings = parse_config(config)
    topologies = [find_topology(name) for name in on]
    memories: dict[tuple[str, str, int], Memory] = {}
    for precision in precisions:
        reporter.progress("building the model", 0, None, "seconds")
        memories |= _memories(settings.model_copy(update={"precision": precision}), topologies, batches)
    verdicts = [
        Verdict(
            tpu=topology.name,
            devices=topology.devices,
            hosts=topology.hosts,
            replica_batch=batch,
            precision=precision,
            outcome=Outcome.UNKNOWN,
            reason=reason,
            memory=memories.get((topology.name, precision, batch)),
        )
        for topology in topologies
        for precision in precisions
        for batch in batches
    ]
    return {"verdicts": [verdict.as_dict() for verdict in verdicts], "versions": {}}


def _memories(
    config: RunConfig, topologies: Sequence[Topology], batches: Sequence[int]
) -> dict[tuple[str, str, int], Memory]:
    """Return the estimates by TPU, precision and batch; none for a model that only its files describe."""
    if config.needs_tensorflow:
        return {}  # building it would fetch a SavedModel
    try:
        signature = batch_of(config).signature
    except UnknownShapesError:
        return {}
    import keras

    from ...models.build import build_model
    from ...preflight.estimate import ON_CHIP, estimate_memory

    keras.config.set_dtype_policy(config.precision)
    if config.model == "application":  # what its weights are does not matter here
        config = config.model_copy(update={"model_options": config.model_options | {"weights": "none"}})
    model = build_model(config, signature)
    return {
        (topology.name, config.precision, batch): estimate_memory(
            model,
            config,
            batch,
            topology.usable_hbm_bytes,
            _OLD_ON_CHIP if topology.generation.name in {"v2", "v3"} else ON_CHIP,
        )
        for topology in topologies
        for batch in batches
    }
