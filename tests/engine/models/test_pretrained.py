"""Pretrained bases: models of keras.applications and SavedModels, their pixels, their weights, and files elsewhere."""

import inspect
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests import saved_models
from tests.helpers import ROOT, only_shapes, run_forked, small_config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import DataError
from tpu_console.engine.models.build import build_model
from tpu_console.engine.models.pretrained import (
    APPLICATIONS,
    load_saved_model,
    preprocessed,
    preprocessing_of,
    smallest_side,
)

PIXELS = np.random.default_rng(2).uniform(0, 1, (9, 32, 32, 3)).astype(np.float32)
SIDE = (32, 32, 3)


def build(name: str, shape: tuple[int, ...] = SIDE, pixels: str = "unit", **options: Any) -> Any:
    chosen = {"name": name, "weights": "none"} | options
    config = small_config(model="application", model_options=chosen, data={"pixels": pixels})
    return build_model(config, Signature(Task.CLASSES, {"image": Input(shape)}, 4))


def hub(path: str, folder: Path, pixels: str = "unit", **options: Any) -> Any:
    config = small_config(model="hub", model_options={"path": path} | options, data={"pixels": pixels})
    return build_model(config, Signature(Task.CLASSES, {"image": Input(SIDE)}, 3), folder / "hub")


def refused(make: Callable[..., Any], *arguments: Any, **options: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        make(*arguments, **options)
    return caught.value


def base_of(model: Any) -> Any:
    (base,) = [layer for layer in model.layers if isinstance(layer, keras.Model)]
    return base


# One for each smallest image size and each kind of preprocessing layer; MobileNetV3 checks sizes itself.
@pytest.mark.parametrize("name", ["InceptionV3", "MobileNetV3Small", "VGG16", "Xception"])
def test_a_model_can_be_built_for_its_smallest_image(name: str) -> None:
    side = smallest_side(name)
    with only_shapes():
        model = build(name, (side, side, 3))
    assert model.output_shape == (None, 4)
    kernel, bias = model.trainable_weights  # of the classifier: the base is frozen
    assert kernel.shape == (base_of(model).output_shape[-1], 4)
    assert bias.shape == (4,)
    assert base_of(model).count_params() > 900_000
    error = refused(build, name, (side - 1, side, 3))
    assert f"at least {side}×{side}" in error.what
    assert f"{side - 1}×{side}" in error.what
    keras.backend.clear_session()


@pytest.mark.parametrize("name", APPLICATIONS)
@pytest.mark.parametrize(("scale", "top"), [(255.0, 1.0), (1.0, 255.0)])
def test_preprocessing_agrees_with_keras(name: str, scale: float, top: float) -> None:
    pixels = np.random.default_rng(3).uniform(0, top, (2, 5, 7, 3)).astype(np.float32)
    module = sys.modules[getattr(keras.applications, name).__module__]
    expected = module.preprocess_input(pixels * np.float32(scale))
    kind = preprocessing_of(name)
    model = prepared(kind, name, scale)
    np.testing.assert_allclose(model(pixels), expected, rtol=1e-4, atol=1e-3)
    assert (len(model.layers) == 1) == (kind == "none" and scale == 1.0)  # no layer is added without need


_PREPARED: dict[tuple[str, float], Any] = {}


def prepared(kind: str, name: str, scale: float) -> Any:
    """A model that only preprocesses pixels, shared by all names with this kind of preprocessing."""
    if (kind, scale) not in _PREPARED:
        inputs = keras.Input((5, 7, 3))
        _PREPARED[kind, scale] = keras.Model(inputs, preprocessed(inputs, name, scale))
    return _PREPARED[kind, scale]


def test_the_smallest_image_is_that_of_keras() -> None:
    for name in APPLICATIONS:
        code = inspect.getsource(sys.modules[getattr(keras.applications, name).__module__])
        assert {*re.findall(r"min_size=(\d+)", code)} <= {str(smallest_side(name))}, name


def test_a_frozen_base_keeps_the_statistics_of_its_batch_normalization() -> None:
    model = build("MobileNet", pixels="raw")
    model.compile("sgd", "sparse_categorical_crossentropy", run_eagerly=True)  # one step is not worth a graph
    before = [weight.numpy() for weight in base_of(model).weights]
    model.fit(255 * PIXELS[:8], np.arange(8) % 4, verbose=0)
    for old, weight in zip(before, base_of(model).weights, strict=True):
        np.testing.assert_array_equal(old, weight.numpy())


def test_layers_from_a_given_one_on_are_trained_except_batch_normalization() -> None:
    with only_shapes():
        base = base_of(build("MobileNet", trainable=-10))
        error = refused(build, "MobileNet", trainable=500)
    expected = [
        number >= len(base.layers) - 10 and not isinstance(layer, keras.layers.BatchNormalization)
        for number, layer in enumerate(base.layers)
    ]
    assert [layer.trainable for layer in base.layers] == expected
    assert sum(expected) >= 6
    assert f"{len(base.layers)} layers" in error.what


def test_gray_pictures_become_three_channels_and_what_a_model_cannot_take_is_refused() -> None:
    with only_shapes():
        assert base_of(build("MobileNet", (32, 32, 1))).input_shape == (None, *SIDE)
    assert "1 or 3 channels" in refused(build, "MobileNet", (32, 32, 4)).what
    assert "224×224" in refused(build, "NASNetMobile", (128, 128, 3), weights="imagenet").what


def test_classifier_is_float32_in_mixed_precision() -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        with only_shapes():
            model = build("MobileNet", dropout=0.4)
    finally:
        keras.config.set_dtype_policy("float32")
    assert model.layers[-1].compute_dtype == "float32"
    assert model.layers[-2].rate == 0.4
    assert base_of(model).layers[1].compute_dtype == "bfloat16"
    (rescaling,) = [layer for layer in model.layers if isinstance(layer, keras.layers.Rescaling)]
    assert rescaling.compute_dtype == "float32"


@pytest.mark.filterwarnings("ignore:Skipping nested container")  # from Keras, for the file of another model
def test_weights_are_read_from_a_file(tmp_path: Path) -> None:
    base = keras.applications.MobileNet(include_top=False, weights=None, input_shape=SIDE)
    base.save_weights(path := tmp_path / "mine.weights.h5")
    model = build("MobileNet", weights=str(path))
    np.testing.assert_array_equal(base.weights[0].numpy(), base_of(model).weights[0].numpy())
    other = tmp_path / "other.weights.h5"
    keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)]).save_weights(other)
    for wrong in (other, tmp_path / "nothing.weights.h5"):
        assert str(wrong) in refused(build, "MobileNet", weights=str(wrong)).what


