"""What a custom model outputs: probabilities, logits or numbers, and whether labels and losses fit them."""

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from typing import Any

import keras
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ..compat.keras import producer_of
from ..config.catalog import is_user_reference
from ..config.run_config import RunConfig, probabilities_by
from ..config.values import of_output, parse_piece, split_output
from ..data.cached_facts import note_outputs
from ..errors import DataError

# What turns logits into probabilities: ``softmax``, ``sigmoid`` or nothing; by output if there are several.
Activation = str | dict[str, str]
_PROBED = 32  # examples of a batch that a model is tried on
_NOT_EXACT = 0.01  # by how much the probabilities of an example may miss 1 in 16 bits
_OWN_WAYS = ("train_step", "compute_loss")
_NUMBERS = ("mean_squared_error", "mean_absolute_error", "huber")


def outputs_by_name(model: Any, inputs: Any = None) -> dict[str, Any]:
    """Return a model's outputs by name: symbolic tensors, or arrays for a batch; empty if there are none.

    The name of a single output is empty. A batch of inputs is tried if the last layers do not say what they give.
    Raises `DataError` for several outputs without names.
    """
    try:
        outputs = model.outputs if isinstance(model, keras.Sequential) else model.output
    except (AttributeError, ValueError):
        outputs = None
    flat = keras.tree.flatten(outputs)
    if inputs is not None and (outputs is None or not all(map(_last_activation, flat))):
        few = keras.tree.map_structure(lambda part: part[:_PROBED], inputs)
        # Recurrent layers draw random numbers in any call, and those of training must be the same without this one.
        unchanged = keras.StatelessScope() if model.built else nullcontext()
        with suppress(Exception), unchanged:  # a model that only trains, such as a GAN, has no outputs
            given = model(prepared(model, few), training=False)
            outputs = keras.tree.map_structure(keras.ops.convert_to_numpy, given)
            flat = keras.tree.flatten(outputs)
    if outputs is None or len(flat) < 2:
        return {} if outputs is None else {"": flat[0]}
    names = list(outputs) if isinstance(outputs, dict) else getattr(model, "output_names", None) or ()
    if len(names) != len(flat):
        what = f"The model gives {len(flat)} outputs without names."
        raise DataError(what, remedy='Return a dictionary from call(), as in {"price": …, "kind": …}.')
    return dict(zip(names, outputs.values() if isinstance(outputs, dict) else flat, strict=True))


def logits_activation(
    model: Any, config: RunConfig, outputs: Mapping[str, Any], own: Mapping[str, Any] | None = None
) -> Activation:
    """Return the activation that turns a model's logits into probabilities, for each output of `outputs_by_name`.

    The user's `own` losses take probabilities, unless ``outputs`` or their attribute ``from_logits`` says otherwise.
    """
    if _computes_its_loss(model) and config.outputs == "auto":
        return ""
    found = {}
    if getattr(model, "compiled", False):  # by the user's function, with losses that say it
        for name, loss in _compiled_losses(model).items():
            settings = loss.get_config() if isinstance(loss, keras.losses.Loss) else {}
            takes = "sigmoid" if type(loss).__name__.startswith("Binary") else "softmax"
            found[name] = takes if settings.get("from_logits") else _of_own(config, loss, outputs.get(name))
    else:
        own = own or {}
        for name in [*outputs] or [""]:
            text, output = config.losses.get(name, config.losses.get("", "")), outputs.get(name)
            piece, kind = parse_piece(text), probabilities_by(text)
            if piece.is_own:
                found[name] = _of_own(config, own.get(name, own.get("")), output)
                continue
            given = piece.options.get("from_logits")
            is_logits = config.outputs == "logits" or given
            if kind and config.outputs == "auto" and given is None and is_user_reference(config.model):
                is_tried = isinstance(output, np.ndarray)
                is_logits = not _are_probabilities(output, kind) if is_tried else _last_activation(output) == "linear"
            found[name] = kind if is_logits and config.outputs != "probabilities" and given is not False else ""
        if is_user_reference(config.model) and config.takes_probabilities:
            logits = [name for name, activation in found.items() if activation]
            note_outputs(config, f"logits {', '.join(logits)}".strip() if logits else "probabilities")
    return found if max(len(found), len(outputs)) > 1 else next(iter(found.values()))


