"""A SavedModel of TensorFlow Hub or Kaggle Models as a feature extractor, and a classifier."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ..config.values import Count, DropRate, Section, Switch
from .model import BuiltinModel, classifier, image_shape

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..data.examples import Signature

_SCALES = {"unit": (1.0, 0.0), "signed": (2.0, -1.0), "raw": (255.0, 0.0)}


class HubOptions(Section):
    """Options of `hub`: a SavedModel of TensorFlow Hub or Kaggle Models that turns images into features."""

    path: Annotated[str, Field(min_length=1), "A folder, a `gs://` path, or the URL of the model."]
    trainable: Annotated[Switch, "Also train its weights, if the model allows it."] = False
    signature: Annotated[str, "The signature to call; by default the model itself, or its default."] = ""
    image_scale: Annotated[
        Literal["unit", "signed", "raw"],
        "Pixel range that the model expects: `unit` is 0 to 1, `signed` -1 to 1, `raw` 0 to 255.",
    ] = "unit"
    hidden: Annotated[tuple[Count, ...], "Units of the dense layers before the classifier."] = ()
    dropout: Annotated[DropRate, "Dropout rate before the classifier."] = 0.0


class Hub(BuiltinModel[HubOptions]):
    """The features of a SavedModel and a classifier."""

    name, title = "hub", "a SavedModel of TensorFlow Hub or Kaggle Models as a feature extractor"
    Options = HubOptions
    sizes = ("hidden",)
    is_pretrained = True
    only_backend = ("tensorflow", "a SavedModel of TensorFlow Hub is a TensorFlow program")

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Build `hub`, with a copy of the SavedModel in a folder, which the model needs; None for a temporary one.

        Raises:
            DataError: There is no such SavedModel, or it cannot turn these images into features.
            ConsoleError: The copy cannot be written.
        """
        import keras

        from .saved_model import feature_layer

        options = self.options(config)
        shape = image_shape("hub", signature)
        inputs = keras.Input(shape)
        scale, offset = _SCALES[options.image_scale]
        scale /= 1.0 if config.data.pixels == "unit" else 255.0
        pixels = keras.layers.Rescaling(scale, offset, dtype="float32")(inputs)
        features = feature_layer(options, shape, saved_model or Path(tempfile.mkdtemp(prefix="hub-")))(pixels)
        if len(features.shape) == 4:
            features = keras.layers.GlobalAveragePooling2D()(features)
        for units in options.hidden:
            features = keras.layers.Dense(units, activation="relu")(features)
        if options.dropout:
            features = keras.layers.Dropout(options.dropout)(features)
        return keras.Model(inputs, classifier(signature.classes)(features), name="hub")
