"""What Keras's classes say of the metrics of a model."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import keras

from ..compat.keras import compiled_metrics, direction_of
from ..runs.metrics import Metric, MetricKind, metric_called

_SHARES = (
    *(keras.metrics.Accuracy, keras.metrics.BinaryAccuracy, keras.metrics.CategoricalAccuracy),
    *(keras.metrics.SparseCategoricalAccuracy, keras.metrics.TopKCategoricalAccuracy),
    *(keras.metrics.SparseTopKCategoricalAccuracy, keras.metrics.Precision, keras.metrics.Recall, keras.metrics.AUC),
    *(keras.metrics.PrecisionAtRecall, keras.metrics.RecallAtPrecision, keras.metrics.SensitivityAtSpecificity),
    *(keras.metrics.SpecificityAtSensitivity, keras.metrics.FBetaScore, keras.metrics.IoU),
)
_MISTAKES = (keras.metrics.FalsePositives, keras.metrics.FalseNegatives)


def metrics_of(model: Any) -> tuple[Metric, ...]:
    """Return what is known of the metrics that a compiled model reports in its logs."""
    return tuple(_described(name, metric) for name, metric in compiled_metrics(model).items())


def _described(name: str, metric: Any) -> Metric:
    """Describe a metric by its class, or by its name where the class does not say enough."""
    known = metric_called(name)
    if inspect.isfunction(metric):
        return replace(known, is_mean=True)  # Keras takes the mean of what it returns
    if not isinstance(metric, keras.metrics.Metric):
        return known  # a name, for which Keras chooses the class, or a metric of tf_keras
    mean = keras.metrics.Mean
    direction = direction_of(metric)
    return Metric(
        name,
        lower_is_better=direction == "down" if direction else known.lower_is_better or isinstance(metric, _MISTAKES),
        kind=MetricKind.SHARE if isinstance(metric, _SHARES) else known.kind,
        is_mean=isinstance(metric, mean) and type(metric).result is mean.result,
    )
