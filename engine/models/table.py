"""The one table of the built-in models, and the small ones: images and vectors, texts, ratings, and translation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from ..config.values import Count, DropRate, NonNegativeNumber, Switch
from ..data.examples import Signature, Task
from ..errors import DataError, one_line
from .model import BuiltinModel, classifier, head, image_shape
from .pretrained import Application, Hub

if TYPE_CHECKING:
    from ..config.run_config import RunConfig


class Cnn(BuiltinModel):
    """Convolution blocks."""

    title = "convolution blocks, then a dense classifier"
    sizes = ("filters", "hidden")
    has_code = True

    filters: Annotated[
        tuple[Count, ...], Field(min_length=1), "Filters of each convolution block; each block ends with pooling by 2."
    ] = (32, 64)
    convolutions: Annotated[Count, "Convolutions per block."] = 1
    kernel_size: Annotated[Count, "Side of the square kernel."] = 3
    padding: Annotated[Literal["valid", "same"], "`same` keeps height and width, `valid` drops the border."] = "valid"
    batch_norm: Annotated[Switch, "Add batch normalization after each convolution."] = False
    hidden: Annotated[tuple[Count, ...], "Units of the dense layers before the classifier."] = ()
    dropout: Annotated[DropRate, "Dropout rate before the classifier."] = 0.0

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Raise `DataError` if the examples are not images, or too small for it."""
        from keras import Input, layers

        stack: list[Any] = [Input(image_shape("cnn", signature))]
        for filters in self.filters:
            for index in range(self.convolutions):
                stack.append(layers.Conv2D(filters, self.kernel_size, padding=self.padding))
                if self.batch_norm:
                    stack.append(layers.BatchNormalization())
                if index < self.convolutions - 1:
                    stack.append(layers.ReLU())
            # ReLU after pooling gives the same result on a quarter of the values.
            stack += [layers.MaxPooling2D(2), layers.ReLU()]
        stack += [layers.Flatten(), *head(signature.classes, self.hidden, self.dropout)]
        return _stacked("cnn", stack, signature, "Use fewer filters, or model_options.padding='same'")


class Vgg(BuiltinModel):
    """Blocks of two convolutions, the second without padding, as in Keras's CIFAR-10 example."""

    title = "pairs of convolutions, dropout, a dense layer"
    sizes = ("filters", "hidden")
    has_code = True

    filters: Annotated[tuple[Count, ...], Field(min_length=1), "Filters of each block."] = (32, 64)
    block_dropout: Annotated[DropRate, "Dropout rate after each block."] = 0.25
    hidden: Annotated[Count, "Units of the dense layer before the classifier."] = 512
    dropout: Annotated[DropRate, "Dropout rate before the classifier."] = 0.5

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Raise `DataError` if the examples are not images, or too small for it."""
        from keras import Input, layers

        stack: list[Any] = [Input(image_shape("vgg", signature))]
        for filters in self.filters:
            stack.append(layers.Conv2D(filters, 3, padding="same", activation="relu"))
            stack += [layers.Conv2D(filters, 3, activation="relu"), layers.MaxPooling2D(2)]
            if self.block_dropout:
                stack.append(layers.Dropout(self.block_dropout))
        stack += [layers.Flatten(), *head(signature.classes, (self.hidden,), self.dropout)]
        return _stacked("vgg", stack, signature, "Use fewer filters")


def _stacked(name: str, stack: list[Any], signature: Signature, remedy: str) -> Any:
    """Build a model from blocks of convolutions; raise `DataError` if the images are too small for that many blocks."""
    import keras

    try:
        return keras.Sequential(stack, name=name)
    except ValueError as error:
        what = f"The model '{name}' cannot be built for examples of shape {signature.shape}."
        remedy = f"{remedy}: each block halves height and width."
        raise DataError(what, why=one_line(error, 300), remedy=remedy) from error


class Mlp(BuiltinModel):
    """Dense layers; a number is predicted by one linear unit, on the scale of the labels."""

    title = "dense layers, flattened input"
    sizes = ("hidden",)
    has_code = True

    hidden: Annotated[tuple[Count, ...], Field(min_length=1), "Units of each hidden layer."] = (128,)
    dropout: Annotated[DropRate, "Dropout rate after each hidden layer."] = 0.0

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Build it for examples of any shape."""
        from keras import Input, Sequential, layers

        stack: list[Any] = [Input(signature.shape), layers.Flatten()]
        for units in self.hidden:
            stack.append(layers.Dense(units, activation="relu"))
            if self.dropout:
                stack.append(layers.Dropout(self.dropout))
        if signature.task is not Task.NUMBER:
            return Sequential([*stack, classifier(signature.classes)], name="mlp")
        # Always float32: 16 bits are too coarse for a number. Its hidden layers see labels of any size as about 1.
        stack.append(layers.Dense(1, dtype="float32"))
        scaled = layers.Rescaling(signature.label_deviation, offset=signature.label_mean, dtype="float32")
        return Sequential([*stack, scaled], name="mlp")


