"""Private names of Keras: they exist, do what is expected, and are still needed."""

import re
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tpu_console.engine.compat.keras import (
    attention_projection,
    automatic_name,
    build_from_shapes,
    rename_weight,
    skip_build_in_fit,
    without_downloads,
)

BATCH = (tf.TensorSpec([4, 3], "float32"), tf.TensorSpec([4], "int32"))


def compiled() -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def test_metrics_and_optimizer_are_built_from_shapes() -> None:
    model = compiled()
    assert not model.optimizer.built
    build_from_shapes(model, BATCH)
    assert model.optimizer.built
    assert "accuracy" in {metric.name for metric in model.metrics[1].metrics}
    assert not hasattr(model, "symbolic_build"), "there may be a public call now"


@pytest.mark.parametrize(
    ("prepare", "starts"), [((), 2), ((build_from_shapes,), 2), ((build_from_shapes, skip_build_in_fit), 1)]
)
def test_fit_under_a_strategy_starts_the_dataset_twice_unless_both_are_called(
    prepare: tuple[Any, ...], starts: int
) -> None:
    started = []

    def examples() -> Iterator[tuple[Any, Any]]:
        started.append(1)
        for _ in range(8):
            yield np.zeros(3, "float32"), np.int32(0)

    spec = (tf.TensorSpec([3], "float32"), tf.TensorSpec([], "int32"))
    data = tf.data.Dataset.from_generator(examples, output_signature=spec).batch(4)
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = compiled()
        for call in prepare:
            call(model, BATCH) if call is build_from_shapes else call(model)
        model.fit(data, epochs=1, verbose=0)
    assert len(started) == starts


def build_in_a_graph(weight: Any) -> None:
    optimizer = keras.optimizers.SGD(momentum=0.9)
    tf.function(lambda: optimizer.build([weight]))()


def test_a_weight_with_a_colon_in_its_path_can_be_trained_only_after_it_is_renamed() -> None:
    with tf.distribute.MirroredStrategy(["/cpu:0"]).scope():
        weight = keras.Variable(np.zeros(2), name="kernel:0")
        with pytest.raises(AttributeError):
            weight.path = "kernel"
        with pytest.raises(ValueError, match="not a valid scope name"):
            build_in_a_graph(weight)
        rename_weight(weight, weight.path.replace(":", "_"))
        build_in_a_graph(weight)


def test_grouped_attention_has_no_public_projections() -> None:
    layer = keras.layers.GroupQueryAttention(head_dim=4, num_query_heads=4, num_key_value_heads=2)
    tokens = keras.Input((5, 16))
    layer(tokens, tokens)
    for name in ("query", "key", "value", "output"):
        assert attention_projection(layer, name).kernel.shape
        assert not hasattr(layer, f"{name}_dense")


def test_keras_s_own_models_download_weights_through_the_private_module(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_fetched(*_arguments: object, **_options: object) -> None:
        raise AssertionError("the public name is enough now")

    monkeypatch.setattr(keras.utils, "get_file", not_fetched)
    with without_downloads():
        assert keras.applications.MobileNet(input_shape=(128, 128, 3), alpha=0.25, include_top=False).weights


def test_automatic_name_is_what_keras_calls_a_metric_by_itself() -> None:
    for made in (keras.metrics.MeanSquaredError, keras.metrics.AUC, keras.metrics.TopKCategoricalAccuracy):
        name = keras.metrics.deserialize({"class_name": made.__name__, "config": {}}).name
        assert automatic_name(made.__name__) == re.sub(r"_\d+$", "", name)  # the second one in a process has a number
