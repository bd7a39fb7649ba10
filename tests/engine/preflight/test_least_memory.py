"""The lower bound on memory, against Keras's optimizers and the TPU compiler."""

import io
from pathlib import Path
from typing import Any

import keras
import pytest

from tests.helpers import small_config
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.jobs.preflight import least_memory_of_choices, slots_per_weight
from tpu_console.engine.messages import Reporter
from tpu_console.engine.models.build import build_model, bytes_of
from tpu_console.engine.preflight.build import least_memory
from tpu_console.engine.preflight.choice import Batch, batch_of
from tpu_console.engine.preflight.result import Memory

LIMIT = 16 * 2**30
DIGITS = {"dataset": "digits", "model": "mlp", "batch_size": 8, "epochs": 1}


def memory_of(values: dict[str, Any], batch: Batch | None = None) -> Memory:
    config = parse_config(values)
    batch = batch or batch_of(config)
    model = build_model(config, batch.signature)
    slots = slots_per_weight(config) * bytes_of(model.trainable_variables)
    return least_memory(model, slots, batch, config.batch_size, LIMIT)


@pytest.mark.parametrize(
    ("optimizer", "slots"),
    [
        ({"name": "adam(beta_2=0.99)"}, 2),
        ({"name": "lion"}, 1),
        ({"name": "sgd"}, 0),
        ({"name": "sgd(momentum=0.9)"}, 1),
    ],
    ids=str,
)
def test_the_slots_of_the_optimizer_are_counted(optimizer: dict[str, Any], slots: int) -> None:
    found = memory_of({**DIGITS, "optimizer": optimizer})
    assert found.parameters == 4 * (64 * 128 + 128 + 128 * 10 + 10)
    assert found.optimizer == slots * found.parameters


def test_the_batch_is_counted_with_its_labels_and_weights() -> None:
    found = memory_of({**DIGITS, "class_weight": "balanced"})
    assert found.batch == 8 * (4 * 8 * 8 + 4 + 4)
    assert (found.peak, found.temporaries) == (found.parameters + found.optimizer + found.batch, 0)
    assert (found.limit, found.is_lower_bound) == (LIMIT, True)


CSV = {"path": "a.csv", "inputs": "a", "label": "b"}
TEXT = {"dataset": "text-csv", "data": {"options": CSV}, "model": "text", "batch_size": 32, "epochs": 1}
RATED = {"loss": "mean_squared_error", "metrics": [], "model_options": {"width": 50}, "batch_size": 64, "epochs": 1}
RATINGS = {"dataset": "ratings-csv", "data": {"options": {"path": "a.csv"}}, "model": "recommender", **RATED}
IDS = Input((), "int32")


TOKENS = Signature(Task.CLASSES, {"text": Input((500,), "int32")}, 2, {"vocabulary": 20000})
RATING = Signature(Task.RATINGS, {"user": IDS, "item": IDS}, sizes={"users": 610, "items": 9724}, label_mean=3.5)
IMAGES = {"dataset": "cifar10", "model": "vgg", "batch_size": 128, "epochs": 1}


@pytest.mark.parametrize(
    ("values", "signature", "label", "compiled_bytes"),
    [
        (TEXT, TOKENS, IDS, 41_946_112),
        (RATINGS, RATING, Input((), "float32"), 8_781_312),
        (IMAGES, Signature(Task.CLASSES, {"image": Input((32, 32, 3))}, 10), IDS, 31_505_920),
    ],
    ids=["text", "recommender", "vgg"],
)
def test_the_compiler_needs_more(
    values: dict[str, Any], signature: Signature, label: Input, compiled_bytes: int
) -> None:
    """With libtpu 0.0.51 for v5e-8: the text model with its gradients would be above what the compiler needs."""
    found = memory_of(values, Batch(signature, (*signature.inputs.values(), label), ()))
    assert 0.4 * compiled_bytes < found.peak < compiled_bytes


def least(config: dict[str, Any], batch_size: int) -> dict[str, Any]:
    reporter = Reporter(io.StringIO())
    found = least_memory_of_choices(reporter, config, ["v5e-1"], [batch_size], ["float32"], "There is no compiler.")
    (verdict,) = found["verdicts"]
    return dict(verdict)


def test_what_is_certainly_too_large_does_not_fit() -> None:
    small = small_config().model_dump(mode="json")
    fits = least(small, 32)
    assert (fits["outcome"], "no compiler" in fits["reason"]) == ("could not tell", True)
    large = least(small, 1 << 28)
    assert large["outcome"] == "does not fit"
    assert "alone are larger" in large["reason"]


def test_a_subclassed_model_is_built_before_its_parameters_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(
        "import keras\nclass Net(keras.Model):\n"
        "    def __init__(self, shape, classes):\n        super().__init__()\n"
        "        self.flat, self.head = keras.layers.Flatten(), keras.layers.Dense(classes)\n"
        "    def call(self, x):\n        return self.head(self.flat(x))\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    own = small_config(model="mine.py:Net", model_options={}).model_dump(mode="json")
    assert least(own, 32)["memory"]["parameters"] == 4 * 650


HUGE = """
import keras
from keras import layers, ops

class Scaled(layers.Layer):
    def build(self, shape):
        self.scale = keras.Variable(ops.ones(shape[-1:]))  # from a value

    def call(self, x):
        return x * self.scale

def wide(*inner):
    wide = [layers.Dense(1_000_000, name="wide"), layers.Dense(1_000_000, name="wider"), layers.Dense(4)]
    return keras.Sequential([keras.Input((8, 8, 1)), layers.Flatten(), *inner, *wide])

def untouched(input_shape, classes):
    return wide()

def read(input_shape, classes):
    model = wide()
    float(ops.mean(model.layers[2].kernel))  # reads the weight
    return model

def made(input_shape, classes):
    return wide(Scaled())
"""


def test_weights_that_do_not_fit_this_machine_are_refused_with_the_line_that_needs_them(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HUGE, encoding="utf-8")

    def config(name: str) -> dict[str, Any]:
        return small_config(model=f"{file}:{name}", model_options={}).model_dump(mode="json")

    try:
        assert least(config("untouched"), 32)["memory"]["parameters"] > 4 * 10**12
        for model, line in (("read", "line 21: `float("), ("made", "line 7: self.scale")):
            with pytest.raises(ConsoleError, match=r"wider/kernel .* and this machine has [\d.]+ GB free") as refusal:
                least(config(model), 32)
            assert f"{file}, {line}" in str(refusal.value)
    finally:
        keras.utils.clear_session()  # the end of a later scope would make the weights


def test_a_saved_model_has_no_lower_bound() -> None:
    config = small_config(dataset="cifar10", model="hub", model_options={"path": "/nowhere"})
    assert least(config.model_dump(mode="json"), 32)["memory"] is None
