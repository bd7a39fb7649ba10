"""The options of each built-in model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .catalog import APPLICATIONS
from .values import Count, DropRate, NonNegativeNumber, Section, Switch, one_of


class CnnOptions(Section):
    """Options of the built-in `cnn`."""

    filters: Annotated[
        tuple[Count, ...], Field(min_length=1), "Filters of each convolution block; each block ends with pooling by 2."
    ] = (32, 64)
    convolutions: Annotated[Count, "Convolutions per block."] = 1
    kernel_size: Annotated[Count, "Side of the square kernel."] = 3
    padding: Annotated[Literal["valid", "same"], "`same` keeps height and width, `valid` drops the border."] = "valid"
    batch_norm: Annotated[Switch, "Add batch normalisation after each convolution."] = False
    hidden: Annotated[tuple[Count, ...], "Units of the dense layers before the classifier."] = ()
    dropout: Annotated[DropRate, "Dropout rate before the classifier."] = 0.0


class MlpOptions(Section):
    """Options of the built-in `mlp`."""

    hidden: Annotated[tuple[Count, ...], Field(min_length=1), "Units of each hidden layer."] = (128,)
    dropout: Annotated[DropRate, "Dropout rate after each hidden layer."] = 0.0


class VggOptions(Section):
    """Options of `vgg`: blocks of two convolutions, a pooling and a dropout, then a dense layer."""

    filters: Annotated[tuple[Count, ...], Field(min_length=1), "Filters of each block."] = (32, 64)
    block_dropout: Annotated[DropRate, "Dropout rate after each block."] = 0.25
    hidden: Annotated[Count, "Units of the dense layer before the classifier."] = 512
    dropout: Annotated[DropRate, "Dropout rate before the classifier."] = 0.5


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


class TransformerOptions(Section):
    """Options of `transformer`: encoder and decoder for translation (Vaswani et al. 2017)."""

    layers: Annotated[Count, "Layers of the encoder and of the decoder."] = 1
    width: Annotated[Count, "Size of the embeddings."] = 256
    heads: Annotated[Count, "Attention heads; they share `width` equally."] = 8
    hidden: Annotated[Count, "Units of the dense layer in each layer."] = 2048
    dropout: Annotated[DropRate, "Dropout rate after each part of a layer."] = 0.1
    final_dropout: Annotated[DropRate, "Dropout rate before the output layer."] = 0.0


class TextOptions(Section):
    """Options of `text`: word embeddings, convolutions, a dense classifier."""

    width: Annotated[Count, "Size of the embeddings."] = 128
    filters: Annotated[tuple[Count, ...], "Filters of each convolution."] = (128, 128)
    kernel_size: Annotated[Count, "Kernel size of the convolutions, in words."] = 7
    stride: Annotated[Count, "Stride of the convolutions, in words."] = 3
    hidden: Annotated[Count, "Units of the dense layer before the classifier."] = 128
    dropout: Annotated[DropRate, "Dropout rate."] = 0.5


class RecommenderOptions(Section):
    """Options of `recommender`: embeddings of users and items."""

    kind: Annotated[
        Literal["factors", "towers"],
        "`factors` multiplies two embeddings and adds biases, `towers` first applies dense layers to each.",
    ] = "factors"
    width: Annotated[Count, "Size of the embeddings."] = 32
    hidden: Annotated[
        tuple[Count, ...], Field(min_length=1), "Units of the dense layers of each tower; unused by `factors`."
    ] = (64, 32)
    regularisation: Annotated[NonNegativeNumber, "L2 penalty on the embeddings."] = 1e-6


MODEL_OPTIONS: dict[str, type[Section]] = {
    "cnn": CnnOptions,
    "vgg": VggOptions,
    "mlp": MlpOptions,
    "application": ApplicationOptions,
    "hub": HubOptions,
    "transformer": TransformerOptions,
    "text": TextOptions,
    "recommender": RecommenderOptions,
}
