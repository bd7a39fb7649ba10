"""A model of `keras.applications` with its preprocessing inside and a new classifier.

The model takes pixels scaled by ``data.pixels``. The preprocessing of its family consists of Keras layers in the model,
so a saved model takes the same pixels and loads without this package.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ..config.values import DropRate, one_of
from ..data.places import locate
from ..errors import DataError, one_line
from ..storage.paths import keras_home
from .model import BuiltinModel, head, image_shape

if TYPE_CHECKING:
    from pathlib import Path

    from ..config.run_config import RunConfig
    from ..data.examples import Signature

_APPLICATIONS = """
ConvNeXtBase ConvNeXtLarge ConvNeXtSmall ConvNeXtTiny ConvNeXtXLarge DenseNet121 DenseNet169 DenseNet201 EfficientNetB0
EfficientNetB1 EfficientNetB2 EfficientNetB3 EfficientNetB4 EfficientNetB5 EfficientNetB6 EfficientNetB7
EfficientNetV2B0 EfficientNetV2B1 EfficientNetV2B2 EfficientNetV2B3 EfficientNetV2L EfficientNetV2M EfficientNetV2S
InceptionResNetV2 InceptionV3 MobileNet MobileNetV2 MobileNetV3Large MobileNetV3Small NASNetLarge NASNetMobile
ResNet101 ResNet101V2 ResNet152 ResNet152V2 ResNet50 ResNet50V2 VGG16 VGG19 Xception
"""
APPLICATIONS = tuple(_APPLICATIONS.split())  # the classification models of `keras.applications`

# What `preprocess_input` of each family does to pixels from 0 to 255, named as in Keras's `imagenet_utils`; with "none"
# the model does it itself. The longest matching prefix of a name counts.
_PREPROCESSING = {
    "ConvNeXt": "none",
    "DenseNet": "torch",
    "EfficientNet": "none",
    "Inception": "tf",
    "MobileNet": "tf",
    "MobileNetV3": "none",
    "NASNet": "tf",
    "ResNet": "caffe",
    "VGG": "caffe",
    "Xception": "tf",
}
_MEAN_RGB, _DEVIATION_RGB = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_MEAN_BGR = (103.939, 116.779, 123.68)

_SMALLEST_SIDES = {"Inception": 75, "Xception": 71}
_SMALLEST_SIDE = 32
_PUBLISHED_SIDES = {"NASNetLarge": 331, "NASNetMobile": 224}
"""The published weights of these models only work with images of this size."""


class Application(BuiltinModel):
    """A model of `keras.applications`, the base, with a new classifier."""

    title = "keras.applications, with or without weights"
    is_pretrained = has_code = True

    name: Annotated[
        str, one_of(APPLICATIONS), "The model, such as `EfficientNetB0` or `ResNet50`; pixels are scaled as it expects."
    ] = "EfficientNetB0"
    weights: Annotated[
        str, "`imagenet` downloads the published weights, `none` starts at random, a path reads a file."
    ] = "imagenet"
    trainable: Annotated[
        Literal["none", "all"] | Annotated[int, Field(strict=True)],
        "Part of the base to train from the start: `none`, `all`, or the number of the first layer to train; "
        "negative numbers count from the end.",
    ] = "none"
    dropout: Annotated[DropRate, "Dropout rate before the classifier."] = 0.2

    @classmethod
    def without_weights(cls, config: RunConfig) -> RunConfig:
        """Return a configuration of the same base with random weights."""
        return config.model_copy(update={"model_options": config.model_options | {"weights": "none"}})

    @classmethod
    def frozen_base(cls, config: RunConfig) -> tuple[str, str, dict[str, Any]] | None:
        """Drop the second phase, or freeze the base from the start."""
        if config.fine_tuning.after_epochs:
            fine_tuning = config.fine_tuning.model_copy(update={"after_epochs": 0})
            return "without the second phase", "fine_tuning.after_epochs", {"fine_tuning": fine_tuning}
        if config.model_options.get("trainable", "none") == "none":
            return None
        options = config.model_options | {"trainable": "none"}
        return "with model_options.trainable=none", "model_options.trainable", {"model_options": options}

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Raise `DataError` if the images do not suit it, or its weights cannot be loaded."""
        import keras

        shape = image_shape("application", signature)
        self._check_shape(shape)
        base = self._base((shape[0], shape[1], 3))
        if isinstance(self.trainable, int):
            unfreeze_layers(base, self.trainable, "model_options.trainable")
        else:
            base.trainable = self.trainable == "all"
        inputs = keras.Input(shape)
        pixels = inputs if shape[2] == 3 else keras.layers.Concatenate()([inputs] * 3)
        prepared = preprocessed(pixels, self.name, 255.0 if config.data.pixels == "unit" else 1.0)
        # Batch normalization of pretrained layers keeps its statistics: those of a small dataset would destroy what the
        # layers learnt (Keras transfer learning guide). False stays in the graph, also in a later phase.
        features = base(prepared) if self.trainable == "all" else base(prepared, training=False)
        for layer in head(signature.classes, dropout=self.dropout):
            features = layer(features)
        return keras.Model(inputs, features, name="application")

    def _check_shape(self, shape: tuple[int | None, ...]) -> None:
        height, width, channels = shape
        if height is None or width is None or channels not in {1, 3}:
            raise DataError(
                f"{self.name} needs images of one size with 1 or 3 channels; the examples have shape {shape}."
            )
        least, side = smallest_side(self.name), _PUBLISHED_SIDES.get(self.name)
        if min(height, width) < least:
            what = f"{self.name} needs images of at least {least}×{least} pixels; the examples have {height}×{width}."
            remedy = "Choose a larger data.options.image_size, if the dataset has this option, or another model."
            raise DataError(what, remedy=remedy)
        if self.weights == "imagenet" and side and (height, width) != (side, side):
            raise DataError(
                f"The ImageNet weights of {self.name} need images of {side}×{side} pixels; "
                f"the examples have {height}×{width}.",
                remedy=f"Set data.options.image_size=[{side},{side}], or model_options.weights=none.",
            )

    def _base(self, shape: tuple[int | None, ...]) -> Any:
        import keras

        is_published = self.weights == "imagenet"
        path = "" if is_published or self.weights == "none" else locate(self.weights)
        weights = "imagenet" if is_published else None
        try:
            make = getattr(keras.applications, self.name)
            base = make(weights=weights, include_top=False, input_shape=shape, pooling="avg")
            if path:
                base.load_weights(path)
        except Exception as error:  # Keras and h5py raise many kinds, for a failed download a bare Exception
            remedy = (
                "Set model_options.weights to imagenet, none or a file of this model's weights (include_top=False)."
            )
            if is_published:
                remedy = (
                    "Check the connection (on Kaggle: turn on the notebook's internet), save the file yourself in "
                    f"{keras_home() / 'models'}, delete it there if it is damaged, or set model_options.weights=none."
                )
            what = f"The weights {path or self.weights} of {self.name} without its classifier cannot be loaded."
            raise DataError(what, why=one_line(error, 300), remedy=remedy) from error
        return base


