"""Models of keras.applications: each can be built, and gets its pixels as it was trained on them."""

from __future__ import annotations

import inspect
import json
import re
import sys
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest

from tests.helpers import ROOT, run_forked, small_config
from tests.only_shapes import only_shapes
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import DataError
from tpu_console.engine.models.build import build_model
from tpu_console.engine.models.pretrained import APPLICATIONS, preprocessed, preprocessing_of, smallest_side

if TYPE_CHECKING:
    from pathlib import Path

SMALL = ("ConvNeXtTiny", "EfficientNetB0", "InceptionV3", "MobileNetV3Small", "ResNet50V2", "VGG16", "Xception")
"""Of each smallest size of images, and of each preprocessing; MobileNetV3 checks sizes by itself."""


def build(name: str, shape: tuple[int, ...], pixels: str = "unit", **options: Any) -> Any:
    chosen = {"name": name, "weights": "none"} | options
    config = small_config(model="application", model_options=chosen, data={"pixels": pixels})
    return build_model(config, Signature(Task.CLASSES, {"image": Input(shape)}, 4))


def refused(name: str, shape: tuple[int, ...], **options: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        build(name, shape, **options)
    return caught.value


def base_of(model: Any) -> Any:
    (base,) = [layer for layer in model.layers if isinstance(layer, keras.Model)]
    return base


@pytest.mark.parametrize("name", SMALL)
def test_a_model_of_every_family_can_be_built_for_its_smallest_image(name: str) -> None:
    side = smallest_side(name)
    with only_shapes():
        model = build(name, (side, side, 3))
    assert model.output_shape == (None, 4)
    kernel, bias = model.trainable_weights  # of the classifier: the base is frozen
    assert kernel.shape == (base_of(model).output_shape[-1], 4)
    assert bias.shape == (4,)
    assert base_of(model).count_params() > 900_000
    error = refused(name, (side - 1, side, 3))
    assert f"at least {side}×{side}" in error.what
    assert f"{side - 1}×{side}" in error.what
    keras.backend.clear_session()


@pytest.mark.parametrize("name", APPLICATIONS)
@pytest.mark.parametrize(("scale", "top"), [(255.0, 1.0), (1.0, 255.0)])
def test_preprocessing_agrees_with_keras(name: str, scale: float, top: float) -> None:
    pixels = np.random.default_rng(3).uniform(0, top, (2, 5, 7, 3)).astype(np.float32)
    module = sys.modules[getattr(keras.applications, name).__module__]
    expected = module.preprocess_input(pixels * np.float32(scale))
    np.testing.assert_allclose(prepared(preprocessing_of(name), name, scale)(pixels), expected, rtol=1e-4, atol=1e-3)


_PREPARED: dict[tuple[str, float], Any] = {}


def prepared(kind: str, name: str, scale: float) -> Any:
    """A model that only prepares pixels, one for all names of a kind of preprocessing."""
    if (kind, scale) not in _PREPARED:
        inputs = keras.Input((5, 7, 3))
        _PREPARED[kind, scale] = keras.Model(inputs, preprocessed(inputs, name, scale))
    return _PREPARED[kind, scale]


def test_a_frozen_base_keeps_the_statistics_of_its_batch_normalization() -> None:
    model = build("MobileNetV3Small", (32, 32, 3), pixels="raw")
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)  # one step is not worth a graph
    before = [weight.numpy() for weight in base_of(model).weights]
    pixels = np.random.default_rng(1).uniform(0, 255, (8, 32, 32, 3)).astype(np.float32)
    model.fit(pixels, np.arange(8) % 4, verbose=0)
    for old, weight in zip(before, base_of(model).weights, strict=True):
        np.testing.assert_array_equal(old, weight.numpy())


def test_layers_from_a_given_one_on_are_trained_except_batch_normalization() -> None:
    base = base_of(build("MobileNet", (32, 32, 3), trainable=-10))
    expected = [
        number >= len(base.layers) - 10 and not isinstance(layer, keras.layers.BatchNormalization)
        for number, layer in enumerate(base.layers)
    ]
    assert [layer.trainable for layer in base.layers] == expected
    assert sum(expected) >= 6
    assert f"{len(base.layers)} layers" in refused("MobileNet", (32, 32, 3), trainable=500).what


