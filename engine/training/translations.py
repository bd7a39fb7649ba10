"""Translates a few held-out sentences after each epoch, to show what the metrics mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from ..accelerators.table import loaded_framework
from ..data.vocabulary import PADDING, START, Vocabulary
from ..errors import one_line
from ..runs.events import Sample, Translated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..runs.recorder import Recorder


class Translator:
    """Translates with a model from ``source`` and ``target`` to chances of each next word: always the likeliest one."""

    def __init__(self, model: Any, record: Mapping[str, Any]) -> None:
        self._source, self._target = Vocabulary(record["source"]), Vocabulary(record["target"])
        self._length = int(record["length"])

        def likeliest(chances: Any, place: Any) -> Any:  # fetching a chance for each word would take much longer
            return keras.ops.argmax(keras.ops.take(chances, place, axis=1), axis=-1)

        self._next_words = loaded_framework().compiled(model, likeliest)  # once for all places

    def translate(self, sentences: Sequence[str]) -> list[str]:
        """Translate sentences as one batch, word by word; shapes stay the same."""
        source = self._source.encode(sentences, self._length)
        said = np.full((len(sentences), self._length + 1), PADDING, np.int32)
        said[:, 0] = START
        for place in range(self._length):
            said[:, place + 1] = self._next_words({"source": source, "target": said[:, :-1]}, np.int32(place))
        return [self._target.decode(numbers[1:]) for numbers in said]


class TranslationSamples(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is untyped
    """Reports translations of the record's sentences after each epoch, until the model cannot translate them."""

    def __init__(self, recorder: Recorder, record: Mapping[str, Any]) -> None:
        super().__init__()
        self._recorder, self._record = recorder, record
        self._translator: Translator | None = None
        self._has_failed = False

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:  # noqa: ARG002  Keras's own
        """Translate the sentences."""
        if self._has_failed:
            return
        pairs = self._record["samples"]
        try:
            self._translator = self._translator or Translator(self.model, self._record)
            said = self._translator.translate([source for source, _ in pairs])
        except Exception as error:  # noqa: BLE001  whatever it is, a run does not end for its samples
            self._has_failed = True
            self._recorder.notice(f"Sample translations are turned off: {one_line(error, 200)}")
            return
        samples = tuple(Sample(source, expected, text) for (source, expected), text in zip(pairs, said, strict=True))
        self._recorder.emit(Translated(epoch + 1, samples))