class Text(BuiltinModel):
    """Keras's example "Text classification from scratch", with a softmax over any number of classes."""

    title = "convolutions over words"
    sizes = ("width", "filters", "hidden")
    has_code = True

    width: Annotated[Count, "Size of the embeddings."] = 128
    filters: Annotated[tuple[Count, ...], "Filters of each convolution."] = (128, 128)
    kernel_size: Annotated[Count, "Kernel size of the convolutions, in words."] = 7
    stride: Annotated[Count, "Stride of the convolutions, in words."] = 3
    hidden: Annotated[Count, "Units of the dense layer before the classifier."] = 128
    dropout: Annotated[DropRate, "Dropout rate."] = 0.5

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Raise `DataError` if the examples are not texts, or too short for the convolutions."""
        from keras import Input, Sequential, layers

        if "vocabulary" not in signature.sizes:
            raise DataError("The model 'text' needs texts.", remedy="Use dataset = 'text-csv', or another model.")
        length = int(signature.shape[0] or 0)
        least = 1  # words that give the last convolution one output
        for _ in self.filters:
            least = (least - 1) * self.stride + self.kernel_size
        if length < least:
            raise DataError(
                f"Texts of {length} words are too short for {len(self.filters)} convolutions over "
                f"{self.kernel_size} words.",
                remedy=f"Set data.options.length to at least {least}, or use fewer model_options.filters.",
            )
        stack: list[Any] = [Input((length,), dtype="int32", name="text")]
        stack += [layers.Embedding(signature.sizes["vocabulary"], self.width), layers.Dropout(self.dropout)]
        for filters in self.filters:
            stack.append(layers.Conv1D(filters, self.kernel_size, strides=self.stride, activation="relu"))
        stack += [layers.GlobalMaxPooling1D(), layers.Dense(self.hidden, activation="relu")]
        return Sequential([*stack, layers.Dropout(self.dropout), classifier(signature.classes)], name="text")


class Recommender(BuiltinModel):
    """The mean rating, plus biases of user and item, plus the product of their vectors.

    Inputs ``user`` and ``item`` are numbers of shape ``()``; the output has shape ``(1,)``.
    """

    title = "user and item embeddings"
    sizes = ("width", "hidden")

    width: Annotated[Count, "Size of the embeddings."] = 32
    hidden: Annotated[
        tuple[Count, ...], "Units of dense layers that each embedding passes before both are multiplied."
    ] = ()
    regularisation: Annotated[NonNegativeNumber, "L2 penalty on the embeddings."] = 1e-6

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Raise `DataError` if the examples are not ratings."""
        from keras import Input, Model, layers, regularizers

        if signature.task is not Task.RATINGS:
            what = "The model 'recommender' needs users, items and ratings."
            raise DataError(what, remedy="Use dataset = 'ratings-csv', or another model.")

        def embedding(width: int, name: str, initializer: str) -> Any:
            penalty = regularizers.L2(self.regularisation) if self.regularisation else None
            settings = {"embeddings_initializer": initializer, "embeddings_regularizer": penalty, "name": name}
            return layers.Embedding(signature.sizes[f"{name.partition('_')[0]}s"], width, **settings)

        inputs = {name: Input((), dtype="int32", name=name) for name in ("user", "item")}
        vectors, biases = [], []
        for name, numbers in inputs.items():
            vector = embedding(self.width, f"{name}_factors", "he_normal")(numbers)
            for index, units in enumerate(self.hidden, 1):
                activation = "relu" if index < len(self.hidden) else None
                vector = layers.Dense(units, activation=activation, name=f"{name}_dense_{index}")(vector)
            vectors.append(vector)
            biases.append(embedding(1, f"{name}_bias", "zeros")(numbers))
        score = layers.Add()([layers.Dot(axes=1)(vectors), *biases])
        # Always float32: 16 bits resolve ratings only to hundredths.
        rating = layers.Rescaling(1.0, offset=signature.label_mean, dtype="float32", name="rating")(score)
        return Model(inputs, rating, name="recommender")