OFFLINE = """
import json, sys
from tpu_console.engine.errors import DataError
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.models.build import build_model
from tests.helpers import small_config
config = small_config(model="application", model_options={"name": "MobileNet", "weights": "imagenet"})
try:
    build_model(config, Signature(Task.CLASSES, {"image": Input((64, 64, 3))}, 4))
except DataError as error:
    print(json.dumps([error.what, error.why, error.remedy]))
"""


@pytest.mark.slow
def test_without_a_network_the_error_names_the_url_and_path_of_the_weights(tmp_path: Path) -> None:
    env = {"KERAS_HOME": str(tmp_path), "https_proxy": "http://proxy.invalid:1", "http_proxy": "http://proxy.invalid:1"}
    what, why, remedy = json.loads(run_forked(OFFLINE, cwd=ROOT, env=env).splitlines()[-1])
    assert "MobileNet" in what
    assert "no_top.h5" in why
    assert str(tmp_path / "models") in remedy


LOAD = """
import json, sys, keras, numpy as np
pixels = np.load(sys.argv[1])
for number, path in enumerate(sys.argv[2:]):  # only the first contains code: the layer of a SavedModel
    model = keras.models.load_model(path, safe_mode=number > 0, compile=False)
    print(json.dumps(model(pixels).numpy().tolist()))
assert not {"tpu_console", "tensorflow_hub"} & {*sys.modules}
"""


@pytest.mark.slow
def test_saved_models_are_read_by_a_plain_process(tmp_path: Path) -> None:
    """A trained one after its folder is gone, and both kinds of preprocessing that treat channels differently."""
    source, given = tmp_path / "saved", keras.Input(SIDE)
    trained = hub(saved_models.reusable(source), tmp_path, trainable=True)
    train(trained)
    models = [trained, *(keras.Model(given, preprocessed(given, name, 255.0)) for name in ("VGG16", "DenseNet121"))]
    paths = [tmp_path / f"{number}.keras" for number in range(len(models))]
    for path, model in zip(paths, models, strict=True):
        model.save(path)
    np.save(tmp_path / "pixels.npy", PIXELS)
    source.rename(tmp_path / "gone")
    printed = run_forked(LOAD, str(tmp_path / "pixels.npy"), *map(str, paths), cwd=tmp_path).splitlines()[-3:]
    for line, model in zip(printed, models, strict=True):
        np.testing.assert_allclose(np.array(json.loads(line)), model(PIXELS), atol=1e-4)


