"""Small models: for images and vectors, texts in classes, and ratings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ..config.values import Count, DropRate, NonNegativeNumber, Section, Switch
from ..data.examples import Task
from ..errors import DataError, one_line
from .model import BuiltinModel, classifier, image_shape

if TYPE_CHECKING:
    from pathlib import Path

    from ..config.run_config import RunConfig
    from ..data.examples import Signature


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


class Cnn(BuiltinModel[CnnOptions]):
    """Convolution blocks."""

    name, title = "cnn", "convolution blocks, then a dense classifier"
    Options = CnnOptions
    sizes = ("filters", "hidden")
    has_code = True

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Build `cnn`; raise `DataError` if the examples are not images, or too small for it."""
        import keras

        options, layers = self.options(config), keras.layers
        stack: list[Any] = [keras.Input(image_shape("cnn", signature))]
        for filters in options.filters:
            for index in range(options.convolutions):
                stack.append(layers.Conv2D(filters, options.kernel_size, padding=options.padding))
                if options.batch_norm:
                    stack.append(layers.BatchNormalization())
                if index < options.convolutions - 1:
                    stack.append(layers.ReLU())
            # ReLU after pooling gives the same result on a quarter of the values.
            stack += [layers.MaxPooling2D(2), layers.ReLU()]
        stack.append(layers.Flatten())
        stack += [layers.Dense(units, activation="relu") for units in options.hidden]
        if options.dropout:
            stack.append(layers.Dropout(options.dropout))
        remedy = "Use fewer filters, or model_options.padding='same'"
        return _stacked("cnn", [*stack, classifier(signature.classes)], signature, remedy)


class VggOptions(Section):
    """Options of `vgg`: blocks of two convolutions, a pooling and a dropout, then a dense layer."""

    filters: Annotated[tuple[Count, ...], Field(min_length=1), "Filters of each block."] = (32, 64)
    block_dropout: Annotated[DropRate, "Dropout rate after each block."] = 0.25
    hidden: Annotated[Count, "Units of the dense layer before the classifier."] = 512
    dropout: Annotated[DropRate, "Dropout rate before the classifier."] = 0.5


class Vgg(BuiltinModel[VggOptions]):
    """Blocks of two convolutions."""

    name, title = "vgg", "pairs of convolutions with dropout, then a dense layer"
    Options = VggOptions
    sizes = ("filters", "hidden")
    has_code = True

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Build `vgg`: blocks of two convolutions, the second without padding, as in Keras's CIFAR-10 example."""
        import keras

        options, layers = self.options(config), keras.layers
        stack: list[Any] = [keras.Input(image_shape("vgg", signature))]
        for filters in options.filters:
            stack += [
                layers.Conv2D(filters, 3, padding="same", activation="relu"),
                layers.Conv2D(filters, 3, activation="relu"),
                layers.MaxPooling2D(2),
            ]
            if options.block_dropout:
                stack.append(layers.Dropout(options.block_dropout))
        stack += [layers.Flatten(), layers.Dense(options.hidden, activation="relu")]
        if options.dropout:
            stack.append(layers.Dropout(options.dropout))
        return _stacked("vgg", [*stack, classifier(signature.classes)], signature, "Use fewer filters")


def _stacked(name: str, stack: list[Any], signature: Signature, remedy: str) -> Any:
    """Build a model from blocks of convolutions; raise `DataError` if the images are too small for that many blocks."""
    import keras

    try:
        return keras.Sequential(stack, name=name)
    except ValueError as error:
        raise DataError(
            f"The model '{name}' cannot be built for examples of shape {signature.shape}.",
            why=one_line(error, 300),
            remedy=f"{remedy}: each block halves height and width.",
        ) from error


class MlpOptions(Section):
    """Options of the built-in `mlp`."""

    hidden: Annotated[tuple[Count, ...], Field(min_length=1), "Units of each hidden layer."] = (128,)
    dropout: Annotated[DropRate, "Dropout rate after each hidden layer."] = 0.0


