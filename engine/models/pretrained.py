"""Models on a pretrained base, with a new classifier: of `keras.applications`, or a SavedModel.

An `Application` takes pixels scaled by ``data.pixels``. The preprocessing of its family consists of Keras layers in the
model, so a saved model takes the same pixels and loads without this package.

Keras 3 rejects `hub.KerasLayer`. So `Hub` saves the function of the SavedModel again in the run's folder, with known
endpoint names, and `keras.layers.TFSMLayer` makes a layer from that copy and its variables. The run's ``model.keras``
needs neither this package nor the original, only the copy beside it, which it finds by its full path. Load it with
``keras.models.load_model("model.keras", safe_mode=False, compile=False)``: a SavedModel can contain any operation,
hence `safe_mode`; and if its variables were trained, compiling fails on their names.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from packaging.version import Version
from pydantic import Field

from ..config.values import Count, DropRate, Switch, one_of
from ..data.places import is_remote, locate
from ..errors import ConsoleError, DataError, one_line
from ..storage.files import disk_full, is_disk_full, sync
from ..storage.paths import keras_home
from .model import BuiltinModel, head, image_shape

if TYPE_CHECKING:
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
        # layers learned (Keras transfer learning guide). False stays in the graph, also in a later phase.
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
    # Always float32: 16 bits cannot separate neighboring pixel values.
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


# If no name is configured, the first of these that exists.
_USUAL_SIGNATURES = ("serving_default", "serve", "default")
_USUAL_OUTPUTS = ("default", "feature_vector", "output_0", "pooled_output")
_SCALES = {"unit": (1.0, 0.0), "signed": (2.0, -1.0), "raw": (255.0, 0.0)}


class Hub(BuiltinModel):
    """The features that a SavedModel of TensorFlow Hub or Kaggle Models makes of images, and a classifier."""

    title = "features of a SavedModel, TensorFlow Hub or Kaggle"
    sizes = ("hidden",)
    is_pretrained = True
    only_backend = ("tensorflow", "a SavedModel of TensorFlow Hub is a TensorFlow program")

    path: Annotated[str, Field(min_length=1), "A folder, a `gs://` path, or the URL of the model."]
    trainable: Annotated[Switch, "Also train its weights, if the model allows it."] = False
    signature: Annotated[str, "The signature to call; by default the model itself, or its default."] = ""
    image_scale: Annotated[
        Literal["unit", "signed", "raw"],
        "Pixel range that the model expects: `unit` is 0 to 1, `signed` -1 to 1, `raw` 0 to 255.",
    ] = "unit"
    hidden: Annotated[tuple[Count, ...], "Units of the dense layers before the classifier."] = ()
    dropout: Annotated[DropRate, "Dropout rate before the classifier."] = 0.0

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Raise `DataError` if the SavedModel is missing or does not fit, or `ConsoleError` if it cannot be copied."""
        import keras

        shape = image_shape("hub", signature)
        inputs = keras.Input(shape)
        scale, offset = _SCALES[self.image_scale]
        scale /= 1.0 if config.data.pixels == "unit" else 255.0
        pixels = keras.layers.Rescaling(scale, offset, dtype="float32")(inputs)
        features = self._feature_layer(shape, saved_model or Path(tempfile.mkdtemp(prefix="hub-")))(pixels)
        if len(features.shape) == 4:
            features = keras.layers.GlobalAveragePooling2D()(features)
        for layer in head(signature.classes, self.hidden, self.dropout):
            features = layer(features)
        return keras.Model(inputs, features, name="hub")

    def _feature_layer(self, shape: tuple[int | None, ...], folder: Path) -> Any:
        """Return a layer that turns images into features, with a copy of the SavedModel in a folder, which it needs."""
        import keras
        import tensorflow as tf

        from ..compat.keras import rename_weight

        images = tf.TensorSpec((None, *shape), tf.float32, name="images")
        copy = tf.Module()
        copy.source = load_saved_model(self.path)  # it holds the variables
        call = self._function(copy.source)
        copy.serve = self._endpoint(call, images, training=False)
        if self.trainable:
            copy.train = self._endpoint(call, images, training=True)
        try:
            tf.saved_model.save(copy, str(folder))
            for path in (folder, *folder.rglob("*")):  # the model that the run saves later does not load without them
                with suppress(OSError):  # some network file systems cannot sync a folder
                    sync(path)
        except (OSError, tf.errors.OpError) as error:
            if is_disk_full(error):
                raise disk_full(folder, "a copy of the SavedModel") from error
            raise ConsoleError(f"The SavedModel cannot be copied to {folder}.", why=one_line(error)) from error
        layer = keras.layers.TFSMLayer(
            str(folder),
            call_endpoint="serve",
            call_training_endpoint="train" if self.trainable else None,
            trainable=self.trainable,
            name="features",
            dtype="float32",
        )
        for weight in (weight for weight in layer.weights if isinstance(weight, keras.Variable)):
            # Optimizers name their own variables after it, and TensorFlow takes no colon in a name.
            rename_weight(weight, weight.path.replace(":", "_"))
        if self.trainable and not layer.trainable_weights:
            what = f"{self.path} has no weights that can be trained."
            raise DataError(what, remedy="Set model_options.trainable=false.")
        return layer

    def _function(self, source: Any) -> Callable[..., Any]:
        """Return the function to call: the SavedModel itself, or one of its signatures that takes one tensor."""
        if callable(source) and not self.signature:
            return lambda images, **settings: _single_output(source(images, **settings), self.path)
        signatures = dict(getattr(source, "signatures", None) or {})
        usual = [name for name in _USUAL_SIGNATURES if name in signatures] or [*signatures][: len(signatures) == 1]
        name = self.signature or next(iter(usual), "")
        function = signatures.get(name)
        inputs = list(function.structured_input_signature[1]) if function is not None else []
        if function is None or len(inputs) != 1:
            quoted = f" '{name}'" if name else " with a usual name"
            raise DataError(
                f"The SavedModel {self.path} has no signature{quoted} that takes one batch of images; "
                f"its signatures: {', '.join(sorted(signatures)) or 'none'}.",
                remedy="Set model_options.signature to one that does, or export it with Keras: model.export('folder').",
            )
        return lambda images: _single_output(function(**{inputs[0]: images}), self.path)

    def _endpoint(self, call: Callable[..., Any], images: Any, *, training: bool) -> Any:
        """Trace the function for images of this size, with `training` if it takes that."""
        import tensorflow as tf

        problem: Exception | None = None
        for settings in ({"training": training}, {}):
            traced = lambda x, settings=settings: call(x, **settings)  # noqa: E731  TensorFlow looks at its signature
            endpoint = tf.function(traced, input_signature=[images], autograph=False)
            try:
                features = endpoint.get_concrete_function().structured_outputs
            except DataError:
                raise
            except Exception as error:  # noqa: BLE001  the function can raise anything
                problem = error
                continue
            if features.shape.rank in {2, 4} and features.shape[-1] is not None:
                return endpoint
            problem = ValueError(f"It returns shape {features.shape} instead of one row of features per image.")
            break
        size = "×".join(str(side) for side in images.shape[1:])
        what = f"The SavedModel {self.path} cannot extract features from images of {size}."
        remedy = "Set data.options.image_size to the size that its documentation gives."
        raise DataError(what, why=one_line(problem) if problem else "", remedy=remedy) from problem


