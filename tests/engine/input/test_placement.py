"""Where images are changed: in the pipeline, or by Keras's layers in front of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tpu_console.engine.config.options import Augmentation
from tpu_console.engine.errors import DataError
from tpu_console.engine.input.augment import augmentation_layers, augmenter, choose_placement, with_augmentation

if TYPE_CHECKING:
    from pathlib import Path

SAFE = {"flip": "both", "contrast": 0.5, "brightness": 0.5, "color": 0.5}


@pytest.mark.parametrize(
    ("options", "accelerator", "in_model"),
    [
        (SAFE, "gpu", True),
        (SAFE, "cpu", False),
        (SAFE, "sim:8", False),
        (SAFE, "tpu", False),
        (SAFE | {"rotation": 10.0}, "gpu", False),
        (SAFE | {"mixup": 0.2}, "gpu", False),
        (SAFE | {"crop": 0.2}, "gpu", False),
        (SAFE | {"placement": "pipeline"}, "gpu", False),
        (SAFE | {"placement": "model"}, "cpu", True),
        (SAFE | {"placement": "model"}, "tpu", True),
        ({"rotation": 10.0, "placement": "model"}, "gpu", True),
        ({"placement": "model"}, "gpu", False),  # nothing to place
    ],
)
def test_the_place_suits_the_accelerator(options: dict[str, Any], accelerator: str, in_model: bool) -> None:
    placement = choose_placement(Augmentation(**options), accelerator)
    assert placement.in_model is in_model
    place = "in the model" if in_model else "in the input pipeline"
    assert placement.reason.startswith(place) if Augmentation(**options).is_active else not placement.reason


def test_what_a_tpu_s_compiler_chokes_on_is_refused_in_the_model() -> None:
    for name in ("rotation", "translation", "zoom"):
        with pytest.raises(DataError, match=rf"augmentation\.{name} cannot be placed"):
            choose_placement(Augmentation(**{name: 0.5, "placement": "model"}), "tpu")


def small_model(kind: str) -> Any:
    body = [keras.layers.Conv2D(4, 3), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3)]
    if kind == "sequential":
        return keras.Sequential([keras.Input((16, 16, 3)), *body], name="small")
    images = output = keras.Input((16, 16, 3))
    for layer in body:
        output = layer(output)
    return keras.Model(images, output, name="small")


@pytest.mark.parametrize("kind", ["sequential", "functional"])
def test_layers_in_the_model_act_in_training_only_and_are_saved_with_it(kind: str, tmp_path: Path) -> None:
    keras.utils.set_random_seed(1)
    bare = small_model(kind)
    images = np.random.default_rng(0).random((16, 16, 16, 3)).astype(np.float32)
    before = bare.predict(images, verbose=0)
    every = Augmentation(**SAFE, rotation=20.0, translation=0.2, zoom=0.2, erasing=1.0, placement="model")
    model = with_augmentation(bare, every, 1.0, 7)
    assert np.allclose(model.predict(images, verbose=0), before, atol=1e-5)
    first, second = (model(images, training=True).numpy() for _ in range(2))
    assert not np.allclose(first, before)
    assert not np.allclose(first, second)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert np.allclose(again.predict(images, verbose=0), before, atol=1e-5)


def test_what_auto_places_in_the_model_compiles_with_xla() -> None:
    body = keras.Sequential(augmentation_layers(Augmentation(**SAFE), 1.0, 1))
    images = tf.random.uniform((8, 16, 16, 3))
    made = tf.function(lambda batch: body(batch, training=True), jit_compile=True)(images)
    assert made.shape == images.shape
    assert 0 <= float(tf.reduce_min(made)) <= float(tf.reduce_max(made)) <= 1 + 1e-5


@pytest.mark.parametrize(
    ("options", "off"),
    # Keras draws saturation unevenly, more often below than above 1, so its mean is a little off.
    [({"brightness": 0.2}, 0.01), ({"contrast": 0.6}, 0.002), ({"color": 0.4}, 0.03)],
)
def test_layers_spread_pixels_as_widely_as_the_pipeline_does(options: dict[str, Any], off: float) -> None:
    image = np.array([[[0.6, 0.4, 0.2], [0.5, 0.3, 0.4]]], np.float32)
    images = np.broadcast_to(image, (4096, 1, 2, 3))
    (ours, _) = augmenter(Augmentation(**options), (1, 2, 3), 1.0, 1.0, 1)(0, tf.constant(images), ())
    theirs = keras.Sequential(augmentation_layers(Augmentation(**options), 1.0, 1))(images, training=True)
    assert np.abs(np.mean(ours, axis=0) - np.mean(theirs, axis=0)).max() < off
    spread = np.std(ours, axis=0)
    assert spread.max() > 0.03
    assert np.allclose(spread, np.std(theirs, axis=0), rtol=0.1, atol=0.003)


def test_a_layer_without_value_range_is_built_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class RandomContrast(keras.layers.RandomContrast):  # type: ignore[misc]  # as in Keras 3.7
        def __init__(self, factor: Any, seed: int | None = None, **named: Any) -> None:
            assert "value_range" not in named
            super().__init__(factor, seed=seed, **named)

    monkeypatch.setattr(keras.layers, "RandomContrast", RandomContrast)
    layers = augmentation_layers(Augmentation(contrast=0.5, brightness=0.5), 1.0, seed=1)
    assert [type(layer).__name__ for layer in layers] == ["RandomContrast", "RandomBrightness"]
    assert list(layers[1].value_range) == [0.0, 1.0]
