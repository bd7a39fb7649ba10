"""The table of TPUs, and whether the compiler agrees with it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.helpers import run_forked
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.machine.devices import CHIPS
from tpu_console.engine.preflight.compiler_environment import PREFLIGHT
from tpu_console.engine.preflight.topologies import GENERATIONS, TOPOLOGIES, USUAL, find_topology

if TYPE_CHECKING:
    from pathlib import Path

_ASK_THE_COMPILER = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
found = {}
for name, compiler_name, options, is_sized in json.loads(sys.argv[1]):
    devices = topologies.get_topology_desc(topology_name=compiler_name, platform="tpu", **options).devices
    words = ""
    if is_sized:
        everywhere = NamedSharding(Mesh(np.array(devices), ("batch",)), PartitionSpec())
        huge = jax.ShapeDtypeStruct((1 << 30, 128), jnp.float32, sharding=everywhere)
        try:
            jax.jit(lambda x: x * 2).lower(huge).compile()
        except jax.errors.JaxRuntimeError as error:
            words = str(error)
    found[name] = [len(devices), len({device.process_index for device in devices}), words]
print(json.dumps(found))
"""


def test_the_usual_names_are_known() -> None:
    devices = {name: find_topology(name).devices for name in USUAL}
    assert devices == {
        "v2-8": 8,
        "v3-8": 8,
        "v4-8": 4,
        "v5e-1": 1,
        "v5e-4": 4,
        "v5e-8": 8,
        "v5p-8": 4,
        "v6e-1": 1,
        "v6e-4": 4,
        "v6e-8": 8,
        "tpu7x-8": 8,
    }
    assert {find_topology(name).hosts for name in USUAL} == {1}


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("v5litepod-8", "v5e-8"),
        ("V3-8", "v3-8"),
        ("TPU v4-8", "v4-8"),
        ("tpu_v6e_4", "v6e-4"),
        ("v7x-8", "tpu7x-8"),
        ("tpu7x-8", "tpu7x-8"),
        ("v5e-32", "v5e-32"),
    ],
)
def test_other_ways_to_write_a_name(written: str, name: str) -> None:
    assert find_topology(written).name == name


@pytest.mark.parametrize(
    ("written", "hint"),
    [("v5x-8", "did you mean"), ("v5e-9", "v5e-1, v5e-4, v5e-8"), ("a100", "The usual ones"), ("", "The usual ones")],
)
def test_an_unknown_name_names_the_nearest(written: str, hint: str) -> None:
    with pytest.raises(ConsoleError) as caught:
        find_topology(written)
    assert hint in str(caught.value)


def test_slices_are_on_several_hosts() -> None:
    assert (find_topology("v3-32").devices, find_topology("v3-32").hosts) == (32, 4)
    assert (find_topology("v5e-32").devices, find_topology("v5e-32").hosts) == (32, 8)


def test_two_cores_share_the_memory_of_a_chip() -> None:
    v3, v5p = find_topology("v3-8"), find_topology("v5p-8")
    assert v3.peak_flops == pytest.approx(61.5e12)
    assert v3.usable_hbm_bytes == round(15.48 * 2**30)
    assert v5p.peak_flops == pytest.approx(459e12)


def test_the_chips_are_those_that_detection_knows() -> None:
    for name, chip in CHIPS.items():
        generation = GENERATIONS["tpu7x" if name == "7x" else name]
        assert generation.devices_per_chip == chip.cores


@pytest.mark.slow
def test_the_compiler_agrees_with_the_table(tmp_path: Path) -> None:
    asked = [
        (topology.name, topology.compiler_name, topology.compiler_options, topology.name in USUAL)
        for topology in TOPOLOGIES.values()
    ]
    found = json.loads(run_forked(_ASK_THE_COMPILER, json.dumps(asked), cwd=tmp_path, env=PREFLIGHT))
    told = {name: (devices, hosts) for name, (devices, hosts, _) in found.items()}
    assert told == {name: (topology.devices, topology.hosts) for name, topology in TOPOLOGIES.items()}
    for name in USUAL:
        there = re.search(r"exceeds available HBM \(([\d.]+)G\)", found[name][2])
        assert there is not None, found[name][2]
        # It differs by a hundredth from one version to the next.
        assert float(there[1]) == pytest.approx(TOPOLOGIES[name].generation.usable_hbm_gib, abs=0.02), name
