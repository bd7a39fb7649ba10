"""The VGG-like model: layer by layer the CNN of Keras's CIFAR-10 example."""

from __future__ import annotations

from typing import Any

import pytest

from tests.helpers import small_config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import DataError
from tpu_console.engine.models.build import build_model


def vgg(shape: tuple[int, ...] = (32, 32, 3), **options: Any) -> Any:
    return build_model(
        small_config(model="vgg", model_options=options), Signature(Task.CLASSES, {"image": Input(shape)}, 10)
    )


def test_it_is_the_cnn_of_keras_cifar10_example() -> None:
    model = vgg()
    made = []
    for layer in model.layers:
        values = layer.get_config()
        name = type(layer).__name__
        made.append((name, *(values[key] for key in ("filters", "padding", "units", "rate") if key in values)))
    assert made == [
        ("Conv2D", 32, "same"),
        ("Conv2D", 32, "valid"),
        ("MaxPooling2D", "valid"),
        ("Dropout", 0.25),
        ("Conv2D", 64, "same"),
        ("Conv2D", 64, "valid"),
        ("MaxPooling2D", "valid"),
        ("Dropout", 0.25),
        ("Flatten",),
        ("Dense", 512),
        ("Dropout", 0.5),
        ("Dense", 10),
    ]
    assert model.count_params() == 1_250_858
    assert [layer.kernel_size for layer in model.layers if hasattr(layer, "kernel_size")] == [(3, 3)] * 4
    activations = [layer.activation.__name__ for layer in model.layers if hasattr(layer, "activation")]
    assert activations == ["relu"] * 5 + ["softmax"]


def test_blocks_and_dropout_are_configurable() -> None:
    model = vgg(filters=[8], block_dropout=0.0, hidden=16, dropout=0.0)
    kinds = [type(layer).__name__ for layer in model.layers]
    assert kinds == ["Conv2D", "Conv2D", "MaxPooling2D", "Flatten", "Dense", "Dense"]
    assert model.layers[-2].units == 16


def test_images_too_small_for_its_blocks_are_refused() -> None:
    with pytest.raises(DataError) as caught:
        vgg((8, 8, 1), filters=[8, 8, 8])
    assert "(8, 8, 1)" in caught.value.what
    assert "fewer filters" in caught.value.remedy
