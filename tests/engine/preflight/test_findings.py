"""Models with something wrong, and what the preflight says about them with the real TPU compiler."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import run_forked
from tpu_console.engine.preflight.worker_pool import PREFLIGHT

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("libtpu", reason="the extra [tpu] is not installed")
pytestmark = pytest.mark.slow

# Compiles models, and prints what is found in each as JSON.
SCRIPT = """
import json, sys
from msgspec import to_builtins
import jax, keras
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tpu_console.engine.preflight.hlo import moved_by, program_findings
from tpu_console.engine.preflight.layers import all_layers
from tpu_console.engine.preflight.program import HloProgram, hbm_bytes
sys.path.insert(0, ".")
import models

chip = topologies.get_topology_desc("v5e:1x1", "tpu", chips_per_host_bounds=(1, 1, 1))
mesh = Mesh(np.array(chip.devices), ("batch",))
everywhere = NamedSharding(mesh, PartitionSpec())

def abstract(variables):
    return [jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=everywhere) for v in variables]

def lowered(model, batch):
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.optimizer.build(model.trainable_variables)
    state = [model.trainable_variables, model.non_trainable_variables, model.optimizer.variables]
    image = jax.ShapeDtypeStruct((batch, *model.input_shape[1:]), "float32", sharding=everywhere)
    label = jax.ShapeDtypeStruct((batch,), "int32", sharding=everywhere)
    def step(trainable, fixed, x, y):
        def loss(trainable):
            out, updates = model.stateless_call(trainable, fixed, x, training=True)
            return keras.losses.sparse_categorical_crossentropy(y, out, from_logits=True).mean(), updates
        return jax.value_and_grad(loss, has_aux=True)(trainable)
    return jax.jit(step).lower(abstract(state[0]), abstract(state[1]), image, label)

found = {}
for name in sys.argv[1].split(","):
    model = getattr(models, name)()
    program = HloProgram(lowered(model, 8).compile().as_text())
    moved = moved_by(program, frozenset(layer.name for layer in all_layers(model))).by_layer
    findings = [to_builtins(one) for one in program_findings(program, model, 8)]
    found[name] = {"findings": findings, "moved": sum(moved.values()), "total": hbm_bytes(program)}
print(json.dumps(found))
"""

MODELS = """
import jax, keras
from keras import layers

class Printed(layers.Layer):
    def compute_output_spec(self, x, **_):
        return keras.KerasTensor(x.shape, x.dtype)
    def call(self, x):
        jax.debug.print("{m}", m=x.mean())
        return x

def _images(layer, side=8):
    end = [layers.GlobalAveragePooling2D(), layers.Dense(10, name="head")]
    return keras.Sequential([keras.Input((side, side, 3)), layer, *end])

def printed(): return _images(Printed(name="talker"))
def clean(): return _images(layers.Conv2D(128, 3, name="conv"))
def rotated(): return _images(layers.RandomRotation(0.1, name="turner"), 32)
def shuffled():
    return keras.Sequential([keras.Input((111, 96, 200)), layers.Permute((3, 1, 2), name="turned"),
        layers.Reshape((37, -1), name="cut"), layers.Dense(8), layers.Flatten(), layers.Dense(10, name="head")])
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is found in each model, by its name."""
    folder: Path = tmp_path_factory.mktemp("findings")
    (folder / "models.py").write_text(MODELS)
    output = run_forked(SCRIPT, "printed,clean,rotated,shuffled", cwd=folder, env=PREFLIGHT)
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def test_rotation_in_the_model_is_found_by_the_numbers_it_gathers(results: dict[str, Any]) -> None:
    (finding,) = results["rotated"]["findings"]
    assert (finding["layer"], finding["severity"], finding["key"]) == ("turner", "warning", "augmentation.rotation")
    # Four neighbours of each number, of the picture and of its edge.
    assert f"{8 * 8 * 32 * 32 * 3:,} numbers" in finding["text"]
    # The layer is in the user's own model, where `augmentation.placement` has no effect.
    assert finding["remedy"].startswith("Remove the layer")


def test_the_bytes_of_the_layers_add_up_to_those_of_the_step(results: dict[str, Any]) -> None:
    for name, found in results.items():
        assert found["moved"] == pytest.approx(found["total"], rel=0.001), name


def test_a_clean_model_has_no_findings(results: dict[str, Any]) -> None:
    assert results["clean"]["findings"] == []


def test_a_layer_that_prints_calls_the_host(results: dict[str, Any]) -> None:
    (finding,) = results["printed"]["findings"]
    assert "calls the host" in finding["text"]
    assert finding["layer"] in {"talker", ""}


def test_many_changes_of_layout_are_reported(results: dict[str, Any]) -> None:
    (finding,) = results["shuffled"]["findings"]
    assert (finding["severity"], finding["layer"]) == ("info", "turned")
    assert "layout of data" in finding["text"]
