"""The Transformer: what it may look at, that padding counts nowhere, and how it translates."""

from typing import Any

import keras
import numpy as np
import pytest

from tests.helpers import events_of
from tests.words import config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.data.vocabulary import SENTENCES, Vocabulary
from tpu_console.engine.models.build import build_model
from tpu_console.engine.models.compile import compile_model
from tpu_console.engine.runs.events import Noticed, Sample, Translated
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.training.outputs import TranslationSamples, Translator

LENGTH, SOURCE, TARGET = 6, 30, 40
OPTIONS = {"width": 16, "heads": 2, "hidden": 32}
SIGNATURE = Signature(
    Task.TRANSLATION,
    {name: Input((LENGTH,), "int32") for name in ("source", "target")},
    sizes={"source_vocabulary": SOURCE, "target_vocabulary": TARGET, "length": LENGTH},
)


def built() -> Any:
    keras.utils.set_random_seed(1)
    return build_model(config("text-pairs", "x", model_options=OPTIONS), SIGNATURE)


def sentences(count: int) -> tuple[dict[str, Any], Any, Any]:
    random = np.random.default_rng(0)
    source, said = np.zeros((2, count, LENGTH), np.int32)
    for row in range(count):
        words = random.integers(1, LENGTH)
        source[row, :words] = random.integers(2, SOURCE, words)
        said[row, :words] = random.integers(4, TARGET, words)
    ends = (said == 0).argmax(axis=1)
    label = said.copy()
    label[np.arange(count), ends] = 3
    target = np.where(label == 0, 0, np.insert(said, 0, 2, axis=1)[:, :-1]).astype(np.int32)
    return {"source": source, "target": target}, label, (label != 0).astype(np.float32)


def test_no_place_sees_the_words_that_it_has_to_say() -> None:
    model = built()
    inputs, _, _ = sentences(20)
    before = model.predict(inputs, verbose=0)
    for place in range(1, LENGTH):
        target = inputs["target"].copy()
        target[:, place] = (target[:, place] + 1) % TARGET
        after = model.predict({**inputs, "target": target}, verbose=0)
        np.testing.assert_array_equal(after[:, :place], before[:, :place])
        assert np.abs(after[:, place] - before[:, place]).max() > 1e-3


def test_padding_counts_neither_in_the_loss_nor_in_the_accuracy() -> None:
    model = built()
    compile_model(model, config("text-pairs", "x"), SIGNATURE, 1, 8, allows_xla=False)  # as runs on the CPU do
    x, label, weights = sentences(64)
    measured = model.evaluate(x, label, sample_weight=weights, batch_size=64, return_dict=True, verbose=0)
    said, words = model.predict(x, verbose=0).astype(np.float64), label != 0
    chances = np.take_along_axis(said, label[..., np.newaxis], axis=-1)[..., 0]
    is_right = said.argmax(axis=-1) == label
    assert 0 < is_right[words].mean() < 1
    assert is_right[words].mean() != pytest.approx(is_right.mean(), abs=1e-4)
    expected = {"loss": -np.log(chances[words]).mean(), "accuracy": is_right[words].mean()}
    assert measured == pytest.approx(expected, rel=1e-4)


RECORD: dict[str, Any] = {
    "source": Vocabulary.learn(["i read books", "you go"], 10).words,
    "target": Vocabulary.learn(["yo leo libros", "vete"], 10, SENTENCES).words,
    "length": 4,
    "samples": [("I read books!", "Yo leo libros."), ("Go!", "¡Vete!")],
}


class Parrot(keras.Model):  # type: ignore[misc]  # Keras is untyped
    """Says words 4, 5, 6 … one after the other and, in sentences that begin with "go", the end after two."""

    def __init__(self) -> None:
        super().__init__()
        self.traces = 0

    def call(self, inputs: Any) -> Any:
        self.traces += 1
        source, target = inputs["source"], inputs["target"]
        ops = keras.ops
        place = ops.broadcast_to(ops.arange(4), ops.shape(target))
        goes = ops.equal(source[:, :1], Vocabulary(RECORD["source"]).words.index("go"))
        following = ops.where(ops.equal(target, 2), 4, target + 1)
        return ops.one_hot(ops.where(goes & (place >= 2), 3, following), 9)


def test_sentences_are_said_word_by_word_up_to_their_end() -> None:
    parrot = Parrot()
    translator = Translator(parrot, RECORD)
    assert translator.translate(["I read books!", "Go!"]) == ["yo leo libros vete", "yo leo"]
    assert translator.translate(["You?", "Go, you."])[1] == "yo leo"
    assert parrot.traces == 1  # every place of every sentence has the same shapes


def samples_of(recorder: Recorder, model: Any) -> list[Any]:
    callback = TranslationSamples(recorder, RECORD)
    callback.set_model(model)
    callback.on_epoch_end(0)
    callback.on_epoch_end(1)
    return list(events_of(recorder.run))


def test_the_same_sentences_are_translated_after_every_epoch(recorder: Recorder) -> None:
    samples = (Sample("I read books!", "Yo leo libros.", "yo leo libros vete"), Sample("Go!", "¡Vete!", "yo leo"))
    assert samples_of(recorder, Parrot()) == [Translated(1, samples), Translated(2, samples)]


def test_a_model_that_reads_something_else_goes_on_without_samples(recorder: Recorder) -> None:
    dense = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    (notice,) = samples_of(recorder, dense)
    assert isinstance(notice, Noticed)
    assert "turned off" in notice.message
