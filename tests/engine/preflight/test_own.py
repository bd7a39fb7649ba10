"""Custom models, and models from TensorFlow Hub, with the real TPU compiler."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests import saved_models
from tests.engine.preflight.reached import verdicts_of
from tests.helpers import known, replace, run_forked, small_config
from tests.made_verdicts import FITS
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.data.cached_facts import FunctionRecord, save_function_record
from tpu_console.engine.data.examples import Input, Nested
from tpu_console.engine.preflight.choice import choices_of, save_verdict
from tpu_console.engine.preflight.result import Outcome, Verdict
from tpu_console.engine.preflight.topologies import find_topology
from tpu_console.engine.preflight.worker_pool import PREFLIGHT, reach_verdicts

pytest.importorskip("libtpu", reason="the extra [tpu] is not installed")
pytestmark = pytest.mark.slow

OWN = """
import os, signal, time
import keras

def pretrained(input_shape, classes):
    base = keras.applications.MobileNetV3Small(
        input_shape=(32, 32, 3), include_top=False, weights="imagenet", pooling="avg")
    inputs = keras.Input(input_shape)
    outputs = keras.layers.Dense(classes, activation="softmax")(base(keras.layers.Concatenate()([
        keras.layers.UpSampling2D(4)(inputs)] * 3)))
    return keras.Model(inputs, outputs)

class Counted(keras.layers.Layer):
    def build(self, shape):
        self.scale = keras.Variable(keras.ops.ones(shape[-1:]))

    def call(self, inputs):
        return inputs * self.scale

def crashes(input_shape, classes):
    os.kill(os.getpid(), signal.SIGSEGV)

class Validated(keras.Sequential):
    def test_step(self, *_):
        crashes(None, None)

def crashes_in_validation(input_shape, classes):
    return Validated([keras.Input(input_shape), keras.layers.Flatten(), keras.layers.Dense(classes, "softmax")])

def hangs(input_shape, classes):
    while True:
        time.sleep(60)

class Narrower(keras.layers.Layer):
    def compute_output_spec(self, x, **_):
        return keras.KerasTensor((x.shape[0], x.shape[1], None, x.shape[3]), x.dtype)

    def call(self, x):
        return x[:, :, :4]

def narrows(input_shape, classes):
    return keras.Sequential([
        keras.Input(input_shape), Narrower(name="narrower"), keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(classes, activation="softmax")])

def turns(input_shape, classes):
    return keras.Sequential([
        keras.Input(input_shape), keras.layers.UpSampling2D(8), keras.layers.RandomRotation(0.1, name="turner"),
        keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(classes, activation="softmax")])

class Doubled(keras.layers.Layer):
    def call(self, x):
        import tensorflow as tf
        doubled = tf.numpy_function(lambda array: 2 * array, [x], tf.float32)
        doubled.set_shape(x.shape)
        return doubled

def asks_python(input_shape, classes):
    return keras.Sequential([
        keras.Input(input_shape), keras.layers.Flatten(), Doubled(name="doubled"),
        keras.layers.Dense(classes, activation="softmax")])

def several(shapes, classes):
    ids, mask = (keras.Input(shapes[name], name=name, dtype="int32") for name in ("token_ids", "padding_mask"))
    seen = Counted()(keras.layers.Embedding(50, 16)(ids)) * keras.ops.cast(mask, "float32")[..., None]
    x = keras.layers.GlobalAveragePooling1D()(seen)
    kind = keras.layers.Dense(3, activation="softmax", name="kind")(x)
    return keras.Model([ids, mask], {"kind": kind, "price": keras.layers.Dense(1, name="price")(x)})

