"""The options of each built-in model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .catalog import APPLICATIONS
from .values import Count, DropRate, NonNegativeNumber, Section, Switch, one_of


class CnnOptions(Section):
    """Options of the built-in `cnn`.

    Args:
        filters: Filters of each convolution block; each block ends in a pooling of 2.
        convolutions: Convolutions in each block.
        kernel_size: Side of the square kernel.
        padding: ``same`` keeps height and width, ``valid`` loses the border.
        batch_norm: Normalise after each convolution.
        hidden: Units of the dense layers before the classifier.
        dropout: Dropped share before the classifier.
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
        dropout: Dropped share after each hidden layer.
    """

    hidden: Annotated[tuple[Count, ...], Field(min_length=1)] = (128,)
    dropout: DropRate = 0.0


class VggOptions(Section):
    """Options of `vgg`: blocks of two convolutions, a pooling and a dropout, then a dense layer.

    Args:
        filters: Filters of each block.
        block_dropout: Dropped share after each block.
        hidden: Units of the dense layer before the classifier.
        dropout: Dropped share before the classifier.
    """

    filters: Annotated[tuple[Count, ...], Field(min_length=1)] = (32, 64)
    block_dropout: DropRate = 0.25
    hidden: Count = 512
    dropout: DropRate = 0.5


class ApplicationOptions(Section):
    """Options of `application`: a model of `keras.applications` with a classifier of its own.

    Args:
        name: The model, such as ``EfficientNetB0`` or ``ResNet50``; it gets its pixels as it was trained on them.
        weights: ``imagenet`` fetches the published weights, ``none`` begins at random, a path reads a file.
        trainable: Which part of the base is trained from the start: ``none``, ``all``, or ``from`` a layer on.
        from_layer: With ``from``, the number of the first layer that is trained; negative ones count from the end.
        pooling: What turns the last feature map into a vector.
        dropout: Dropped share before the classifier.
    """

    name: Annotated[str, one_of(APPLICATIONS)] = "EfficientNetB0"
    weights: str = "imagenet"
    trainable: Literal["none", "all", "from"] = "none"
    from_layer: Annotated[int, Field(strict=True)] = 0
    pooling: Literal["avg", "max"] = "avg"
    dropout: DropRate = 0.2


class HubOptions(Section):
    """Options of `hub`: a SavedModel of TensorFlow Hub or Kaggle Models that turns images into features.

    Args:
        path: A folder, a ``gs://`` path, or the address of the model.
        trainable: Train its weights as well, where it allows that.
        signature: Which of its functions to call; by default the model itself, else its usual or only signature.
        image_scale: What its publisher wants of pixels: ``unit`` is 0 to 1, ``signed`` -1 to 1, ``raw`` 0 to 255.
        hidden: Units of the dense layers before the classifier.
        dropout: Dropped share before the classifier.
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
        layers: Layers of the encoder, and as many of the decoder.
        width: Size of the embeddings.
        heads: Attention heads; each gets an equal share of `width`.
        hidden: Units of the dense layer inside each layer.
        dropout: Dropped share, after each part of a layer.
        final_dropout: Dropped share before the last layer, which chooses the word.
    """

    layers: Count = 1
    width: Count = 256
    heads: Count = 8
    hidden: Count = 2048
    dropout: DropRate = 0.1
    final_dropout: DropRate = 0.0


class TextOptions(Section):
    """Options of `text`: embedded words, convolutions over them, a dense classifier.

    Args:
        width: Size of the embeddings.
        filters: Filters of each convolution.
        kernel_size: Words that a convolution looks at.
        stride: Words that a convolution moves on by.
        hidden: Units of the dense layer before the classifier.
        dropout: Dropped share.
    """

    width: Count = 128
    filters: tuple[Count, ...] = (128, 128)
    kernel_size: Count = 7
    stride: Count = 3
    hidden: Count = 128
    dropout: DropRate = 0.5


class RecommenderOptions(Section):
    """Options of `recommender`: what users and items have in common.

    Args:
        kind: ``factors`` multiplies two embeddings and adds biases, ``towers`` puts dense layers over each first.
        width: Size of the embeddings.
        hidden: Units of the dense layers of each tower; ``factors`` has none.
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