def load_saved_model(path: str) -> Any:
    """Load a SavedModel from a folder, ``gs://`` or a URL; raise `DataError` if there is none, or it cannot be read."""
    import tensorflow as tf

    tensorflow_hub = _import_hub()
    place = locate(path)
    options = None
    if isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy):
        # A TPU on another machine cannot read files on this one: this machine reads them instead.
        os.environ.setdefault("TFHUB_MODEL_LOAD_FORMAT", "UNCOMPRESSED")
        options = tf.saved_model.LoadOptions(experimental_io_device="/job:localhost")
    try:
        return tensorflow_hub.load(place, options=options)
    except Exception as error:  # whatever its resolvers and TensorFlow's file systems raise
        remedy = "Set model_options.path to the folder that holds saved_model.pb and variables/."
        if is_remote(path):
            remedy = (
                "Check the address and the connection (on Kaggle: turn on the notebook's internet), or download and "
                "unpack it yourself and set model_options.path to its folder."
            )
        raise DataError(f"{place} cannot be read as a SavedModel.", why=one_line(error), remedy=remedy) from error


def _import_hub() -> Any:
    """Import TensorFlow Hub; up to 0.16.1, it takes a function from pkg_resources, which setuptools 82 removed."""
    stand_in = ModuleType("pkg_resources")
    vars(stand_in)["parse_version"] = Version
    is_missing = find_spec("pkg_resources") is None
    if is_missing:
        sys.modules["pkg_resources"] = stand_in
    try:
        import tensorflow_hub
    finally:
        if is_missing:
            del sys.modules["pkg_resources"]
    return tensorflow_hub


def _single_output(outputs: Any, path: str) -> Any:
    import tensorflow as tf

    if isinstance(outputs, dict):
        name = next((name for name in _USUAL_OUTPUTS if name in outputs), next(iter(outputs)))
        if len(outputs) > 1 and name not in _USUAL_OUTPUTS:
            raise DataError(
                f"The SavedModel {path} returns several outputs, none with a usual name: {', '.join(sorted(outputs))}.",
                remedy="Set model_options.signature to one that returns only the features.",
            )
        outputs = outputs[name]
    if isinstance(outputs, (list, tuple)):
        outputs = outputs[0]
    return tf.cast(outputs, tf.float32)
