"""Translates a few held-out sentences after each epoch, so that a person sees what the figures mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from engine.datasets.vocabulary import PADDING, START, Vocabulary
from engine.errors import one_line
from engine.events import Sample, Translated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine.channel import Channel


class Translator:
    """Translates with a model that says the next word of a sentence: always the likeliest one.

    Args:
        model: From ``source`` and ``target`` to chances of each next word, as `engine.models.transformer` builds it.
        record: What `engine.datasets.text_pairs` says of the words.
    """

    def __init__(self, model: Any, record: Mapping[str, Any]) -> None:
        self._source = Vocabulary(record["source"])
        self._target = Vocabulary(record["target"])
        self._length = int(record["length"])

        @tf.function(reduce_retracing=True)  # type: ignore[untyped-decorator]  # TensorFlow is untyped
        def next_words(source: Any, target: Any, place: Any) -> Any:
            chances = model({"source": source, "target": target}, training=False)
            return tf.argmax(tf.gather(chances, place, axis=1), axis=-1, output_type=tf.int32)

        self._next_words = next_words

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """Translate sentences together, a word of each at a time; shapes stay the same throughout."""
        source = tf.constant(self._source.encode(sentences, self._length))
        said = np.full((len(sentences), self._length + 1), PADDING, np.int32)
        said[:, 0] = START
        for place in range(self._length):
            said[:, place + 1] = self._next_words(source, tf.constant(said[:, :-1]), tf.constant(place)).numpy()
        return [self._target.decode(numbers[1:]) for numbers in said]


class TranslationSamples(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Tells how a few held-out sentences are translated, after each epoch.

    A failure, such as a model of one's own that reads something else, is told and does not end the run.

    Args:
        channel: The run.
        record: What `engine.datasets.text_pairs` says of the words, with the sentences.
    """

    def __init__(self, channel: Channel, record: Mapping[str, Any]) -> None:
        super().__init__()
        self._channel = channel
        self._record = record
        self._translator: Translator | None = None
        self._has_failed = False

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:  # noqa: ARG002  Keras's own
        """Translate the sentences."""
        if self._has_failed:
            return
        pairs = self._record["samples"]
        try:
            self._translator = self._translator or Translator(self.model, self._record)
            predicted = self._translator.translate([source for source, _ in pairs])
        except Exception as error:  # noqa: BLE001  whatever it is, a run does not end for its samples
            self._has_failed = True
            self._channel.notice(f"Sentences are not translated after epochs: {one_line(error, 200)}")
            return
        samples = tuple(
            Sample(source, expected, said) for (source, expected), said in zip(pairs, predicted, strict=True)
        )
        self._channel.emit(Translated(epoch + 1, samples))
