"""Models of keras.io's examples on made-up data, a preset of KerasHub, and the programs of the page on custom models.

These programs cover the other kinds: image classification with logits, time series, an autoencoder, structured data
and regression, several inputs and outputs, segmentation, a GAN, and a text transformer.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.engine.jobs.predicting import Job, train
from tests.helpers import ROOT, all_of, report_of, the
from tpu_console import BridgeCallback
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.runs.events import EpochEnded, FitStarted, Noticed, RunFinished
from tpu_console.engine.runs.run_directory import RunDirectory, list_runs

pytestmark = pytest.mark.slow

MINE = """
import keras
import numpy as np
from keras import layers, ops

random = np.random.default_rng(0)


class Patches(layers.Layer):
    def call(self, images):
        patches = ops.image.extract_patches(images, size=4)
        return ops.reshape(patches, (ops.shape(patches)[0], 9, 48))


class PatchEncoder(layers.Layer):
    def __init__(self, count, width, **options):
        super().__init__(**options)
        self.count, self.width = count, width
        self.projection, self.position = layers.Dense(width), layers.Embedding(count, width)

    def call(self, patches):
        return self.projection(patches) + self.position(ops.expand_dims(ops.arange(self.count), 0))

    def get_config(self):
        return {**super().get_config(), "count": self.count, "width": self.width}


def vision_transformer(input_shape, classes, width=8):
    inputs = keras.Input(input_shape)
    encoded = PatchEncoder(9, width)(Patches()(inputs))
    normed = layers.LayerNormalization(epsilon=1e-6)(encoded)
    attended = layers.Add()([layers.MultiHeadAttention(2, width, dropout=0.1)(normed, normed), encoded])
    hidden = layers.Dense(width, activation="gelu")(layers.LayerNormalization()(attended))
    features = layers.Dropout(0.1)(layers.Flatten()(layers.Add()([hidden, attended])))
    return keras.Model(inputs, layers.Dense(classes)(features))


def colors():
    labels = random.integers(0, 3, 160)
    images = random.normal(size=(160, 12, 12, 3)).astype("float32")
    images[np.arange(160), :, :, labels] += 2
    return (images[:128], labels[:128]), (images[128:], labels[128:])


def new_colors():
    return random.normal(size=(20, 12, 12, 3))


class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    def __init__(self, learning_rate, steps, share=0.5):
        self.peak, self.steps = learning_rate, steps * share

    def __call__(self, step):
        return self.peak * ops.minimum(1.0, (ops.cast(step, "float32") + 1) / self.steps)

    def get_config(self):
        return {"learning_rate": self.peak, "steps": self.steps, "share": 1.0}


class Recommender(keras.Model):
    def __init__(self):
        super().__init__()
        self.user, self.movie, self.bias = layers.Embedding(20, 4), layers.Embedding(30, 4), layers.Embedding(30, 1)

    def call(self, inputs):
        match = ops.sum(self.user(inputs[:, 0]) * self.movie(inputs[:, 1]), axis=1, keepdims=True)
        return ops.nn.sigmoid(match + self.bias(inputs[:, 1]))


def recommender(input_shape, classes):
    return Recommender()


def ratings():
    pairs = np.stack([random.integers(0, 20, 320), random.integers(0, 30, 320)], axis=1)
    stars = (pairs[:, 0] % 2 + pairs[:, 1] % 3) / 3
    return (pairs[:256], stars[:256]), (pairs[256:], stars[256:])


def text(input_shape, classes):
    import keras_hub

    return keras_hub.models.TextClassifier.from_preset("bert", num_classes=2)


def films():
    labels = random.integers(0, 2, 64)
    return np.array(["bad film", "good film"])[labels], labels


def film():
    return np.array(["good film", "bad film"])
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")


def run_of(folder: Path, data: str, model: str, **settings: Any) -> RunDirectory:
    given = {"dataset": f"mine.py:{data}", "model": f"mine.py:{model}", "batch_size": 32, **SETTINGS, **settings}
    return train(parse_config(given), folder)


def test_a_vision_transformer_trains_on_logits_with_a_custom_schedule_and_gives_probabilities(tmp_path: Path) -> None:
    optimizer = {"name": "adamw", "learning_rate": 0.03, "weight_decay": 1e-4, "schedule": "mine.py:WarmUp(share=0.25)"}
    run = run_of(tmp_path, "colors", "vision_transformer", epochs=3, optimizer=optimizer)
    last = all_of(run, EpochEnded)[-1]
    assert last.logs["val_accuracy"] > 0.6
    assert last.learning_rate == pytest.approx(0.03)
    assert any("gives logits" in notice.message for notice in all_of(run, Noticed))
    record = {"activation": "softmax", "class_outputs": [""], "class_count": 3}
    assert record.items() <= json.loads(run.inputs.read_text(encoding="utf-8")).items()
    assert report_of(run).accuracy == pytest.approx(last.logs["val_accuracy"])
    rows = Job(tmp_path)(run, "mine.py:new_colors")
    assert all(1 / 3 <= float(row["probability"]) <= 1 for row in rows)


