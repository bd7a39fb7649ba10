"""The Transformer: what it may look at, that padding counts nowhere, and how it translates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest

from tests.engine.data.test_text_files import config
from tests.helpers import events_of, run_forked, small_config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.data.vocabulary import SENTENCES, Vocabulary
from tpu_console.engine.errors import DataError
from tpu_console.engine.models.build import build_model
from tpu_console.engine.models.compile import compile_model
from tpu_console.engine.runs.events import Noticed, Sample, Translated
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.engine.training.translations import TranslationSamples, Translator

if TYPE_CHECKING:
    from pathlib import Path

LENGTH, SOURCE, TARGET = 6, 30, 40
OPTIONS = {"width": 16, "heads": 2, "hidden": 32}
SIGNATURE = Signature(
    Task.TRANSLATION,
    {name: Input((LENGTH,), "int32") for name in ("source", "target")},
    sizes={"source_vocabulary": SOURCE, "target_vocabulary": TARGET, "length": LENGTH},
)


def built(options: dict[str, Any] | None = None) -> Any:
    keras.utils.set_random_seed(1)
    return build_model(config("text-pairs", "x", model_options=OPTIONS | (options or {})), SIGNATURE)


def sentences(count: int) -> tuple[dict[str, Any], Any, Any]:
    """Random sentences of 1 to 5 words as a dataset gives them: inputs, labels, weights."""
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


def test_it_is_the_size_of_the_published_one() -> None:
    signature = Signature(
        Task.TRANSLATION,
        {name: Input((20,), "int32") for name in ("source", "target")},
        sizes={"source_vocabulary": 15_000, "target_vocabulary": 15_000, "length": 20},
    )
    model = build_model(config("text-pairs", "x"), signature)
    embedding, dense = 2 * 15_000 * 256 + 2 * 20 * 256, 2 * (256 * 2048 + 2048 + 2048 * 256 + 256)
    attention, norms = 3 * 4 * (256 * 256 + 256), 5 * 2 * 256
    assert model.count_params() == embedding + dense + attention + norms + 256 * 15_000 + 15_000


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


def test_padding_of_the_source_is_not_looked_at_and_the_order_of_words_is() -> None:
    model = built()
    inputs, _, _ = sentences(20)
    before = model.predict(inputs, verbose=0)
    table = model.get_layer("source_words").embeddings
    table.assign(np.vstack([np.full(16, 5.0), table.numpy()[1:]]))
    np.testing.assert_array_equal(model.predict(inputs, verbose=0), before)
    swapped = inputs["source"][:, [1, 0, *range(2, LENGTH)]]
    two_words = (inputs["source"][:, 1] != 0) & (inputs["source"][:, 0] != inputs["source"][:, 1])
    after = model.predict({**inputs, "source": swapped}, verbose=0)
    assert np.abs(after - before)[two_words].max(axis=(1, 2)).min() > 1e-4


def expected_figures(said: Any, label: Any) -> dict[str, float]:
    """Loss and accuracy over the words alone, by NumPy."""
    words = label != 0
    chances = np.take_along_axis(said.astype(np.float64), label[..., np.newaxis], axis=-1)[..., 0]
    return {"loss": -np.log(chances[words]).mean(), "accuracy": (said.argmax(axis=-1) == label)[words].mean()}


def test_padding_counts_neither_in_the_loss_nor_in_the_accuracy() -> None:
    model = built()
    compile_model(model, config("text-pairs", "x"), SIGNATURE, 1, 8, allows_xla=False)  # as runs on the CPU do
    x, y, weights = sentences(64)
    model.fit(x, y, sample_weight=weights, epochs=4, batch_size=16, verbose=0)
    said = model.predict(x, verbose=0)
    measured = model.evaluate(x, y, sample_weight=weights, batch_size=64, return_dict=True, verbose=0)
    expected = expected_figures(said, y)
    assert 0 < expected["accuracy"] < 1
    assert expected["accuracy"] != pytest.approx((said.argmax(axis=-1) == y).mean(), abs=0.01)
    assert measured == pytest.approx(expected, rel=1e-4)


REPLICAS = """
import json, sys
import numpy as np
import keras, tensorflow as tf
from tests.helpers import small_config
from tpu_console.engine.accelerators.table import FRAMEWORKS
from tpu_console.engine.models.compile import compile_model
from tests.engine.training.test_translation import SIGNATURE, built, config, expected_figures, sentences

accelerator = FRAMEWORKS["tensorflow"].connect(small_config(), "sim:2")
with accelerator.scope():
    model = built()
    compile_model(model, config("text-pairs", "x"), SIGNATURE, 2, 8, allows_xla=False)
    x, y, weights = sentences(64)
    data = tf.data.Dataset.from_tensor_slices((x, y, weights)).batch(16, drop_remainder=True)
    measured = model.evaluate(data, return_dict=True, verbose=0)
    said = model(x, training=False).numpy()
    shares = [expected_figures(said[i : i + 8], y[i : i + 8])["loss"] for i in range(0, 64, 8)]
    expected = expected_figures(said, y) | {"loss": float(np.mean(shares))}
print(json.dumps([measured, {k: float(v) for k, v in expected.items()}]))
"""


@pytest.mark.slow
def test_padding_counts_on_no_replica_either(tmp_path: Path) -> None:
    from tests.helpers import ROOT

    measured, expected = json.loads(run_forked(REPLICAS, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}).splitlines()[-1])
    # Each replica takes the mean over its own words; accuracies are counted together, and untrained ones are not 0.
    assert 0 < expected["accuracy"] < 1
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
    assert parrot.traces == 1, "every place of every sentence has the same shapes"


def told(folder: Path, model: Any) -> list[Any]:
    run = create_run("nmt", folder)
    callback = TranslationSamples(Recorder(run, JournalWriter(run.journal)), RECORD)
    callback.set_model(model)
    callback.on_epoch_end(0)
    callback.on_epoch_end(1)
    return list(events_of(run))


def test_the_same_sentences_are_translated_after_every_epoch(tmp_path: Path) -> None:
    samples = (
        Sample("I read books!", "Yo leo libros.", "yo leo libros vete"),
        Sample("Go!", "¡Vete!", "yo leo"),
    )
    assert told(tmp_path, Parrot()) == [Translated(1, samples), Translated(2, samples)]


def test_a_model_that_reads_something_else_goes_on_without_samples(tmp_path: Path) -> None:
    dense = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    (notice,) = told(tmp_path, dense)
    assert isinstance(notice, Noticed)
    assert "translations are turned off" in notice.message


def test_options_and_data_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        DataError, match=r"model_options.width=20 is not divisible by .*heads=8.*Set model_options.width=24"
    ):
        built({"width": 20, "heads": 8})
    images = Signature(Task.CLASSES, {"image": Input((8, 8, 1))}, 10)
    with pytest.raises(DataError, match=r"needs pairs of sentences\. Use dataset = 'text-pairs'"):
        build_model(small_config(model="transformer", model_options={}), images)