class ClassOutput(Struct, frozen=True):
    """An output that says which class an example is of."""

    name: str = ""  # empty if it is the only output
    place: int = 0  # among the outputs
    values: int = 0  # per example; 0 if unknown
    activation: str = ""  # what turns it into probabilities

    def label_of(self, labels: Any) -> Any:
        """Return its part of the labels, or of their specification; None if it has none."""
        if isinstance(labels, dict):
            return labels.get(self.name, next(iter(labels.values())) if len(labels) == 1 else None)
        if isinstance(labels, tuple | list):
            return labels[self.place] if self.place < len(labels) else None
        return labels


def class_outputs(
    model: Any, config: RunConfig, outputs: Mapping[str, Any], activation: Activation, labels: Any
) -> tuple[ClassOutput, ...]:
    """Return the outputs of a custom model that say which class an example is of, by their losses and some labels.

    Several labels of an example at a time, numbers and classes of pixels are none.
    """
    if _computes_its_loss(model) and config.outputs == "auto":
        return ()
    is_compiled = getattr(model, "compiled", False)
    losses = _compiled_losses(model) if is_compiled else config.losses
    found = []
    for place, name in enumerate([*outputs] or [""]):
        loss, output = losses.get(name, losses.get("")), outputs.get(name)
        values = int(output.shape[-1] or 0) if output is not None and len(output.shape) else 0
        one = ClassOutput(name, place, values, activation_of(activation, name))
        if loss is not None and _is_class(_kind_of(loss), output, one.activation, one.label_of(labels)):
            found.append(one)
    return tuple(found)


def are_unknown(config: RunConfig, outputs: Mapping[str, Any]) -> bool:
    """Return whether it is unknown if a model gives logits: its last layer does not say it, and it was not tried."""
    losses = [parse_piece(loss).name for loss in config.losses.values()]
    takes = config.takes_probabilities or any(map(is_user_reference, losses))
    if config.outputs != "auto" or not takes or not is_user_reference(config.model):
        return False
    return not outputs or not all(isinstance(one, np.ndarray) or _last_activation(one) for one in outputs.values())


def prepared(model: Any, inputs: Any) -> Any:
    """Return inputs as a model's call takes them: a task of KerasHub preprocesses them in `fit` and not in a call."""
    return model.preprocess_samples(inputs) if hasattr(model, "preprocess_samples") else inputs


def activation_of(activation: Activation, output: str) -> str:
    """Return the activation of an output."""
    return activation.get(output, "") if isinstance(activation, dict) else activation


def apply_activation(activation: str, outputs: Any) -> Any:
    """Return probabilities, in float32; an empty activation returns the outputs unchanged."""
    return getattr(keras.ops, activation)(keras.ops.cast(outputs, "float32")) if activation else outputs


def _computes_its_loss(model: Any) -> bool:
    """Return whether the training step of a custom model uses no loss that the model is compiled with."""
    step = type(model).train_step
    names = {*getattr(getattr(step, "__code__", None), "co_names", ("loss",))}
    used = {"compute_loss", "compiled_loss", "_compute_loss", "loss", "train_step"}
    return step is not keras.Model.train_step and not names & used


def _kind_of(loss: Any) -> str:
    """Return what a loss compares outputs by: ``softmax``, ``sigmoid``, ``own`` for the user's loss, or nothing."""
    if isinstance(loss, str):
        name = parse_piece(loss).name
        if is_user_reference(name):
            return "own"
        if known := probabilities_by(loss):
            return known
        try:
            loss = keras.losses.get(name)  # such as "bce" in a model that the user compiled
        except ValueError:
            return ""
    function = getattr(loss, "fn", loss)
    if not getattr(function, "__module__", type(function).__module__).startswith("keras."):
        return "own"
    return probabilities_by(getattr(function, "__name__", ""))


