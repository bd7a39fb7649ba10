"""Checks before training that a custom model, its labels and the loss fit, and finds what its outputs mean."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..config.catalog import is_user_reference
from ..errors import DataError
from ..models.compile import is_compiled
from ..models.label_checks import check_labels, for_outputs
from ..models.loose_weights import refuse_loose_weights
from ..models.outputs import are_unknown, class_outputs, logits_activation, outputs_by_name
from ..models.pieces import own_losses
from ..storage.files import write_soon

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..input.pipeline import Pipeline
    from ..models.outputs import Activation, ClassOutput
    from ..runs.recorder import Recorder


def check_model(
    recorder: Recorder, config: RunConfig, data: Pipeline, model: Any
) -> tuple[RunConfig, Activation, tuple[ClassOutput, ...] | None]:
    """Check that a custom model, its labels and the loss fit.

    Returns the configuration for the model's outputs, what turns its logits into probabilities, and the outputs that
    are classes, or None if the dataset says which.
    """
    if not (is_user_reference(config.model) or is_user_reference(config.dataset)):
        return config, logits_activation(model, config, {}), None
    spec = data.train.element_spec
    refuse_loose_weights(model, spec[0] if isinstance(spec, tuple) else spec)
    inputs, labels = _first_batch(data, is_real=recorder.team is None)
    if is_compiled(model):
        recorder.notice(
            f"{config.model} compiled its model: its own optimizer, loss and metrics are used, not the configuration's."
        )
        outputs = {}
        with suppress(DataError):
            outputs = outputs_by_name(model, inputs)
    else:
        outputs = outputs_by_name(model, inputs)
        config = for_outputs(config, tuple(outputs))
        check_labels(config, model, outputs, labels if recorder.team is None else None)
        if recorder.team is not None and are_unknown(config, outputs):
            recorder.notice(
                "Whether the model gives logits cannot be checked with several hosts; it is taken to give "
                "probabilities. If it gives logits, set outputs=logits."
            )
    activation = logits_activation(model, config, outputs, own_losses(config))
    by_output = activation if isinstance(activation, dict) else {"": activation}
    if logits := {name: function for name, function in by_output.items() if function}:
        recorder.notice(_logits_notice(config, logits, is_compiled=is_compiled(model)))
    classes = class_outputs(model, config, outputs, activation, labels)
    record = {
        "activation": activation,
        "class_outputs": [output.name for output in classes],
        "class_count": data.examples.signature.classes,
    }
    write_soon(recorder.run.inputs, json.dumps({**data.examples.record, **record}))
    return config, activation, classes


def _first_batch(data: Pipeline, *, is_real: bool) -> tuple[Any, Any]:
    """Return the inputs and the labels of a batch, None if there are none; without `is_real`, only labels of 0.

    One host alone cannot run a model that is spread over all hosts, so it needs no inputs.
    """
    if is_real:
        batch = next(iter(data.calibration()))
        return batch[:2] if isinstance(batch, tuple) and len(batch) > 1 else (batch, None)
    spec = data.train.element_spec
    if not (isinstance(spec, tuple) and len(spec) > 1):
        return None, None
    return None, tf.nest.map_structure(lambda one: np.zeros([8, *one.shape[1:]], one.dtype.as_numpy_dtype), spec[1])


def _logits_notice(config: RunConfig, logits: dict[str, str], *, is_compiled: bool) -> str:
    names = f" for {', '.join(logits)}" if "" not in logits else ""
    functions = " and the ".join(sorted({*logits.values()}))
    applied = f"the class report and `predict` apply the {functions}."
    if is_compiled:
        return f"The model gives logits{names}, by its loss: {applied}"
    computed = "the loss is computed with from_logits=True, and " if config.takes_probabilities else ""
    change = "To change that, set outputs=probabilities."
    return f"The model gives logits{names}, not probabilities: {computed}{applied} {change}"
