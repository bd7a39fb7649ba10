"""Builds an encoder and decoder for translation (Vaswani et al. 2017) from Keras layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from ..config.values import Count, DropRate, Section
from ..data.examples import Signature, Task
from ..errors import DataError
from .model import BuiltinModel, classifier

if TYPE_CHECKING:
    from pathlib import Path

    from ..config.run_config import RunConfig


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

    name, title = "transformer", "encoder and decoder for translation"
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