class Mlp(BuiltinModel[MlpOptions]):
    """Dense layers."""

    name, title = "mlp", "dense layers on the flattened input"
    Options = MlpOptions
    sizes = ("hidden",)
    has_code = True

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Build `mlp`; a number is predicted by one linear unit, on the scale of the labels."""
        import keras

        options, layers = self.options(config), keras.layers
        stack: list[Any] = [keras.Input(signature.shape), layers.Flatten()]
        for units in options.hidden:
            stack.append(layers.Dense(units, activation="relu"))
            if options.dropout:
                stack.append(layers.Dropout(options.dropout))
        if signature.task is not Task.NUMBER:
            return keras.Sequential([*stack, classifier(signature.classes)], name="mlp")
        # Always float32: 16 bits are too coarse for a number. Its hidden layers see labels of any size as about 1.
        stack.append(layers.Dense(1, dtype="float32"))
        scaled = layers.Rescaling(signature.label_deviation, offset=signature.label_mean, dtype="float32")
        return keras.Sequential([*stack, scaled], name="mlp")


class TextOptions(Section):
    """Options of `text`: word embeddings, convolutions, a dense classifier."""

    width: Annotated[Count, "Size of the embeddings."] = 128
    filters: Annotated[tuple[Count, ...], "Filters of each convolution."] = (128, 128)
    kernel_size: Annotated[Count, "Kernel size of the convolutions, in words."] = 7
    stride: Annotated[Count, "Stride of the convolutions, in words."] = 3
    hidden: Annotated[Count, "Units of the dense layer before the classifier."] = 128
    dropout: Annotated[DropRate, "Dropout rate."] = 0.5


class Text(BuiltinModel[TextOptions]):
    """Convolutions over words."""

    name, title = "text", "convolutions over word embeddings"
    Options = TextOptions
    sizes = ("width", "filters", "hidden")
    has_code = True

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Build `text`: Keras's example "Text classification from scratch", with a softmax over any number of classes.

        Raises:
            DataError: The examples are not texts, or too short for the convolutions.
        """
        import keras

        options, layers = self.options(config), keras.layers
        if "vocabulary" not in signature.sizes:
            raise DataError("The model 'text' needs texts.", remedy="Use dataset = 'text-csv', or another model.")
        length = int(signature.shape[0] or 0)
        least = 1  # words that give the last convolution one output
        for _ in options.filters:
            least = (least - 1) * options.stride + options.kernel_size
        if length < least:
            raise DataError(
                f"Texts of {length} words are too short for {len(options.filters)} convolutions over "
                f"{options.kernel_size} words.",
                remedy=f"Set data.options.length to at least {least}, or use fewer model_options.filters.",
            )
        stack: list[Any] = [keras.Input((length,), dtype="int32", name="text")]
        stack += [layers.Embedding(signature.sizes["vocabulary"], options.width), layers.Dropout(options.dropout)]
        for filters in options.filters:
            stack.append(layers.Conv1D(filters, options.kernel_size, strides=options.stride, activation="relu"))
        stack += [layers.GlobalMaxPooling1D(), layers.Dense(options.hidden, activation="relu")]
        return keras.Sequential([*stack, layers.Dropout(options.dropout), classifier(signature.classes)], name="text")


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


class Recommender(BuiltinModel[RecommenderOptions]):
    """Embeddings of users and items."""

    name, title = "recommender", "embeddings of users and items"
    Options = RecommenderOptions
    sizes = ("width", "hidden")

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Build `recommender`: the mean rating, plus biases of user and item, plus the product of their vectors.

        Inputs ``user`` and ``item`` are numbers of shape ``()``; the output has shape ``(1,)``.

        Raises:
            DataError: The examples are not ratings.
        """
        import keras

        options = self.options(config)
        if signature.task is not Task.RATINGS:
            raise DataError(
                "The model 'recommender' needs users, items and ratings.",
                remedy="Use dataset = 'ratings-csv', or another model.",
            )
        inputs = {name: keras.Input((), dtype="int32", name=name) for name in ("user", "item")}
        vectors, biases = [], []
        for name, numbers in inputs.items():
            count = signature.sizes[f"{name}s"]
            vector = _embedding(count, options.width, options, f"{name}_factors", "he_normal")(numbers)
            for index, units in enumerate(options.hidden if options.kind == "towers" else (), 1):
                activation = "relu" if index < len(options.hidden) else None
                vector = keras.layers.Dense(units, activation=activation, name=f"{name}_dense_{index}")(vector)
            vectors.append(vector)
            biases.append(_embedding(count, 1, options, f"{name}_bias", "zeros")(numbers))
        suits = keras.layers.Dot(axes=1)(vectors)
        score = keras.layers.Add()([suits, *biases])
        # Always float32: 16 bits resolve ratings only to hundredths.
        rating = keras.layers.Rescaling(1.0, offset=signature.label_mean, dtype="float32", name="rating")(score)
        return keras.Model(inputs, rating, name="recommender")


def _embedding(count: int, width: int, options: RecommenderOptions, name: str, initializer: str) -> Any:
    import keras

    penalty = keras.regularizers.L2(options.regularisation) if options.regularisation else None
    return keras.layers.Embedding(
        count, width, embeddings_initializer=initializer, embeddings_regularizer=penalty, name=name
    )
