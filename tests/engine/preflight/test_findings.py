"""Models with something wrong, and what the preflight says about them with the real TPU compiler."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers import run_forked

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("libtpu", reason="the extra [tpu] is not installed")
pytestmark = pytest.mark.slow

ENV = {
    "KERAS_BACKEND": "jax",
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}

# Traces models, compiles some, and prints what is found in each as JSON.
SCRIPT = """
import dataclasses, json, sys
import jax, keras
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tpu_console.engine.preflight.explain import changing_shapes, explain_refusal
from tpu_console.engine.preflight.hlo import moved_by, program_findings
from tpu_console.engine.preflight.layers import all_layers
from tpu_console.engine.preflight.bound import hbm_bytes
from tpu_console.engine.preflight.program import HloProgram
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
    model = None
    try:
        model = getattr(models, name)()
        found[name] = {"changing": [dataclasses.asdict(one) for one in changing_shapes(model)]}
        compiled = lowered(model, 8).compile()
    except Exception as error:
        text, findings = explain_refusal(error, model)
        found[name] = found.get(name, {}) | {"refused": text}
    else:
        program = HloProgram(compiled.as_text())
        findings = program_findings(program, model, 8)
        moved = moved_by(program, frozenset(layer.name for layer in all_layers(model))).by_layer
        found[name] |= {"moved": sum(moved.values()), "total": hbm_bytes(program)}
    found[name]["findings"] = [dataclasses.asdict(one) for one in findings]
print(json.dumps(found))
"""

MODELS = '''
import jax, keras
from keras import layers

class _Same(layers.Layer):
    """Says that the shape stays, so that only compiling calls it with values."""
    def compute_output_spec(self, x, **_):
        return keras.KerasTensor(x.shape, x.dtype)

class Branches(_Same):
    def call(self, x):
        if x.mean() > 0:
            return x
        return -x

class Printed(_Same):
    def call(self, x):
        jax.debug.print("{m}", m=x.mean())
        return x

class RandomWidth(layers.Layer):
    def compute_output_spec(self, x, **_):
        return keras.KerasTensor((x.shape[0], x.shape[1], None, x.shape[3]), x.dtype)
    def call(self, x):
        width = jax.random.randint(jax.random.key(0), (), 4, 8)
        return keras.ops.image.resize(x, (8, width))

def _dense(layer):
    return keras.Sequential([keras.Input((16,)), layers.Dense(10, name="first"), layer, layers.Dense(10, name="head")])

def _images(layer, side=8):
    end = [layers.GlobalAveragePooling2D(), layers.Dense(10, name="head")]
    return keras.Sequential([keras.Input((side, side, 3)), layer, *end])

def branches(): return _dense(Branches(name="sided"))
def inner(): return _dense(keras.Sequential([Branches(name="deep")], name="box"))
def width(): return _images(RandomWidth(name="narrower"))
def printed(): return _dense(Printed(name="talker"))
def clean(): return _images(layers.Conv2D(128, 3, name="conv"))
def rotated(): return _images(layers.RandomRotation(0.1, name="turner"), 32)
def remembers():
    kept = []
    jax.jit(lambda x: kept.append(x))(1.0)
    return kept[0] + 1
def memory():
    raise RuntimeError("RESOURCE_EXHAUSTED: CompileTimeHbmOom: usage (101.68G) exceeds available HBM (15.75G)")
def shuffled():
    return keras.Sequential([keras.Input((111, 96, 200)), layers.Permute((3, 1, 2), name="turned"),
        layers.Reshape((37, -1), name="cut"), layers.Dense(8), layers.Flatten(), layers.Dense(10, name="head")])
def text(): return _dense(layers.Lambda(lambda x: keras.ops.convert_to_tensor(["a"]), output_shape=(10,), name="words"))
'''


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is found in each model, by its name."""
    folder: Path = tmp_path_factory.mktemp("findings")
    (folder / "models.py").write_text(MODELS)
    names = "branches,inner,width,printed,clean,rotated,text,remembers,memory,shuffled"
    output = run_forked(SCRIPT, names, cwd=folder, env=os.environ | ENV)
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("name", "layer", "text", "remedy"),
    [
        ("branches", "sided", "makes a Python decision", "keras.ops.where"),
        ("inner", "deep", "makes a Python decision", "keras.ops.where"),
        ("width", "narrower", "an output whose shape changes", "fixed size"),
        ("text", "words", "strings or 64-bit numbers", "input pipeline"),
    ],
)
def test_a_refusal_names_the_layer_and_the_remedy(
    results: dict[str, Any], name: str, layer: str, text: str, remedy: str
) -> None:
    refused = results[name]["refused"]
    (finding,) = results[name]["findings"]
    assert f"'{layer}'" in refused
    assert text in refused
    assert (finding["layer"], finding["severity"]) == (layer, "error")
    assert remedy in finding["remedy"]
    assert "models.py, line " in finding["evidence"][0]


def test_a_layer_that_changes_the_width_is_known_before_it_is_compiled(results: dict[str, Any]) -> None:
    (finding,) = results["width"]["changing"]
    assert (finding["layer"], finding["severity"]) == ("narrower", "error")
    assert [name for name, found in results.items() if found.get("changing")] == ["width"]


def test_rotation_in_the_model_is_found_by_the_numbers_it_gathers(results: dict[str, Any]) -> None:
    (finding,) = results["rotated"]["findings"]
    assert (finding["layer"], finding["severity"], finding["key"]) == ("turner", "warning", "augmentation.rotation")
    # Four neighbours of each number, of the picture and of its edge.
    assert f"reads {8 * 8 * 32 * 32 * 3:,} numbers one by one" in finding["text"]
    # The layer is in the user's own model, where `augmentation.placement` has no effect.
    assert "Remove the layer from the model and set augmentation.rotation instead" in finding["remedy"]


def test_the_bytes_of_the_layers_add_up_to_those_of_the_step(results: dict[str, Any]) -> None:
    for name in ("rotated", "clean", "shuffled"):
        assert results[name]["moved"] == pytest.approx(results[name]["total"], rel=0.001), name


def test_a_clean_model_has_no_findings(results: dict[str, Any]) -> None:
    assert results["clean"]["findings"] == []


def test_a_layer_that_prints_calls_the_host(results: dict[str, Any]) -> None:
    (finding,) = results["printed"]["findings"]
    assert "calls the host" in finding["text"]
    assert finding["layer"] in {"talker", ""}


def test_a_value_that_outlives_its_step_has_a_remedy(results: dict[str, Any]) -> None:
    (finding,) = results["remembers"]["findings"]
    assert "The model keeps a value from one step for a later one" in results["remembers"]["refused"]
    assert "self.add_weight" in finding["remedy"]


def test_a_refusal_for_its_size_carries_the_compilers_figures(results: dict[str, Any]) -> None:
    (finding,) = results["memory"]["findings"]
    assert results["memory"]["refused"] == "The step needs 101.68 GiB, and a device has 15.75 GiB."
    assert (finding["severity"], finding["key"]) == ("error", "batch_size")


def test_many_changes_of_layout_are_reported(results: dict[str, Any]) -> None:
    (finding,) = results["shuffled"]["findings"]
    assert (finding["severity"], finding["layer"]) == ("info", "turned")
    assert "only change the layout of data, the most for the layer 'turned'" in finding["text"]