class Transformer(BuiltinModel):
    """An encoder and a decoder that predict each next word of a translation (Vaswani et al. 2017).

    Inputs ``source`` and ``target``, which is the translation so far, are word numbers of shape ``(length,)``, 0 being
    padding; the output has shape ``(length, target vocabulary)``.
    """

    title = "a Transformer, for translation"
    sizes = ("width", "hidden")

    layers: Annotated[Count, "Layers of the encoder and of the decoder."] = 1
    width: Annotated[Count, "Size of the embeddings."] = 256
    heads: Annotated[Count, "Attention heads; they share `width` equally."] = 8
    hidden: Annotated[Count, "Units of the dense layer in each layer."] = 2048
    dropout: Annotated[DropRate, "Dropout rate after each part of a layer."] = 0.1
    final_dropout: Annotated[DropRate, "Dropout rate before the output layer."] = 0.0

    def build(self, config: RunConfig, signature: Signature, saved_model: Path | None) -> Any:
        """Raise `DataError` if the examples are not pairs of sentences, or the width is not divisible by the heads."""
        from keras import Input, Model, layers, ops

        if signature.task is not Task.TRANSLATION:
            what = "The model 'transformer' needs pairs of sentences."
            raise DataError(what, remedy="Use dataset = 'text-pairs', or another model.")
        if self.width % self.heads:
            what = f"model_options.width={self.width} is not divisible by model_options.heads={self.heads}."
            raise DataError(what, remedy=f"Set model_options.width={-(-self.width // self.heads) * self.heads}.")

        def embedded(numbers: Any, name: str) -> Any:
            """Return a vector per word: the sum of a word embedding and a position embedding."""
            # Computed from the input: a constant would not be part of the model's graph.
            places = ops.cumsum(ops.ones_like(numbers), axis=-1) - 1
            vocabulary = signature.sizes[f"{name}_vocabulary"]
            words = layers.Embedding(vocabulary, self.width, name=f"{name}_words")(numbers)
            places = layers.Embedding(numbers.shape[-1], self.width, name=f"{name}_places")(places)
            return layers.Dropout(self.dropout)(layers.Add()([words, places]))

        def added(before: Any, change: Any) -> Any:
            return layers.LayerNormalization()(layers.Add()([before, layers.Dropout(self.dropout)(change)]))

        def attended(query: Any, value: Any, name: str, **masks: Any) -> Any:
            attention = layers.MultiHeadAttention(self.heads, self.width // self.heads, name=name)
            return added(query, attention(query, value, **masks))

        def considered(values: Any, name: str) -> Any:
            hidden = layers.Dense(self.hidden, activation="relu", name=f"{name}_hidden")(values)
            return added(values, layers.Dense(self.width, name=f"{name}_out")(hidden))

        source, target = (Input(signature.inputs[name].shape, dtype="int32", name=name) for name in signature.inputs)
        # Padding in a source sentence is masked; in a target, the causal mask hides it.
        is_word = ops.expand_dims(ops.not_equal(source, 0), 1)
        read = embedded(source, "source")
        for number in range(self.layers):
            read = attended(read, read, f"encoder_{number}_self", attention_mask=is_word)
            read = considered(read, f"encoder_{number}")
        said = embedded(target, "target")
        for number in range(self.layers):
            said = attended(said, said, f"decoder_{number}_self", use_causal_mask=True)
            said = attended(said, read, f"decoder_{number}_cross", attention_mask=is_word)
            said = considered(said, f"decoder_{number}")
        said = layers.Dropout(self.final_dropout)(said)
        words = classifier(signature.sizes["target_vocabulary"])(said)
        return Model({"source": source, "target": target}, words, name="transformer")


MODELS: dict[str, type[BuiltinModel]] = {
    "cnn": Cnn,
    "vgg": Vgg,
    "mlp": Mlp,
    "application": Application,
    "hub": Hub,
    "transformer": Transformer,
    "text": Text,
    "recommender": Recommender,
}
"""The built-in models, by their names in a configuration."""