def smallest_side(name: str) -> int:
    """Return the smallest height and width of images that a model accepts."""
    return next((side for start, side in _SMALLEST_SIDES.items() if name.startswith(start)), _SMALLEST_SIDE)


def preprocessing_of(name: str) -> str:
    """Return a model's preprocessing: ``caffe``, ``tf``, ``torch``, or ``none`` if the model does it itself."""
    if re.fullmatch(r"ResNet\d+V2", name):
        return "tf"
    return _PREPROCESSING[max((start for start in _PREPROCESSING if name.startswith(start)), key=len)]


def preprocessed(pixels: Any, name: str, scale: float) -> Any:
    """Preprocess RGB images ``(batch, height, width, 3)`` for a model; `scale` brings their pixels to 0…255."""
    import keras

    factor: float | list[float] = scale
    offset: float | list[float] = 0.0
    match preprocessing_of(name):
        case "none" if scale == 1.0:
            return pixels
        case "tf":
            factor, offset = scale / 127.5, -1.0
        case "torch":
            factor = [scale / 255.0 / deviation for deviation in _DEVIATION_RGB]
            offset = [-mean / deviation for mean, deviation in zip(_MEAN_RGB, _DEVIATION_RGB, strict=True)]
        case "caffe":
            offset, pixels = [-mean for mean in _MEAN_BGR], keras.ops.flip(pixels, axis=-1)
    # Always float32: 16 bits cannot separate neighbouring pixel values.
    return keras.layers.Rescaling(factor, offset, dtype="float32")(pixels)


def unfreeze_layers(base: Any, from_layer: int, key: str) -> None:
    """Make a base's layers trainable from one on, except batch normalization; negative numbers count from the end.

    `key` is the number's configuration key, for the `DataError` if there is no such layer.
    """
    import keras

    count = len(base.layers)
    if not -count <= from_layer < count:
        what = f"{key} is {from_layer}, but {base.name} has {count} layers."
        raise DataError(what, remedy=f"Choose a number from {-count} to {count - 1}.")
    base.trainable = True
    for number, layer in enumerate(base.layers):
        is_normalization = isinstance(layer, keras.layers.BatchNormalization)
        layer.trainable = number >= from_layer % count and not is_normalization
