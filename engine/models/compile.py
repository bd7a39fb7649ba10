"""Compiles a model: its optimizer, learning-rate schedule, loss and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from ..compat.keras import build_from_shapes, skip_build_in_fit
from ..config.learning_rate import scaled_learning_rate
from ..data.examples import Task
from ..data.vocabulary import PADDING
from .outputs import apply_activation

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..data.examples import Signature


def make_optimizer(config: RunConfig, replicas: int, steps_per_epoch: int) -> Any:
    """Return the optimizer with its learning-rate schedule."""
    options = config.optimizer
    classes = {
        "adam": keras.optimizers.Adam,
        "adamw": keras.optimizers.AdamW,
        "sgd": keras.optimizers.SGD,
        "rmsprop": keras.optimizers.RMSprop,
        "adagrad": keras.optimizers.Adagrad,
        "adamax": keras.optimizers.Adamax,
        "nadam": keras.optimizers.Nadam,
        "lion": keras.optimizers.Lion,
    }
    settings: dict[str, Any] = {"learning_rate": _learning_rate(config, replicas, steps_per_epoch)}
    if options.name in {"sgd", "rmsprop"}:
        settings["momentum"] = options.momentum
    if options.weight_decay:
        settings["weight_decay"] = options.weight_decay
    if options.clip_norm:
        settings["clipnorm"] = options.clip_norm
    return classes[options.name](**settings)


def _learning_rate(config: RunConfig, replicas: int, steps_per_epoch: int) -> Any:
    """Return a number or a Keras schedule, so that the saved model loads without this package."""
    options = config.optimizer
    peak = scaled_learning_rate(config, replicas)
    schedules = keras.optimizers.schedules
    warmup = round(options.warmup_epochs * steps_per_epoch)
    decay = max(1, config.epochs * steps_per_epoch - warmup)
    if options.schedule == "linear":
        return schedules.PolynomialDecay(peak, decay, end_learning_rate=peak * options.final_fraction)
    if options.schedule == "exponential":
        return schedules.ExponentialDecay(peak, decay, options.final_fraction)
    if options.schedule == "constant" and not warmup:
        return peak
    # A cosine that ends at its start value is a constant with a warm-up.
    alpha = options.final_fraction if options.schedule == "cosine" else 1.0
    if not warmup:
        return schedules.CosineDecay(peak, decay, alpha=alpha)
    return schedules.CosineDecay(0.0, decay, alpha=alpha, warmup_target=peak, warmup_steps=warmup)


def compile_model(
    model: Any,
    config: RunConfig,
    signature: Signature,
    replicas: int,
    steps_per_epoch: int,
    *,
    uses_strategy: bool = False,
    activation: str = "",
) -> None:
    """Compile a model for one step per execution; `engine.training.steps_per_execution` may increase that.

    `activation` makes probabilities of the model's outputs if they are logits, as `logits_activation` returns it.
    """
    is_translation = signature.task is Task.TRANSLATION
    model.compile(
        optimizer=make_optimizer(config, replicas, steps_per_epoch),
        # Padding counts for nothing: the loss is a mean over the words of a batch.
        loss=keras.losses.SparseCategoricalCrossentropy(ignore_class=PADDING)
        if is_translation
        else _loss(config, activation),
        # The sample weight is 1 for a word and 0 for padding.
        **{"weighted_metrics" if is_translation else "metrics": _metrics(config, activation)},
        # No XLA under a TensorFlow strategy: building the model on TPU and GPU fails with it (keras#19448).
        jit_compile=False if uses_strategy else "auto",
    )


def build_ahead(model: Any, element_spec: Any, batch_size: int) -> None:
    """Build metrics, loss and optimizer of a compiled model from the specification of a batch and the replica batch.

    Otherwise `fit` would take a batch for it on JAX and under a strategy, and a run on several replicas would not see
    the examples in the order in which a run on one sees them.
    """
    import tensorflow as tf

    of_batch = tf.nest.map_structure(
        lambda spec: tf.TensorSpec([batch_size, *spec.shape[1:]], spec.dtype), element_spec
    )
    build_from_shapes(model, of_batch)
    skip_build_in_fit(model)


def _loss(config: RunConfig, activation: str) -> Any:
    settings: dict[str, Any] = {"label_smoothing": config.label_smoothing} if config.label_smoothing else {}
    if activation:
        settings["from_logits"] = True
    if not settings:
        return config.effective_loss
    classes = {
        "binary_crossentropy": keras.losses.BinaryCrossentropy,
        "categorical_crossentropy": keras.losses.CategoricalCrossentropy,
        "sparse_categorical_crossentropy": keras.losses.SparseCategoricalCrossentropy,
    }
    return classes[config.effective_loss](**settings)


def _metrics(config: RunConfig, activation: str) -> list[Any]:
    if not activation:
        return list(config.metrics)
    # "accuracy" becomes the metric that fits the labels; only that for two classes needs probabilities.
    return [
        "accuracy" if name == "accuracy" and activation == "softmax" else _on_probabilities(name, activation)
        for name in config.metrics
    ]


def _on_probabilities(name: str, activation: str) -> Any:
    """Return a metric that gets probabilities instead of logits."""
    metric = keras.metrics.get("binary_accuracy" if name == "accuracy" else name)
    if not isinstance(metric, keras.metrics.Metric):
        metric = keras.metrics.MeanMetricWrapper(metric)
    metric.name, update = name, metric.update_state
    metric.update_state = lambda y_true, y_pred, sample_weight=None: update(
        y_true, apply_activation(activation, y_pred), sample_weight=sample_weight
    )
    return metric