def _is_class(kind: str, output: Any, activation: str, labels: Any) -> bool:
    """Return whether an output says which class an example is of, by its loss and a batch of labels."""
    if not kind or labels is None or not hasattr(labels, "shape"):
        return False
    values, units = np.asarray(labels), 0 if output is None else int(output.shape[-1] or 0)
    if values.dtype.kind not in "biuf" or values.ndim not in {1, 2} or (output is not None and len(output.shape) != 2):
        return False
    is_row = values.ndim == 2 and values.shape[1] > 1
    is_whole = bool((values == np.round(values)).all())
    if kind == "own" and not activation:
        activation = _last_activation(output) if not isinstance(output, np.ndarray) else ""
        is_share = isinstance(output, np.ndarray) and units > 1 and _are_probabilities(output, "softmax")
        if activation not in {"softmax", "sigmoid"} and not is_share:
            return False
    if is_row:
        return "sigmoid" not in {kind, activation} and values.shape[1] == (units or values.shape[1])
    is_single = units == 1 or "sigmoid" in {kind, activation}
    return is_whole and units < 2 and values.max() < 2 if is_single else is_whole and values.max() < (units or np.inf)


def _compiled_losses(model: Any) -> dict[str, Any]:
    losses = getattr(model, "loss", None)
    if isinstance(losses, list | tuple):
        return dict(zip(getattr(model, "output_names", range(len(losses))), losses, strict=False))
    return losses if isinstance(losses, dict) and losses else {"": losses}


def _of_own(config: RunConfig, loss: Any, output: Any) -> str:
    """Return the activation that turns an output into probabilities if the user's own loss is said to take logits."""
    if output is None or config.outputs == "probabilities" or not callable(loss) or _kind_of(loss) != "own":
        return ""
    if config.outputs == "logits" or getattr(loss, "from_logits", False) is True:
        return "sigmoid" if output.shape[-1] == 1 else "softmax"
    return ""


def _last_activation(output: Any) -> str:
    """Return ``softmax``, ``sigmoid`` or ``linear`` by an output's last layer; empty if that does not say it."""
    layer = producer_of(output)
    while isinstance(layer, keras.Model):
        if isinstance(layer, keras.Sequential) and layer.layers:
            layer = layer.layers[-1]
        elif isinstance(getattr(layer, "output", None), keras.KerasTensor):
            layer = producer_of(layer.output)
        else:
            return ""
    name = getattr(getattr(layer, "activation", None), "__name__", type(layer).__name__.lower())
    return name if name in {"softmax", "sigmoid", "linear"} else ""


def _are_probabilities(outputs: Any, activation: str) -> bool:
    if not np.isfinite(outputs).all():
        return True  # what Keras assumes
    values = outputs.astype(np.float64)
    is_share = bool((values >= 0).all() and (values <= 1).all())
    return is_share and (activation == "sigmoid" or np.allclose(values.sum(axis=-1), 1, atol=_NOT_EXACT))


def check_labels(config: RunConfig, model: Any, outputs: Mapping[str, Any], labels: Any) -> None:
    """Raise `DataError` if labels do not fit losses and outputs of a model that does not compute its loss itself."""
    has_own_way = any(getattr(type(model), name) is not getattr(keras.Model, name) for name in _OWN_WAYS)
    if has_own_way or not outputs or labels is None:
        return
    refuse_texts(labels)
    losses = {name: config.losses.get(name, config.losses.get("")) for name in outputs}
    trained = {name: loss for name, loss in losses.items() if loss}
    given = _by_name(labels, [*outputs], {*trained})
    for name, loss in trained.items():
        values = np.asarray(given[name]) if hasattr(given[name], "shape") else None
        shape = tuple(outputs[name].shape)
        if values is None or values.dtype.kind not in "biuf" or not shape or shape[-1] is None:
            continue
        width = values.shape[-1] if values.ndim == len(shape) else 1
        _check_output(config.effective_loss or parse_piece(loss).name, values, width, int(shape[-1]), name)