def features_of(model: Any) -> Any:
    return keras.Model(model.inputs[0], model.layers[-2].output)


def train(model: Any) -> None:
    model.compile(keras.optimizers.SGD(1.0), "sparse_categorical_crossentropy")
    model.fit(PIXELS, np.arange(9) % 3, verbose=0)


@pytest.mark.parametrize("save", [saved_models.exported, saved_models.reusable, saved_models.from_tf1])
@pytest.mark.parametrize("trainable", [False, True])
def test_features_are_what_a_saved_model_computes_and_it_is_trained_only_if_configured(
    save: Callable[[Path], str], trainable: bool, tmp_path: Path
) -> None:
    model = hub(save(tmp_path / "saved"), tmp_path, trainable=trainable)
    features, kernel = features_of(model), saved_models.weights()
    before = np.asarray(features(PIXELS))
    is_map = save is saved_models.exported
    expected = np.maximum(PIXELS @ kernel, 0).mean((1, 2)) if is_map else np.maximum(PIXELS.mean((1, 2)) @ kernel, 0)
    np.testing.assert_allclose(before, expected, atol=1e-5)
    train(model)
    changed = float(np.abs(np.asarray(features(PIXELS)) - before).max())
    assert (changed > 1e-4) is trainable
    layer = model.get_layer("features")
    assert bool(layer.trainable_weights) is trainable
    if save is saved_models.reusable:
        # It runs in training mode only if it is trained: its mean moves.
        mean = next(weight for weight in layer.weights if "mean" in weight.name)
        assert bool(np.abs(mean.numpy()).max() > 0) is trainable


def test_a_saved_model_is_loaded_without_pkg_resources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "tensorflow_hub"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pkg_resources", None)  # as if it were not installed
    assert load_saved_model(saved_models.exported(tmp_path / "saved")).signatures
    assert "pkg_resources" not in sys.modules


@pytest.mark.parametrize(
    ("scale", "factor", "offset", "pixels"), [("unit", 1, 0, "raw"), ("signed", 2, -1, "unit"), ("raw", 255, 0, "unit")]
)
def test_pixels_are_scaled_as_the_publisher_expects(
    scale: str, factor: float, offset: float, pixels: str, tmp_path: Path
) -> None:
    model = hub(saved_models.reusable(tmp_path / "saved"), tmp_path, pixels=pixels, image_scale=scale)
    made = features_of(model)(PIXELS * (255 if pixels == "raw" else 1))
    expected = np.maximum((PIXELS * factor + offset).mean((1, 2)) @ saved_models.weights(), 0)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


def test_a_path_without_a_saved_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("pictures", None), ("broken", b"not a protocol buffer")):
        (tmp_path / name).mkdir()
        if content is not None:
            (tmp_path / name / "saved_model.pb").write_bytes(content)
    for path in ("pictures", "nowhere", "broken"):
        error = refused(hub, str(tmp_path / path), tmp_path)
        assert str(tmp_path / path) in error.what
        assert "saved_model.pb" in error.remedy
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("https_proxy", "http://proxy.invalid:1")
    address = "https://tfhub.dev/google/imagenet/mobilenet_v2_100_224/feature_vector/5"
    error = refused(hub, address, tmp_path)
    assert address in error.what
    assert "model_options.path" in error.remedy


def test_a_saved_model_without_a_usable_function(tmp_path: Path) -> None:
    assert "none" in refused(hub, saved_models.silent(tmp_path / "a"), tmp_path).what
    path = saved_models.with_signatures(tmp_path / "b", ("left", "right"))
    for signature in ("", "middle", "left"):  # with two inputs
        error = refused(hub, path, tmp_path, signature=signature)
        assert error.what.endswith("left, right.")
        assert (f"'{signature}'" if signature else "with a usual name") in error.what
        assert "model_options.signature" in error.remedy
    several = refused(hub, saved_models.from_tf1(tmp_path / "c", outputs=2), tmp_path)
    assert ": part0, part1" in several.what
    error = refused(hub, saved_models.from_tf1(tmp_path / "d", size=48), tmp_path)
    assert "32×32×3" in error.what
    assert "image_size" in error.remedy
    keras.Sequential([keras.Input(SIDE), keras.layers.Flatten()]).export(tmp_path / "flat", verbose=False)
    assert "no weights" in refused(hub, str(tmp_path / "flat"), tmp_path, trainable=True).what
