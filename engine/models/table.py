"""The one table of the built-in models, and the small ones: images and vectors, texts, ratings, and translation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ..config.values import Count, DropRate, NonNegativeNumber, Section, Switch
from ..data.examples import Signature, Task
from ..errors import DataError, one_line
from .application import Application
from .hub import Hub
from .model import BuiltinModel, classifier, head, image_shape

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
    batch_norm: Annotated[Switch, "Add batch normalization after each convolution."] = False
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
        stack += [layers.Flatten(), *head(signature.classes, options.hidden, options.dropout)]
        return _stacked("cnn", stack, signature, "Use fewer filters, or model_options.padding='same'")


class VggOptions(Section):
    """Options of `vgg`: blocks of two convolutions, a pooling and a dropout, then a dense layer."""

    filters: Annotated[tuple[Count, ...], Field(min_length=1), "Filters of each block."] = (32, 64)
    block_dropout: Annotated[DropRate, "Dropout rate after each block."] = 0.25
    hidden: Annotated[Count, "Units of the dense layer before the classifier."] = 512
    dropout: Annotated[DropRate, "Dropout rate before the classifier."] = 0.5


class Vgg(BuiltinModel[VggOptions]):
    """Blocks of two convolutions."""

    name, title = "vgg", "pairs of convolutions, dropout, a dense layer"
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
        stack += [layers.Flatten(), *head(signature.classes, (options.hidden,), options.dropout)]
        return _stacked("vgg", stack, signature, "Use fewer filters")


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

    name, title = "mlp", "dense layers, flattened input"
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

    name, title = "text", "convolutions over words"
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

    width: Annotated[Count, "Size of the embeddings."] = 32
    hidden: Annotated[
        tuple[Count, ...], "Units of dense layers that each embedding passes before both are multiplied."
    ] = ()
    regularisation: Annotated[NonNegativeNumber, "L2 penalty on the embeddings."] = 1e-6


class Recommender(BuiltinModel[RecommenderOptions]):
    """Embeddings of users and items."""

    name, title = "recommender", "user and item embeddings"
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
            for index, units in enumerate(options.hidden, 1):
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


class TransformerOptions(Section):
    """Options of `transformer`: encoder and decoder for translation (Vaswani et al. 2017)."""

    layers: Annotated[Count, "Layers of the encoder and of the decoder."] = 1
    width: Annotated[Count, "Size of the embeddings."] = 256
    heads: Annotated[Count, "Attention heads; they share `width` equally."] = 8
    hidden: Annotated[Count, "Units of the dense layer in each layer."] = 2048
    dropout: Annotated[DropRate, "Dropout rate after each part of a layer."] = 0.1
    final_dropout: Annotated[DropRate, "Dropout rate before the output layer."] = 0.0


class Transformer(BuiltinModel[TransformerOptions]):
    """An encoder and a decoder."""

    name, title = "transformer", "a Transformer, for translation"
    Options = TransformerOptions
    sizes = ("width", "hidden")

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Build `transformer`: predicts each next word from a source sentence and the target so far.

        Inputs ``source`` and ``target`` are word numbers of shape ``(length,)``, 0 being padding; the output has shape
        ``(length, target vocabulary)``.

        Raises:
            DataError: The examples are not pairs of sentences, or the width is not divisible by the heads.
        """
        import keras

        options = self.options(config)
        if signature.task is not Task.TRANSLATION:
            raise DataError(
                "The model 'transformer' needs pairs of sentences.",
                remedy="Use dataset = 'text-pairs', or another model.",
            )
        if options.width % options.heads:
            raise DataError(
                f"model_options.width={options.width} is not divisible by model_options.heads={options.heads}.",
                remedy=f"Set model_options.width={-(-options.width // options.heads) * options.heads}.",
            )
        source, target = (
            keras.Input(signature.inputs[name].shape, dtype="int32", name=name) for name in signature.inputs
        )
        # Padding in a source sentence is masked; in a target, the causal mask hides it.
        is_word = keras.ops.expand_dims(keras.ops.not_equal(source, 0), 1)
        read = _embedded(source, signature.sizes["source_vocabulary"], options, "source")
        for number in range(options.layers):
            read = _attended(read, read, options, f"encoder_{number}_self", attention_mask=is_word)
            read = _considered(read, options, f"encoder_{number}")
        said = _embedded(target, signature.sizes["target_vocabulary"], options, "target")
        for number in range(options.layers):
            said = _attended(said, said, options, f"decoder_{number}_self", use_causal_mask=True)
            said = _attended(said, read, options, f"decoder_{number}_cross", attention_mask=is_word)
            said = _considered(said, options, f"decoder_{number}")
        said = keras.layers.Dropout(options.final_dropout)(said)
        words = classifier(signature.sizes["target_vocabulary"])(said)
        return keras.Model({"source": source, "target": target}, words, name="transformer")


def _embedded(numbers: Any, vocabulary: int, options: TransformerOptions, name: str) -> Any:
    """Return a vector per word: the sum of a word embedding and a position embedding."""
    import keras

    # Computed from the input: a constant would not be part of the model's graph.
    places = keras.ops.cumsum(keras.ops.ones_like(numbers), axis=-1) - 1
    words = keras.layers.Embedding(vocabulary, options.width, name=f"{name}_words")(numbers)
    places = keras.layers.Embedding(numbers.shape[-1], options.width, name=f"{name}_places")(places)
    return keras.layers.Dropout(options.dropout)(keras.layers.Add()([words, places]))


def _attended(query: Any, value: Any, options: TransformerOptions, name: str, **masks: Any) -> Any:
    import keras

    attention = keras.layers.MultiHeadAttention(options.heads, options.width // options.heads, name=name)
    return _added(query, attention(query, value, **masks), options)


def _considered(values: Any, options: TransformerOptions, name: str) -> Any:
    import keras

    hidden = keras.layers.Dense(options.hidden, activation="relu", name=f"{name}_hidden")(values)
    return _added(values, keras.layers.Dense(options.width, name=f"{name}_out")(hidden), options)


def _added(before: Any, change: Any, options: TransformerOptions) -> Any:
    import keras

    change = keras.layers.Dropout(options.dropout)(change)
    return keras.layers.LayerNormalization()(keras.layers.Add()([before, change]))


MODELS: dict[str, BuiltinModel[Any]] = {
    model.name: model for model in (Cnn(), Vgg(), Mlp(), Application(), Hub(), Transformer(), Text(), Recommender())
}
"""The built-in models, by their names in a configuration."""


def model_sections() -> dict[str, type[Section]]:
    """Return the options of each model."""
    return {name: model.Options for name, model in MODELS.items()}