def test_a_recommender_learns_ratings_from_pairs_of_numbers(tmp_path: Path) -> None:
    settings = {"loss": "binary_crossentropy", "metrics": "mean_absolute_error", "optimizer": {"learning_rate": 0.1}}
    run = run_of(tmp_path, "ratings", "recommender", epochs=3, **settings)
    assert all_of(run, EpochEnded)[-1].logs["val_mean_absolute_error"] < 0.3


class EmbeddingModel(keras.Model):  # type: ignore[misc]
    def train_step(self, data: Any) -> dict[str, Any]:
        import tensorflow as tf

        both = data[0] if isinstance(data, tuple) else data
        anchors, positives = both[0], both[1]
        with tf.GradientTape() as tape:
            similarities = keras.ops.matmul(self(anchors), keras.ops.transpose(self(positives))) / 0.2
            loss = self.compute_loss(y=keras.ops.arange(3), y_pred=similarities)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(gradients, self.trainable_variables)
        return {"loss": loss}


class AnchorPositivePairs(keras.utils.PyDataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        noise = np.random.default_rng(index).normal(scale=0.1, size=(2, 3, 6))
        return (noise + np.eye(6)[None, :3]).astype("float32")


def test_metric_learning_with_a_custom_train_step_is_watched() -> None:
    inputs = keras.Input((6,))
    model = EmbeddingModel(inputs, keras.layers.UnitNormalization()(keras.layers.Dense(4)(inputs)))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(AnchorPositivePairs(), epochs=2, verbose=0, callbacks=[BridgeCallback("metric-learning")])
    (run,) = list_runs()
    assert [set(epoch.logs) for epoch in all_of(run, EpochEnded)] == [{"loss"}] * 2
    assert the(run, RunFinished).outcome == "completed"


def test_a_preset_of_kerashub_in_a_folder_trains_on_texts_and_predicts_them(tmp_path: Path) -> None:
    keras_hub = pytest.importorskip("keras_hub")
    tokenizer = keras_hub.tokenizers.BertTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]
    )
    backbone = keras_hub.models.BertBackbone(8, 1, 2, 8, 16, max_sequence_length=8)
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(tokenizer, sequence_length=8)
    keras_hub.models.BertTextClassifier(backbone, 2, preprocessor=preprocessor).save_to_preset(tmp_path / "bert")
    run = run_of(tmp_path, "films", "text", epochs=2, batch_size=16)
    assert len(all_of(run, EpochEnded)) == 2
    rows = Job(tmp_path)(run, "mine.py:film")
    assert list(rows[0]) == ["index", "label", "probability"]
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)


PAGE = (ROOT / "docs" / "own-code.md").read_text(encoding="utf-8")
FILES = sorted((ROOT / "examples" / "own-code").glob("*.py"))
PROGRAMS = {
    "mine": [re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[0] for language in ("python", "toml")],
    **{
        program.stem: [
            path.read_text(encoding="utf-8") for path in (program, program.with_suffix(".toml")) if path.exists()
        ]
        for program in FILES
    },
}
SETTINGS = {"accelerator": "cpu", "sinks": [], "checkpoint": {"monitor": "auto"}}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_of_the_page_trains(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, *settings = PROGRAMS[name]
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.py").write_text(program, encoding="utf-8")
    if not settings:
        exec(compile(program, f"{name}.py", "exec"), {"__name__": "__main__"})
        (run,) = list_runs()
    else:
        run = train(parse_config({**tomllib.loads(settings[0]), **SETTINGS, "name": "own"}), tmp_path)
    assert len(all_of(run, EpochEnded)) == 2
    assert the(run, RunFinished).outcome == "completed"
    is_reported = any("compiled its model" in notice.message for notice in all_of(run, Noticed))
    assert is_reported == bool(settings and "model.compile(" in program)
    if is_reported:  # its compiled metrics replace the default ones
        assert the(run, FitStarted).monitor in {"loss", "val_loss"}
    if "new_data" in program:
        rows = Job(tmp_path)(run, f"{name}.py:new_data")
        assert list(rows[0]) == ["index", "prediction"]
        assert len(rows) == 5


def test_the_page_names_every_program() -> None:
    assert [path.name for path in FILES if f"(../examples/own-code/{path.name})" not in PAGE] == []
    assert len(PROGRAMS) == 8