def _check_output(loss: str, labels: NDArray[Any], width: int, units: int, output: str) -> None:
    low, high, is_whole = labels.min(), labels.max(), bool((labels == np.round(labels)).all())
    is_share = low >= 0 and high <= 1
    fitting = {
        "sparse_categorical_crossentropy": is_whole and low >= 0 and high < units > 1 == width,
        "categorical_crossentropy": width == units > 1,
        "binary_crossentropy": is_share and width == units,
    }
    if fitting.get(loss, width == units or loss not in _NUMBERS):
        return
    kind = f"{'a' if width == 1 else f'{width:,}'} {'whole' if is_whole else 'decimal'} number"
    key = f"loss={output}=" if output else "loss="
    better = f"For numbers, give the model {width:,} linear output{'s' * (width > 1)} and set {key}mean_squared_error."
    found = next((name for name, fits in fitting.items() if fits), "")
    if found and is_share and (is_whole or width > 1):
        better = f"Set {key}{found}."
    elif is_whole:
        better = f"Number classes from 0, with an output per class and {key}sparse_categorical_crossentropy. {better}"
    where = f"Output {output}: " if output else ""
    raise DataError(
        f"{where}{loss} does not fit: a label is {kind}{'s' * (width > 1)} from {low:.4g} to {high:.4g}, and the model "
        f"gives {units:,} value{'s' * (units > 1)}.",
        remedy=better,
    )


def refuse_texts(labels: Any) -> None:
    """Raise `DataError` if labels, or their specification, are texts."""
    if getattr(getattr(labels, "dtype", None), "name", "") == "string":
        what = "Labels are texts, which no loss takes."
        remedy = "Number them in the dataset function: numpy.unique(labels, return_inverse=True)[1]."
        raise DataError(what, remedy=remedy)


def _by_name(labels: Any, outputs: list[str], trained: set[str]) -> Mapping[str, Any]:
    parts = list(labels.values()) if isinstance(labels, dict) else labels
    if not isinstance(parts, tuple | list):
        parts = [parts]
    elif isinstance(labels, dict) and labels.keys() >= trained:
        return labels
    if len(parts) == len(outputs) and not (isinstance(labels, dict) and len(outputs) > 1):
        return dict(zip(outputs, parts, strict=True))
    names = f" ({', '.join(map(str, labels))})" if isinstance(labels, dict) else ""
    gives = f"{len(outputs)} outputs ({', '.join(outputs)})" if len(outputs) > 1 else "one output"
    what = f"An example has {len(parts)} label{'s' if len(parts) > 1 else ''}{names}, but the model gives {gives}."
    remedy = "Return a label for each output from the dataset function, as a dictionary of the outputs' names."
    raise DataError(what, remedy=remedy)


def for_outputs(config: RunConfig, names: tuple[str, ...]) -> RunConfig:
    """Return a configuration whose losses and metrics name the outputs of a model, or none of them if there is one.

    A loss or metric without a name is that of every output; accuracy is only measured of outputs with a crossentropy.
    Raises `DataError` if the configuration names an output that the model does not have.
    """
    given = [*config.losses, *(split_output(metric)[0] for metric in config.metrics), *config.loss_weights]
    several = names if len(names) > 1 else ()
    if unknown := next((name for name in given if name and name not in several), None):
        has = f"Its outputs are {', '.join(several)}." if several else "It has one output."
        raise DataError(f"The model {config.model} has no output '{unknown}'.", why=has)
    if not several:
        return config
    losses = {name: config.losses.get(name, config.losses.get("")) for name in several}
    metrics = []
    for metric in config.metrics:
        output, text = split_output(metric)
        fitting = [name for name, loss in losses.items() if text != "accuracy" or probabilities_by(loss or "")]
        metrics += [metric] if output else [of_output(name, text) for name in fitting]
    loss = ", ".join(of_output(name, text) for name, text in losses.items() if text)
    weights = {name: config.loss_weights.get(name, 1.0) for name, text in losses.items() if text}
    changes = {"loss": loss, "metrics": tuple(metrics), "loss_weights": weights if config.loss_weights else {}}
    return config.model_copy(update=changes)
