"""SavedModels as feature extractors: of every sort there is, frozen and trained, saved and read elsewhere."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest

from tests import saved_models
from tests.helpers import run_forked, small_config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import DataError
from tpu_console.engine.models.build import build_model
from tpu_console.engine.models.pretrained import load_saved_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SORTS = [saved_models.exported, saved_models.reusable, saved_models.from_tf1]
PIXELS = np.random.default_rng(2).uniform(0, 1, (9, 32, 32, 3)).astype(np.float32)


def build(path: str, folder: Path, shape: tuple[int, ...] = (32, 32, 3), pixels: str = "unit", **options: Any) -> Any:
    config = small_config(model="hub", model_options={"path": path} | options, data={"pixels": pixels})
    return build_model(config, Signature(Task.CLASSES, {"image": Input(shape)}, 3), folder / "hub")


def refused(path: str, folder: Path, **options: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        build(path, folder, **options)
    return caught.value


def features_of(model: Any) -> Any:
    return keras.Model(model.inputs[0], model.layers[-2].output)


def train(model: Any) -> None:
    model.compile(keras.optimizers.SGD(1.0), "sparse_categorical_crossentropy")
    model.fit(PIXELS, np.arange(9) % 3, verbose=0)


@pytest.mark.parametrize("save", SORTS)
def test_features_are_what_the_saved_model_makes_of_the_pixels(save: Callable[[Path], str], tmp_path: Path) -> None:
    model = build(save(tmp_path / "saved"), tmp_path)
    made = np.asarray(features_of(model)(PIXELS))
    kernel = saved_models.weights()
    colors = PIXELS @ kernel if save is saved_models.exported else PIXELS.mean((1, 2)) @ kernel
    expected = np.maximum(colors, 0)
    expected = expected.mean((1, 2)) if expected.ndim == 4 else expected
    np.testing.assert_allclose(made, expected, atol=1e-5)


def test_a_setuptools_without_pkg_resources_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    model = build(saved_models.reusable(tmp_path / "saved"), tmp_path, pixels=pixels, image_scale=scale)
    made = features_of(model)(PIXELS * (255 if pixels == "raw" else 1))
    expected = np.maximum((PIXELS * factor + offset).mean((1, 2)) @ saved_models.weights(), 0)
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("save", SORTS)
@pytest.mark.parametrize("trainable", [False, True])
def test_its_weights_are_trained_only_if_configured(
    save: Callable[[Path], str], trainable: bool, tmp_path: Path
) -> None:
    model = build(save(tmp_path / "saved"), tmp_path, trainable=trainable)
    features = features_of(model)
    before = np.asarray(features(PIXELS))
    train(model)
    changed = float(np.abs(np.asarray(features(PIXELS)) - before).max())
    assert (changed > 1e-4) is trainable
    layer = model.get_layer("features")
    assert bool(layer.trainable_weights) is trainable
    if save is saved_models.reusable:
        # What it only does in training, it does when it is trained: its mean moves.
        mean = next(weight for weight in layer.weights if "mean" in weight.name)
        assert bool(np.abs(mean.numpy()).max() > 0) is trainable


LOAD = """
import json, sys, keras, numpy as np
model = keras.models.load_model(sys.argv[1], safe_mode=False, compile=False)
pixels = np.load(sys.argv[2])
print(json.dumps(model(pixels).numpy().tolist()))
assert not [name for name in sys.modules if name.split(".")[0] in {"engine", "tui", "presets", "tensorflow_hub"}]
"""


@pytest.mark.slow
def test_a_trained_model_is_read_by_a_plain_process_without_its_source(tmp_path: Path) -> None:
    source = tmp_path / "saved"
    model = build(saved_models.reusable(source), tmp_path, trainable=True)
    train(model)
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "pixels.npy", PIXELS)
    source.rename(tmp_path / "gone")
    printed = run_forked(LOAD, str(tmp_path / "model.keras"), str(tmp_path / "pixels.npy"), cwd=tmp_path)
    np.testing.assert_allclose(json.loads(printed.splitlines()[-1]), model(PIXELS), atol=1e-5)


def test_a_folder_that_is_not_a_saved_model(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "saved_model.pb").write_bytes(b"not a protocol buffer")
    for path in ("pictures", "nowhere", "broken"):
        error = refused(str(tmp_path / path), tmp_path)
        assert str(tmp_path / path) in error.what
        assert "saved_model.pb" in error.remedy


def test_a_saved_model_without_a_usable_function(tmp_path: Path) -> None:
    assert "none" in refused(saved_models.silent(tmp_path / "a"), tmp_path).what
    path = saved_models.with_signatures(tmp_path / "b", ("left", "right"))
    for signature in ("", "middle", "left"):  # with two inputs
        error = refused(path, tmp_path, signature=signature)
        assert error.what.endswith("left, right.")
        assert f"'{signature}'" in error.what or not signature
        assert "model_options.signature" in error.remedy
    several = refused(saved_models.from_tf1(tmp_path / "c", outputs=2), tmp_path)
    assert ": part0, part1" in several.what


def test_images_of_another_size_than_it_takes_and_training_without_weights_are_refused(tmp_path: Path) -> None:
    error = refused(saved_models.from_tf1(tmp_path / "saved", size=48), tmp_path)
    assert "32×32×3" in error.what
    assert "image_size" in error.remedy
    keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Flatten()]).export(tmp_path / "flat", verbose=False)
    assert "no weights" in refused(str(tmp_path / "flat"), tmp_path, trainable=True).what


def test_an_address_that_cannot_be_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFHUB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("https_proxy", "http://proxy.invalid:1")
    address = "https://tfhub.dev/google/imagenet/mobilenet_v2_100_224/feature_vector/5"
    error = refused(address, tmp_path)
    assert address in error.what
    assert "model_options.path" in error.remedy