def test_the_smallest_image_is_that_of_keras() -> None:
    for name in APPLICATIONS:
        code = inspect.getsource(sys.modules[getattr(keras.applications, name).__module__])
        assert {*re.findall(r"min_size=(\d+)", code)} <= {str(smallest_side(name))}, name


def test_gray_pictures_become_three_channels_and_what_a_model_cannot_take_is_refused() -> None:
    assert base_of(build("MobileNet", (32, 32, 1))).input_shape == (None, 32, 32, 3)
    assert "1 or 3 channels" in refused("MobileNet", (32, 32, 4)).what
    assert "224×224" in refused("NASNetMobile", (128, 128, 3), weights="imagenet").what


def test_classifier_is_float32_in_mixed_precision() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = build("MobileNet", (32, 32, 3), dropout=0.4)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.layers[-1].compute_dtype == "float32"
    assert model.layers[-2].rate == 0.4
    assert base_of(model).layers[1].compute_dtype == "bfloat16"
    (rescaling,) = [layer for layer in model.layers if isinstance(layer, keras.layers.Rescaling)]
    assert rescaling.compute_dtype == "float32"


@pytest.mark.filterwarnings("ignore:Skipping nested container")  # Keras, of a file that is another model's
def test_weights_are_read_from_a_file(tmp_path: Path) -> None:
    base = keras.applications.MobileNetV3Small(include_top=False, weights=None, input_shape=(32, 32, 3))
    path = tmp_path / "mine.weights.h5"
    base.save_weights(path)
    model = build("MobileNetV3Small", (32, 32, 3), weights=str(path))
    np.testing.assert_array_equal(base.weights[0].numpy(), base_of(model).weights[0].numpy())
    for wrong in (path, tmp_path / "nothing.weights.h5"):  # of another model, and of none
        assert str(wrong) in refused("MobileNet", (32, 32, 3), weights=str(wrong)).what


OFFLINE = """
import json, sys
from tpu_console.engine.errors import DataError
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.models.build import build_model
from tests.helpers import small_config
config = small_config(model="application", model_options={"name": "MobileNetV3Small", "weights": "imagenet"})
try:
    build_model(config, Signature(Task.CLASSES, {"image": Input((64, 64, 3))}, 4))
except DataError as error:
    print(json.dumps([error.what, error.why, error.remedy]))
"""


@pytest.mark.slow
def test_without_a_network_url_and_place_of_the_weights_are_named(tmp_path: Path) -> None:
    env = {"KERAS_HOME": str(tmp_path), "https_proxy": "http://proxy.invalid:1", "http_proxy": "http://proxy.invalid:1"}
    what, why, remedy = json.loads(run_forked(OFFLINE, cwd=ROOT, env=env).splitlines()[-1])
    assert "MobileNetV3Small" in what
    assert "no_top_v2.h5" in why
    assert str(tmp_path / "models") in remedy


LOAD = """
import sys, keras, numpy as np
for path in sys.argv[1:]:
    model = keras.models.load_model(path)
    print(model(np.full((1, 2, 2, 3), 0.25, "float32")).numpy().round(5).tolist())
assert not [name for name in sys.modules if name.split(".")[0] in {"engine", "tui", "presets"}]
"""


@pytest.mark.slow
def test_saved_preprocessing_loads_in_a_plain_process(tmp_path: Path) -> None:
    """The two kinds that have a layer for each channel, or turn the channels round; the base is Keras's own."""
    given = keras.Input((2, 2, 3))
    names = ("VGG16", "DenseNet121")
    models = {tmp_path / f"{name}.keras": keras.Model(given, preprocessed(given, name, 255.0)) for name in names}
    for path, model in models.items():
        model.save(path)
    printed = run_forked(LOAD, *(str(path) for path in models), cwd=tmp_path).splitlines()[-2:]
    for line, model in zip(printed, models.values(), strict=True):
        expected = model(np.full((1, 2, 2, 3), 0.25, np.float32)).numpy()
        np.testing.assert_allclose(np.array(json.loads(line)), expected, atol=2e-4)
