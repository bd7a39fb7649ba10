"""A model of `keras.applications` with its preprocessing inside and a new classifier.

The model takes pixels scaled by ``data.pixels``. The preprocessing of its family consists of Keras layers in the model,
so a saved model takes the same pixels and loads without this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ..config.values import DropRate, Section, one_of
from .model import BuiltinModel, classifier, image_shape

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


class ApplicationOptions(Section):
    """Options of `application`: a model of `keras.applications` with a new classifier."""

    name: Annotated[
        str,
        one_of(APPLICATIONS),
        "The model, such as `EfficientNetB0` or `ResNet50`; pixels are scaled as it expects them.",
    ] = "EfficientNetB0"
    weights: Annotated[
        str, "`imagenet` downloads the published weights, `none` starts at random, a path reads a file."
    ] = "imagenet"
    trainable: Annotated[
        Literal["none", "all"] | Annotated[int, Field(strict=True)],
        "Part of the base to train from the start: `none`, `all`, or the number of the first layer to train; "
        "negative numbers count from the end.",
    ] = "none"
    pooling: Annotated[Literal["avg", "max"], "Pooling of the last feature map."] = "avg"
    dropout: Annotated[DropRate, "Dropout rate before the classifier."] = 0.2


class Application(BuiltinModel[ApplicationOptions]):
    """A pretrained base and a classifier."""

    name, title = "application", "a model of keras.applications, with or without ImageNet weights"
    Options = ApplicationOptions
    is_pretrained = has_code = True

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Build `application`; raise `DataError` if the images do not suit it, or its weights cannot be loaded."""
        import keras

        from .applications import application_base, check_shape, preprocessed, unfreeze_layers

        options = self.options(config)
        shape = image_shape("application", signature)
        check_shape(options, shape)
        base = application_base(options, (shape[0], shape[1], 3))
        if isinstance(options.trainable, int):
            unfreeze_layers(base, options.trainable, "model_options.trainable")
        else:
            base.trainable = options.trainable == "all"
        inputs = keras.Input(shape)
        pixels = inputs if shape[2] == 3 else keras.layers.Concatenate()([inputs] * 3)
        prepared = preprocessed(pixels, options.name, 255.0 if config.data.pixels == "unit" else 1.0)
        # Batch normalisation of pretrained layers keeps its statistics: those of a small dataset would destroy what the
        # layers learnt (Keras transfer learning guide). False stays in the graph, also in a later phase.
        features = base(prepared) if options.trainable == "all" else base(prepared, training=False)
        if options.dropout:
            features = keras.layers.Dropout(options.dropout)(features)
        return keras.Model(inputs, classifier(signature.classes)(features), name="application")
