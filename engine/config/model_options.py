"""The options of each built-in model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .catalog import APPLICATIONS
from .values import Count, DropRate, NonNegativeNumber, Section, Switch, one_of


class CnnOptions(Section):
    """Options of the built-in `cnn`.

    Args:
        filters: Filters of each convolution block; each block ends with pooling by 2.
        convolutions: Convolutions per block.
        kernel_size: Side of the square kernel.
        padding: ``same`` keeps height and width, ``valid`` drops the border.
        batch_norm: Add batch normalisation after each convolution.
        hidden: Units of the dense layers before the classifier.
        dropout: Dropout rate before the classifier.
    """

    filters: Annotated[tuple[Count, ...], Field(min_length=1)] = (32, 64)
    convolutions: Count = 1
    kernel_size: Count = 3
    padding: Literal["valid", "same"] = "valid"
    batch_norm: Switch = False
    hidden: tuple[Count, ...] = ()
    dropout: DropRate = 0.0


class MlpOptions(Section):
    """Options of the built-in `mlp`.

    Args:
        hidden: Units of each hidden layer.
        dropout: Dropout rate after each hidden layer.
    """

    hidden: Annotated[tuple[Count, ...], Field(min_length=1)] = (128,)
    dropout: DropRate = 0.0


class VggOptions(Section):
    """Options of `vgg`: blocks of two convolutions, a pooling and a dropout, then a dense layer.

    Args:
        filters: Filters of each block.
        block_dropout: Dropout rate after each block.
        hidden: Units of the dense layer before the classifier.
        dropout: Dropout rate before the classifier.
    """

    filters: Annotated[tuple[Count, ...], Field(min_length=1)] = (32, 64)
    block_dropout: DropRate = 0.25
    hidden: Count = 512
    dropout: DropRate = 0.5


class ApplicationOptions(Section):
    """Options of `application`: a model of `keras.applications` with a new classifier.

    Args:
        name: The model, such as ``EfficientNetB0`` or ``ResNet50``; pixels are scaled as it expects them.
        weights: ``imagenet`` downloads the published weights, ``none`` starts at random, a path reads a file.
        trainable: Part of the base to train from the start: ``none``, ``all``, or the number of the first layer to
            train; negative numbers count from the end.
        pooling: Pooling of the last feature map.
        dropout: Dropout rate before the classifier.
    """

    name: Annotated[str, one_of(APPLICATIONS)] = "EfficientNetB0"
    weights: str = "imagenet"
    trainable: Literal["none", "all"] | Annotated[int, Field(strict=True)] = "none"
    pooling: Literal["avg", "max"] = "avg"
    dropout: DropRate = 0.2


class HubOptions(Section):
    """Options of `hub`: a SavedModel of TensorFlow Hub or Kaggle Models that turns images into features.

    Args:
        path: A folder, a ``gs://`` path, or the URL of the model.
        trainable: Also train its weights, if the model allows it.
        signature: The signature to call; by default the model itself, or its default.
        image_scale: Pixel range that the model expects: ``unit`` is 0 to 1, ``signed`` -1 to 1, ``raw`` 0 to 255.
        hidden: Units of the dense layers before the classifier.
        dropout: Dropout rate before the classifier.
    """

    path: Annotated[str, Field(min_length=1)]
    trainable: Switch = False
    signature: str = ""
    image_scale: Literal["unit", "signed", "raw"] = "unit"
    hidden: tuple[Count, ...] = ()
    dropout: DropRate = 0.0


class TransformerOptions(Section):
    """Options of `transformer`: encoder and decoder for translation (Vaswani et al. 2017).

    Args:
        layers: Layers of the encoder and of the decoder.
        width: Size of the embeddings.
        heads: Attention heads; they share `width` equally.
        hidden: Units of the dense layer in each layer.
        dropout: Dropout rate after each part of a layer.
        final_dropout: Dropout rate before the output layer.
    """

    layers: Count = 1
    width: Count = 256
    heads: Count = 8
    hidden: Count = 2048
    dropout: DropRate = 0.1
    final_dropout: DropRate = 0.0


class TextOptions(Section):
    """Options of `text`: word embeddings, convolutions, a dense classifier.

    Args:
        width: Size of the embeddings.
        filters: Filters of each convolution.
        kernel_size: Kernel size of the convolutions, in words.
        stride: Stride of the convolutions, in words.
        hidden: Units of the dense layer before the classifier.
        dropout: Dropout rate.
    """

    width: Count = 128
    filters: tuple[Count, ...] = (128, 128)
    kernel_size: Count = 7
    stride: Count = 3
    hidden: Count = 128
    dropout: DropRate = 0.5


class RecommenderOptions(Section):
    """Options of `recommender`: embeddings of users and items.

    Args:
        kind: ``factors`` multiplies two embeddings and adds biases, ``towers`` first applies dense layers to each.
        width: Size of the embeddings.
        hidden: Units of the dense layers of each tower; unused by ``factors``.
        regularisation: L2 penalty on the embeddings.
    """

    kind: Literal["factors", "towers"] = "factors"
    width: Count = 32
    hidden: Annotated[tuple[Count, ...], Field(min_length=1)] = (64, 32)
    regularisation: NonNegativeNumber = 1e-6


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
