"""Random changes to images: those of Keras's layers of the same names, in the pipeline or in the model."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tpu_console.engine.config.options import Augmentation
from tpu_console.engine.errors import DataError
from tpu_console.engine.input import augment
from tpu_console.engine.input.augment import Draw, augmentation_layers, augmenter

SIDE = 32
layers = keras.layers


def photos(count: int = 8, height: int = SIDE, width: int = SIDE) -> Any:
    """Images of bytes, as floats."""
    return np.random.default_rng(0).integers(0, 256, (count, height, width, 3)).astype(np.float32)


def fixed(value: float, count: int = 8) -> Any:
    """The same draw for everything: 0, 0.5 and 1 are the smallest, no and the largest change."""
    return tf.fill((len(Draw), count), value)


def moved(images: Any, options: Augmentation, uniform: Any) -> Any:
    return augment.sample(tf.constant(images), augment.affine(options, uniform, *images.shape[1:3])).numpy()


def changed(options: Augmentation, images: Any, *targets: Any, number: int = 0, seed: int = 1) -> Any:
    """A batch as the pipeline changes it."""
    change = augmenter(options, images.shape[1:], 255.0, 1.0, seed)
    images, targets = change(number, tf.constant(images), tuple(map(tf.constant, targets)))
    return images.numpy(), *(target.numpy() for target in targets)


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_images_are_read_as_tensorflow_s_own_transform_reads_them(kind: Any) -> None:
    generator = np.random.default_rng(1)
    images = photos(64, 24, 40).astype(kind)
    maps = generator.normal(0, 1, (64, 6)).astype(np.float32) * [1, 1, 60, 1, 1, 60]  # far beyond every edge
    theirs = tf.raw_ops.ImageProjectiveTransformV3(
        images=tf.cast(images, tf.float32),
        transforms=tf.constant(np.pad(maps, ((0, 0), (0, 2))), tf.float32),
        output_shape=(24, 40),
        interpolation="BILINEAR",
        fill_mode="REFLECT",
        fill_value=0.0,
    )
    ours = augment.sample(tf.constant(images), tf.constant(maps.reshape(-1, 2, 3), tf.float32))
    # Where a map lands exactly between two pixels, rounding of coordinates near 100 decides in the fourth digit.
    assert np.abs(ours - theirs).max() < 0.05


@pytest.mark.parametrize("value", [0.0, 0.2, 1.0])
@pytest.mark.parametrize(
    ("options", "layer"),
    [
        ({"rotation": 20.0}, lambda v: layers.RandomRotation((v * 20 / 360, v * 20 / 360))),
        ({"translation": 0.3}, lambda v: layers.RandomTranslation((v * 0.3, v * 0.3), (v * 0.3, v * 0.3))),
        ({"zoom": 0.4}, lambda v: layers.RandomZoom((v * 0.4, v * 0.4))),
    ],
    ids=["rotation", "translation", "zoom"],
)
def test_a_forced_movement_is_that_of_keras_s_layer(options: dict[str, Any], layer: Any, value: float) -> None:
    images = photos(8, 24, 40)
    theirs = layer(2 * value - 1)(images, training=True).numpy()
    assert np.abs(moved(images, Augmentation(**options), fixed(value)) - theirs).max() < 0.05


@pytest.mark.parametrize(("mode", "axes"), [("horizontal", 2), ("vertical", 1), ("both", (1, 2))])
def test_flips_mirror_exactly(mode: Any, axes: Any) -> None:
    images, options = photos(), Augmentation(flip=mode)
    assert np.array_equal(moved(images, options, fixed(0.0)), np.flip(images, axes))
    assert np.array_equal(moved(images, options, fixed(1.0)), images)


def test_movements_follow_each_other_as_in_a_row_of_keras_layers() -> None:
    images = photos()
    options = Augmentation(flip="horizontal", rotation=90.0, translation=0.25)
    uniform = np.full((len(Draw), 8), 1.0, np.float32)  # whole pixels, so that reading twice blurs nothing
    uniform[Draw.FLIP_X] = 0.0
    theirs: Any = images[:, :, ::-1]
    theirs = layers.RandomRotation((0.25, 0.25))(theirs, training=True)
    theirs = layers.RandomTranslation((0.25, 0.25), (0.25, 0.25))(theirs, training=True)
    assert np.abs(moved(images, options, tf.constant(uniform)) - theirs).max() < 0.05


def test_a_crop_shows_a_part_at_full_size() -> None:
    ramp = np.broadcast_to(np.arange(SIDE, dtype=np.float32)[None, None, :, None], (64, SIDE, SIDE, 1))
    options = Augmentation(crop=0.5)
    uniform, *_ = augment.draw(options, 1, 0, 64)
    cropped = moved(ramp, options, uniform)
    left_out = 0.5 * uniform[Draw.CROP].numpy()
    shown = (cropped.max(axis=(1, 2, 3)) - cropped.min(axis=(1, 2, 3)) + 1) / SIDE
    assert np.abs(shown - (1 - left_out)).max() < 0.05
    assert 0 <= cropped.min() <= cropped.max() <= SIDE - 1


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_forced_colors_are_those_of_keras_and_tensorflow(value: float) -> None:
    images, change = photos(), 2 * value - 1
    images *= np.linspace(0.1, 1, 8, dtype=np.float32)[:, None, None, None]
    images[0] = 127.5  # gray has no hue
    # Of contrast, Keras's layer takes no fixed factor: what it would have drawn is handed to it.
    drawn = {"contrast_factor": tf.fill((8, 1, 1, 1), 1 + change * 0.5)}
    turned = tf.image.adjust_hue(images / 255, augment.HUE_SHARE * 0.6 * change)
    for options, theirs in (
        ({"brightness": 0.4}, layers.RandomBrightness((change * 0.4, change * 0.4))(images, training=True)),
        ({"contrast": 0.5}, layers.RandomContrast(0.5).transform_images(tf.constant(images), drawn, training=True)),
        ({"color": 0.6}, 255 * tf.image.adjust_saturation(turned, 1 + 0.6 * change)),
    ):
        ours = augment.recolor(tf.constant(images), Augmentation(**options), fixed(value), 255.0)
        assert np.abs(ours - theirs).max() < (0.255 if "color" in options else 1e-2)


def test_erasing_blanks_a_rectangle_of_some_images() -> None:
    images = np.full((512, SIDE, SIDE, 3), 10.0, np.float32)
    options = Augmentation(erasing=0.25)
    uniform, *_ = augment.draw(options, 3, 0, 512)
    blank = (augment.erase(tf.constant(images), options, uniform, 255.0).numpy() == 127.5)[..., 0]
    erased = blank.any(axis=(1, 2))
    assert 0.17 < erased.mean() < 0.33
    for one in blank[erased]:
        rows, columns = one.any(axis=1), one.any(axis=0)
        assert one.sum() == rows.sum() * columns.sum()  # a rectangle
        assert augment.ERASED_AREA[0] / 2 < one.mean() < augment.ERASED_AREA[1] * 1.2


def numbered(count: int) -> tuple[Any, Any]:
    """Images filled with their own number, and one-hot labels."""
    images = np.broadcast_to(np.arange(count, dtype=np.float32)[:, None, None, None], (count, SIDE, SIDE, 3))
    return np.array(images), np.eye(count, dtype=np.float32)


def test_mixup_mixes_labels_and_sample_weights_as_it_mixes_images() -> None:
    images, labels = numbered(64)
    mixed, soft, weights = changed(Augmentation(mixup=0.4), images, labels, np.arange(64, dtype=np.float32))
    assert np.allclose(soft.sum(axis=1), 1)
    assert np.allclose(mixed[:, 0, 0, 0], soft @ np.arange(64), atol=1e-3)
    assert np.ptp(mixed, axis=(1, 2, 3)).max() < 1e-3  # the same share all over an image
    assert (soft.max(axis=1) < 0.95).sum() > 10
    assert np.allclose(weights, soft @ np.arange(64), atol=1e-3)


def test_cutmix_mixes_labels_by_the_area_it_pastes() -> None:
    images, labels = numbered(64)
    patched, soft = changed(Augmentation(cutmix=1.0), images, labels)
    own = (patched[..., 0] == np.arange(64)[:, None, None]).mean(axis=(1, 2))
    assert np.allclose(np.diag(soft), own, atol=1e-5)
    assert np.allclose(soft.sum(axis=1), 1)
    assert len(set(own)) > 32


def test_draws_fill_their_range_and_do_not_depend_on_each_other() -> None:
    options = Augmentation(mixup=0.3, cutmix=2.0)
    uniform, mixup, cutmix = (part.numpy() for part in augment.draw(options, 1, 0, 4096))
    assert 0 <= uniform.min() < 0.001
    assert 0.999 < uniform.max() < 1
    assert np.abs(uniform.mean(axis=1) - 0.5).max() < 0.03
    assert np.abs(np.corrcoef(uniform) - np.eye(len(Draw))).max() < 0.08
    for shares, alpha in ((mixup, 0.3), (cutmix, 2.0)):
        assert abs(shares.mean() - 0.5) < 0.03
        assert abs(shares.var() - 1 / (4 * (2 * alpha + 1))) < 0.02  # of Beta(alpha, alpha)
    assert abs(np.corrcoef(mixup, cutmix)[0, 1]) < 0.08


def test_all_changes_together_keep_pixels_in_their_range() -> None:
    options = Augmentation(
        flip="both", rotation=180.0, translation=0.9, zoom=0.9, crop=0.9, contrast=0.9, brightness=0.9, color=0.9,
        erasing=1.0, mixup=0.2, cutmix=1.0,
    )  # fmt: skip
    images, labels = changed(options, photos(16).astype(np.uint8), np.eye(16, dtype=np.float32))
    assert images.shape == (16, SIDE, SIDE, 3)
    assert -1e-3 <= images.min() <= images.max() <= 255 + 1e-3
    assert np.allclose(labels.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("options", "shape", "said"),
    [
        ({"color": 0.2}, (8, 8, 1), r"augmentation\.color needs images with 3 channels.*these have 1"),
        ({"flip": "horizontal"}, (3,), r"augmentation needs images.*\(3,\).*\[augmentation\]"),
    ],
)
def test_only_images_can_be_augmented_and_only_those_in_color_can_change_it(
    options: dict[str, Any], shape: tuple[int, ...], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        augmenter(Augmentation(**options), shape, 255.0, 1.0, seed=1)


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
    placement = augment.choose_placement(Augmentation(**options), accelerator)
    assert placement.in_model is in_model
    place = "in the model" if in_model else "in the input pipeline"
    assert placement.reason.startswith(place) if Augmentation(**options).is_active else not placement.reason


def test_what_a_tpu_s_compiler_chokes_on_is_refused_in_the_model() -> None:
    for name in ("rotation", "translation", "zoom"):
        with pytest.raises(DataError, match=rf"augmentation\.{name} cannot be placed"):
            augment.choose_placement(Augmentation(**{name: 0.5, "placement": "model"}), "tpu")


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
    model = augment.with_augmentation(bare, every, 1.0, 7)
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
    ours, _ = augmenter(Augmentation(**options), (1, 2, 3), 1.0, 1.0, 1)(0, tf.constant(images), ())
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