def task(shapes, classes):
    from keras_hub import models
    tokenizer = models.BertTokenizer(vocabulary=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
    preprocessor = models.BertTextClassifierPreprocessor(tokenizer, sequence_length=12)
    backbone = models.BertBackbone(6, 1, 2, 16, 32, max_sequence_length=12)
    return models.BertTextClassifier(backbone, 3, preprocessor=preprocessor)

def data(): ...

def texts(): ...

def wrong(input_shape, classes):
    return keras.layers.Dense("many")
"""


INPUTS: Nested = {"token_ids": Input((10,), "int64"), "padding_mask": Input((10,), "bool")}
LABELS: Nested = {"kind": Input((), "int64"), "price": Input((1,))}
WEIGHTS: Nested = {"kind": Input(()), "price": Input(())}
SEVERAL = FunctionRecord((INPUTS, LABELS, WEIGHTS), (INPUTS, LABELS), 0, 64, 32, "2026-11-24")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file: Path = tmp_path_factory.mktemp("own") / "own.py"
    file.write_text(OWN, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def verdicts(own: Path) -> dict[str, Verdict]:
    configs = {name: small_config(model=f"{own}:{name}", model_options={}) for name in ("narrows", "turns", "wrong")}
    configs["searched"] = small_config(accelerator="auto")
    loss = "kind=sparse_categorical_crossentropy, price=mean_squared_error"
    several = small_config(dataset=f"{own}:data", model=f"{own}:several", model_options={}, loss=loss)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPU_CONSOLE_HOME", str(own.parent))
        save_function_record(several, SEVERAL)
    return verdicts_of(configs | {"several": several}, "v5e-8", own.parent)


def test_several_inputs_labels_and_weights_and_a_layer_that_creates_values_are_compiled(
    verdicts: dict[str, Verdict],
) -> None:
    verdict = verdicts["several"]
    assert verdict.outcome is Outcome.FITS, verdict.reason
    memory = known(verdict.memory)
    assert memory.batch == 32 * (10 * 4 + 10 + 4 + 4 + 4 + 4)
    assert memory.parameters >= 4 * (50 * 16 + 16 + 16 * 4 + 4)


@pytest.mark.parametrize(
    ("name", "layer", "words"), [("narrows", "narrower", "'narrower' (Narrower)"), ("wrong", "", "own.py")]
)
def test_a_model_that_cannot_be_compiled_is_refused_by_what_is_wrong(
    verdicts: dict[str, Verdict], name: str, layer: str, words: str
) -> None:
    verdict = verdicts[name]
    assert verdict.outcome is Outcome.DOES_NOT_COMPILE
    (finding,) = verdict.findings
    assert (finding.severity, finding.layer) == ("error", layer)
    assert words in verdict.reason
    assert ("pipeline" in finding.remedy) == bool(layer)


def test_a_step_is_compiled_without_the_layer_that_slows_it(verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts["turns"]
    assert verdict.outcome is Outcome.FITS, verdict.reason
    assert [(one.severity, one.layer, one.key) for one in verdict.findings if one.layer] == [
        ("warning", "turner", "augmentation.rotation"),
        ("info", "turner", "augmentation.rotation"),
    ]
    assert any("augmentation.rotation takes this" in one.text for one in verdict.findings)


def test_the_largest_batch_of_a_small_dataset_is_all_of_it(verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts["searched"]
    assert (verdict.largest_batch, verdict.dataset_is_limit) == (1437 // 8, True)
    assert [one.replica_batch for one in verdict.batches] == [179, 128, 32]
    assert verdict.batches[0].peak > verdict.batches[2].peak == known(verdict.memory).peak


@pytest.fixture(scope="module")
def graphs(own: Path) -> dict[str, Verdict]:
    path = saved_models.reusable(own.parent / "saved")
    hub = {"dataset": "cifar10", "model": "hub", "model_options": {"path": path, "trainable": True}}
    python = {"model": f"{own}:asks_python", "model_options": {}, "backend": "tensorflow"}
    configs = {"hub": small_config(**hub), "python": small_config(**python)}
    configs["unreadable"] = small_config(backend="tensorflow")
    return verdicts_of(configs, "v5e-8", own.parent, KERAS_BACKEND="tensorflow")


def test_a_saved_model_is_compiled_as_tensorflow_runs_it(graphs: dict[str, Verdict]) -> None:
    verdict = graphs["hub"]
    assert verdict.outcome is Outcome.FITS, verdict.reason
    memory = known(verdict.memory)
    # The kernel, its mean and the classifier; Adam keeps two numbers for each that is trained.
    trained = 3 * 6 + 6 * 10 + 10
    assert 4 * (trained + 3) <= memory.parameters <= 4 * (trained + 3) + 64
    assert memory.optimizer >= 2 * 4 * trained
    assert memory.batch == 32 * (32 * 32 * 3 * 4 + 4)
    assert known(verdict.bound).all_reduce_bytes == 2 * 7 / 8 * 4 * trained
    assert verdict.findings[0].key == "backend"


def test_what_xla_cannot_compile_of_tensorflow_is_named(graphs: dict[str, Verdict]) -> None:
    verdict = graphs["python"]
    assert verdict.outcome is Outcome.DOES_NOT_COMPILE
    assert {"'doubled'", "(Doubled)", "PyFunc,"} <= {*verdict.reason.split()}
    assert "pipeline" in verdict.findings[0].remedy


def test_a_jaxlib_that_cannot_read_the_graph_is_named(graphs: dict[str, Verdict]) -> None:
    verdict = graphs["unreadable"]
    assert verdict.outcome is Outcome.UNKNOWN
    assert "jaxlib no longer" in verdict.reason
    assert "tensorflow 2." in verdict.reason


def _by_worker(config: RunConfig) -> Verdict:
    """Return the verdict for an old generation; other tests are about newer ones."""
    (verdict,) = reach_verdicts(choices_of(config, [find_topology("v3-8")], [], []), lambda *_: None)
    return verdict


BUILD = """
import json, sys
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.preflight.build import build
from tpu_console.engine.preflight.choice import batch_of
config = parse_config(json.loads(sys.argv[1]))
model, batch = build(config, batch_of(config), 8)
inputs, label = batch.train
shapes = {name: part.shape for name, part in inputs.items()} if isinstance(inputs, dict) else None
has_values = any(variable._value is not None for variable in model.weights)
print(json.dumps([shapes, label.dtype, model.count_params(), has_values]))
"""


def built(config: RunConfig, home: Path, **env: str) -> Any:
    """The shapes of a model's inputs, the type of its label, its parameters, and whether they have values."""
    said = run_forked(BUILD, json.dumps(config.model_dump(mode="json")), cwd=home, env=PREFLIGHT | env)
    return json.loads(said.splitlines()[-1])


def test_a_task_of_keras_hub_gets_its_texts_prepared(own: Path, private_home: Path) -> None:
    pytest.importorskip("keras_hub")
    config = small_config(dataset=f"{own}:texts", model=f"{own}:task", model_options={})
    texts = Input((), "string"), Input((), "int64")
    save_function_record(config, FunctionRecord(texts, (), 3, 64, 0, "2026-11-24"))
    shapes, label, *_ = built(config, private_home)
    assert shapes == {"token_ids": [12], "segment_ids": [12], "padding_mask": [12]}
    assert label == "int32"


def test_no_weights_are_fetched(own: Path, tmp_path: Path) -> None:
    config = small_config(model=f"{own}:pretrained", model_options={})
    *_, count, has_values = built(config, tmp_path, KERAS_HOME=str(tmp_path / "keras"))
    assert (count > 900_000, has_values) == (True, False)
    assert not list((tmp_path / "keras").rglob("*.h5"))


def test_a_saved_model_that_is_not_here_is_not_fetched() -> None:
    address = "https://tfhub.dev/google/imagenet/mobilenet_v2_100_224/feature_vector/5"
    verdict = _by_worker(small_config(dataset="cifar10", model="hub", model_options={"path": address}))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "model_options.path" in verdict.reason


def test_the_training_step_is_judged_if_the_validation_step_cannot_be_compiled(own: Path) -> None:
    """In a worker that loads TensorFlow, with the shapes of a dataset function's last call."""
    crashes = {"model": f"{own}:crashes_in_validation", "model_options": {}, "backend": "tensorflow"}
    config = small_config(dataset=f"{own}:data", **crashes)
    digits = Input((8, 8, 1)), Input((), "int64")
    save_function_record(config, FunctionRecord(digits, digits, 10, 64, 32, "2026-11-24"))
    verdict = _by_worker(config)
    assert verdict.outcome is Outcome.FITS, verdict.reason
    assert "backend" in {finding.key for finding in verdict.findings}
    assert not known(verdict.memory).is_lower_bound
    assert "validation step" in verdict.findings[0].text


def test_a_hang_ends_at_the_limit_and_what_is_done_is_kept(own: Path) -> None:
    config = small_config(model=f"{own}:hangs", model_options={})
    save_verdict(config, replace(FITS, tpu="v5e-8"))
    choices = choices_of(config, [find_topology(name) for name in ("v5e-8", "v5e-1")], [], [])
    done, verdict = reach_verdicts(choices, lambda *_: None, limit_s=2.0)
    assert (done.outcome, done.tpu) == (Outcome.FITS, "v5e-8")
    assert verdict.outcome is Outcome.UNKNOWN
    # A slow machine does not come to building the model in this time.
    phase = known(re.search(r" limit of 2 s while ([\w ]+)\.", verdict.reason))
    assert phase[1] in {"starting", "loading Keras and JAX", "building the model"}
