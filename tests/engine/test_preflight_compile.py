"""Real verdicts of the TPU's compiler, against a direct call of it and against counts by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from engine.preflight.cases import Case, cases_of
from engine.preflight.crew import judge_all
from engine.preflight.result import Outcome, Verdict, from_dict
from engine.preflight.topologies import find_topology
from engine.preflight.surroundings import PREFLIGHT
from presets.catalog import find_preset
from tests.helpers import LIMIT_S, run_python, small_config

if TYPE_CHECKING:
    from pathlib import Path

    from engine.config import RunConfig

pytestmark = pytest.mark.slow

BATCH = 128

# Nothing of ours: the preset's model by hand, and the calls of JAX that compile its step.
DIRECT = """
import json
import jax, keras, numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
layers = keras.layers
model = keras.Sequential([
    keras.Input((8, 8, 1)),
    layers.Conv2D(32, 3, padding="same"), layers.MaxPooling2D(2), layers.ReLU(),
    layers.Conv2D(64, 3, padding="same"), layers.MaxPooling2D(2), layers.ReLU(),
    layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dropout(0.3),
    layers.Dense(10, activation="softmax", dtype="float32"),
])
decay = keras.optimizers.schedules.CosineDecay(0.002, 60, alpha=0.01)
model.compile(keras.optimizers.Adam(decay), "sparse_categorical_crossentropy", metrics=["accuracy"])
model.optimizer.build(model.trainable_variables)
devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4").devices
mesh = Mesh(np.array(devices), ("batch",))
copied, dealt = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("batch"))
x = jax.ShapeDtypeStruct((1024, 8, 8, 1), "float32", sharding=dealt)
y = jax.ShapeDtypeStruct((1024,), "int32", sharding=dealt)
model._symbolic_build(data_batch=(x, y))
state = [
    [jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=copied) for v in variables]
    for variables in (model.trainable_variables, model.non_trainable_variables,
                      model.optimizer.variables, model.metrics_variables)
]
step = jax.jit(model.train_step, donate_argnums=0, out_shardings=(None, tuple([copied] * len(p) for p in state)))
compiled = step.lower(tuple(state), (x, y)).compile()
stats = compiled.memory_analysis()
print(json.dumps({
    "flops": compiled.cost_analysis()["flops"],
    "temporaries": stats.temp_size_in_bytes,
    "peak": stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
        + stats.temp_size_in_bytes + stats.generated_code_size_in_bytes,
}))
"""


def _job(options: dict[str, Any]) -> tuple[list[Verdict], list[dict[str, Any]]]:
    """Do the job as the console does; return the verdicts and everything it said."""
    arguments = [sys.executable, "-P", "-m", "engine.job", "preflight", json.dumps(options)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=3 * LIMIT_S, check=False)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, (said, done.stderr)
    return [from_dict(values) for values in said[-1]["verdicts"]], said


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Verdict], list[dict[str, Any]]]:
    """The preset digits-cnn at 128 a device, on eight devices and on four."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPU_CONSOLE_HOME", str(tmp_path_factory.mktemp("home")))
        config = find_preset("digits-cnn").config.model_dump(mode="json")
        options = {"config": config, "on": ["v5e-8", "v3-8", "v5e-1"], "batches": [BATCH]}
        found = _job(options)
        again, said = _job(options)
        assert all(verdict.is_remembered for verdict in again)
        assert [one["kind"] for one in said] == ["result"]
        return found


def test_a_small_model_fits(job: tuple[list[Verdict], list[dict[str, Any]]]) -> None:
    verdicts, said = job
    assert [(verdict.tpu, verdict.devices) for verdict in verdicts] == [("v5e-8", 8), ("v3-8", 8), ("v5e-1", 1)]
    for verdict in verdicts:
        assert verdict.outcome is Outcome.FITS, verdict.reason
        assert verdict.memory is not None
        assert verdict.bound is not None
        assert verdict.memory.headroom > 0.99
        # Adam keeps two numbers a weight, and counts steps.
        assert verdict.memory.optimizer >= 2 * 4 * 35_914
        assert verdict.memory.batch == BATCH * (8 * 8 * 4 + 4)
        assert verdict.bound.step_s > 0
    assert any("compiling the training step" in one["what"] for one in said if one["kind"] == "progress")


def test_it_agrees_with_a_direct_call_of_the_compiler(
    job: tuple[list[Verdict], list[dict[str, Any]]], tmp_path: Path
) -> None:
    verdict = job[0][0]
    direct = json.loads(run_python(DIRECT, cwd=tmp_path, env=PREFLIGHT))
    assert verdict.memory is not None
    assert verdict.bound is not None
    # The schedule's length and the seeds are other numbers in the same program.
    assert verdict.bound.flops == pytest.approx(direct["flops"], rel=0.01)
    assert verdict.memory.temporaries == pytest.approx(direct["temporaries"], rel=0.02)
    assert verdict.memory.peak == pytest.approx(direct["peak"], rel=0.02)


