"""Builds an encoder and decoder for translation (Vaswani et al. 2017) from Keras layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

from ..config.model_options import TransformerOptions
from ..data.examples import Task
from ..errors import DataError
from .basic import classifier

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..data.examples import Signature


def transformer(config: RunConfig, signature: Signature) -> Any:
    """Build `transformer`: predicts each next word from a source sentence and the target so far.

    Inputs ``source`` and ``target`` are word numbers of shape ``(length,)``, 0 being padding; the output has shape
    ``(length, target vocabulary)``.

    Raises:
        DataError: The examples are not pairs of sentences, or the width is not divisible by the heads.
    """
    options = TransformerOptions.model_validate(config.model_options)
    if signature.task is not Task.TRANSLATION:
        raise DataError(
            "The model 'transformer' needs pairs of sentences.", remedy="Use dataset = 'text-pairs', or another model."
        )
    if options.width % options.heads:
        raise DataError(
            f"model_options.width={options.width} is not divisible by model_options.heads={options.heads}.",
            remedy=f"Set model_options.width={-(-options.width // options.heads) * options.heads}.",
        )
    source, target = (keras.Input(signature.inputs[name].shape, dtype="int32", name=name) for name in signature.inputs)
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
    # Computed from the input: a constant would not be part of the model's graph.
    places = keras.ops.cumsum(keras.ops.ones_like(numbers), axis=-1) - 1
    words = keras.layers.Embedding(vocabulary, options.width, name=f"{name}_words")(numbers)
    places = keras.layers.Embedding(numbers.shape[-1], options.width, name=f"{name}_places")(places)
    return keras.layers.Dropout(options.dropout)(keras.layers.Add()([words, places]))


def _attended(query: Any, value: Any, options: TransformerOptions, name: str, **masks: Any) -> Any:
    attention = keras.layers.MultiHeadAttention(options.heads, options.width // options.heads, name=name)
    return _added(query, attention(query, value, **masks), options)


def _considered(values: Any, options: TransformerOptions, name: str) -> Any:
    hidden = keras.layers.Dense(options.hidden, activation="relu", name=f"{name}_hidden")(values)
    return _added(values, keras.layers.Dense(options.width, name=f"{name}_out")(hidden), options)


def _added(before: Any, change: Any, options: TransformerOptions) -> Any:
    change = keras.layers.Dropout(options.dropout)(change)
    return keras.layers.LayerNormalization()(keras.layers.Add()([before, change]))
