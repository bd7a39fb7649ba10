"""Gives every output of a custom model its loss and metrics by the output's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..config.pieces import of_output, split_output
from ..config.run_config import probabilities_by
from ..errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..config.run_config import RunConfig


def for_outputs(config: RunConfig, names: tuple[str, ...]) -> RunConfig:
    """Return a configuration whose losses and metrics name the outputs of a model, or none of them if there is one.

    A loss or metric without a name is that of every output; accuracy is only measured of outputs with a crossentropy.

    Raises:
        DataError: The configuration names an output that the model does not have.
    """
    given = [*config.losses, *(split_output(metric)[0] for metric in config.metrics), *config.loss_weights]
    several = names if len(names) > 1 else ()
    if unknown := next((name for name in given if name and name not in several), None):
        has = f"Its outputs are {', '.join(several)}." if several else "It has one output."
        raise DataError(f"The model {config.model} has no output '{unknown}'.", why=has)
    if not several:
        return config
    losses = {name: config.losses.get(name, config.losses.get("")) for name in several}
    metrics = [part for metric in config.metrics for part in _of_outputs(metric, losses)]
    loss = ", ".join(of_output(name, text) for name, text in losses.items() if text)
    weights = {name: config.loss_weights.get(name, 1.0) for name, text in losses.items() if text}
    changes = {"loss": loss, "metrics": tuple(metrics), "loss_weights": weights if config.loss_weights else {}}
    return config.model_copy(update=changes)


def _of_outputs(metric: str, losses: Mapping[str, str | None]) -> list[str]:
    output, text = split_output(metric)
    if output:
        return [metric]
    return [
        of_output(name, text) for name, loss in losses.items() if text != "accuracy" or probabilities_by(loss or "")
    ]