def test_operations_agree_with_a_count_by_hand(job: tuple[list[Verdict], list[dict[str, Any]]]) -> None:
    # Multiplications of one example, going forwards; with "same" padding those with the border are not done.
    first = (3 * 8 - 2) ** 2 * 1 * 32
    others = (3 * 4 - 2) ** 2 * 32 * 64 + 2 * 2 * 64 * 64 + 64 * 10
    # Backwards as much again for the weights, and for what came in; of the images nobody asks that.
    multiplications = 3 * (first + others) - first
    for verdict in job[0]:
        assert verdict.bound is not None
        assert verdict.bound.flops == pytest.approx(2 * multiplications * BATCH, rel=0.05), verdict.tpu


def test_devices_exchange_their_gradients(job: tuple[list[Verdict], list[dict[str, Any]]]) -> None:
    several, _, alone = (verdict.bound for verdict in job[0])
    assert several is not None
    assert alone is not None
    assert several.all_reduce_bytes == pytest.approx(2 * 7 / 8 * 4 * 35_914, rel=0.1)
    assert alone.all_reduce_bytes == 0
    # A device does the same work however many there are.
    assert alone.flops == pytest.approx(several.flops, rel=0.02)


def test_what_is_much_too_large_does_not_fit() -> None:
    config = find_preset("plant-pathology-efficientnet").config
    options = {"name": "ResNet50", "weights": "imagenet", "trainable": "all"}
    config = config.model_copy(
        update={
            "model_options": options,
            "batch_size": 4096,
            "precision": "mixed_bfloat16",
            "fine_tuning": config.fine_tuning.model_copy(update={"after_epochs": 0}),
        }
    )
    (verdict,) = _judged(config)
    assert verdict.outcome is Outcome.DOES_NOT_FIT, verdict.reason
    assert "15.75G" in verdict.compiler_says
    assert verdict.memory is not None
    assert verdict.memory.limit == round(15.75 * 2**30)
    assert 95 * 2**30 < verdict.memory.peak < 110 * 2**30
    assert "15.8 GiB" in verdict.reason


def _judged(config: RunConfig, limit_s: float = 300.0, *, search: bool = False) -> list[Verdict]:
    cases: list[Case] = cases_of(config, [find_topology("v5e-1")], [], [])
    return judge_all(cases, lambda *_: None, limit_s=limit_s, search=search)


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

def with_values(input_shape, classes):
    return keras.Sequential([
        keras.Input(input_shape), Counted(), keras.layers.Flatten(), keras.layers.Dense(classes, activation="softmax")])

def crashes(input_shape, classes):
    os.kill(os.getpid(), signal.SIGSEGV)

def hangs(input_shape, classes):
    while True:
        time.sleep(60)

def wrong(input_shape, classes):
    return keras.layers.Dense("many")
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "own.py"
    file.write_text(OWN, encoding="utf-8")
    return file


def test_a_layer_that_makes_values_of_its_own_is_built_for_real(own: Path) -> None:
    (verdict,) = _judged(small_config(model=f"{own}:with_values", model_options={}))
    assert verdict.outcome is Outcome.FITS, verdict.reason


def test_no_weights_are_fetched(own: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from engine.preflight.build import build; from engine.preflight.inputs import batch_of\n"
        "from engine.config import parse_config\n"
        "config = parse_config({'dataset': 'digits', 'model': sys.argv[1], 'batch_size': 8, 'epochs': 1})\n"
        "model = build(config, batch_of(config), 8)\n"
        "print(model.count_params(), any(variable._value is not None for variable in model.weights))"
    )
    env = PREFLIGHT | {"KERAS_HOME": str(tmp_path / "keras")}
    count, has_values = run_python(code, f"{own}:pretrained", cwd=tmp_path, env=env).split()
    assert int(count) > 900_000
    assert has_values == "False"
    assert not list((tmp_path / "keras").rglob("*.h5"))


def test_a_crash_is_told(own: Path) -> None:
    (verdict,) = _judged(small_config(model=f"{own}:crashes", model_options={}))
    assert verdict.outcome is Outcome.UNKNOWN
    assert "crashed while building the model: it was ended by SIGSEGV" in verdict.reason
    assert "preflight.log" in verdict.reason


def test_a_hang_ends_at_the_limit(own: Path) -> None:
    (verdict,) = _judged(small_config(model=f"{own}:hangs", model_options={}), limit_s=8.0)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "took longer than 8 s" in verdict.reason


def test_a_mistake_in_ones_own_function_is_told(own: Path) -> None:
    (verdict,) = _judged(small_config(model=f"{own}:wrong", model_options={}))
    assert verdict.outcome is Outcome.DOES_NOT_COMPILE
    assert "own.py" in verdict.reason
    assert verdict.findings[0].severity == "error"


def test_the_largest_batch_of_a_small_dataset_is_all_of_it() -> None:
    (verdict,) = _judged(small_config(), search=True)
    assert verdict.largest_batch == 1437


def test_a_tensorflow_program_is_told_apart(tmp_path: Path) -> None:
    config = small_config(model="hub", model_options={"path": str(tmp_path)})
    (verdict,) = _judged(config)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "TensorFlow" in verdict.reason
