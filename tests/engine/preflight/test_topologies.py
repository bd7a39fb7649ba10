"""The table of TPUs, and whether the compiler agrees with it."""

import json
import re
from pathlib import Path

import pytest

from tests.helpers import run_forked
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.machine.devices import CHIPS
from tpu_console.engine.preflight.topologies import GENERATIONS, TOPOLOGIES, USUAL, find_topology, generation_of
from tpu_console.engine.preflight.worker_pool import PREFLIGHT

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
    assert [find_topology(name).devices for name in USUAL] == [8, 8, 4, 1, 4, 8, 4, 1, 4, 8, 8]
    assert {find_topology(name).hosts for name in USUAL} == {1}
    assert [(one.devices, one.hosts) for one in map(find_topology, ("v3-32", "v5e-32"))] == [(32, 4), (32, 8)]


def test_the_number_in_a_name_counts_chips_or_two_cores_of_each() -> None:
    for name, one in TOPOLOGIES.items():
        cores = 1 if one.generation.name in {"v5e", "v6e"} else 2
        assert name == f"{one.generation.name}-{cores * one.chips}"


def test_other_ways_to_write_a_name() -> None:
    written = "v5litepod-8", "TPU v4-8", "tpu_v6e_4", "v7x-8", "tpu v3", "v5 lite", "trillium", "ironwood-16"
    names = ["v5e-8", "v4-8", "v6e-4", "tpu7x-8", "v3-8", "v5e-8", "v6e-8", "tpu7x-16", "v3-32"]
    assert [find_topology(name).name for name in (*written, "Cloud TPU v3-32")] == names


def test_devices_are_known_by_what_jax_calls_them() -> None:
    kinds = "TPU v2", "TPU v4", "TPU v5 lite", "TPU v5", "TPU v5p", "TPU v6 lite", "TPU7x"
    assert [generation_of(kind) for kind in kinds] == ["v2", "v4", "v5e", "v5p", "v5p", "v6e", "tpu7x"]


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("v5x-8", "did you mean"),
        ("v5e-9", "did you mean 'v5e-8'? Of v5e there are: v5e-1, v5e-4, v5e-8"),
        ("v3-16", "did you mean 'v3-8'?"),
        ("v5e-6", "did you mean 'v5e-8'?"),
        ("a100", "The usual ones"),
        ("", "The usual ones"),
    ],
)
def test_an_unknown_name_names_the_nearest(written: str, hint: str) -> None:
    with pytest.raises(ConsoleError) as caught:
        find_topology(written)
    assert hint in str(caught.value)


def test_the_largest_slices_on_offer_are_known() -> None:
    offered = "v2-512", "v3-2048", "v4-8192", "v5e-256", "v5p-12288", "v6e-256", "tpu7x-18432"
    assert [find_topology(name).chips for name in offered] == [256, 1024, 4096, 256, 6144, 256, 9216]
    assert {name for name, one in GENERATIONS.items() if f"{name}-{max(one.shapes)}" in offered} == {*GENERATIONS}


def test_no_figure_is_below_what_jax_says() -> None:
    from jax._src.pallas.mosaic.tpu_info import ChipVersion, get_tpu_info_for_chip

    chips = {"v2": "V2", "v3": "V3", "v4": "V4", "v5e": "V5E", "v5p": "V5P", "v6e": "V6E", "tpu7x": "7X"}
    for name, chip in chips.items():
        info = get_tpu_info_for_chip(ChipVersion[f"TPU_{chip}"], 1)
        cores = ChipVersion[f"TPU_{chip}"].num_physical_tensor_cores_per_chip
        assert GENERATIONS[name].flops >= cores * info.bf16_ops_per_second
        assert GENERATIONS[name].hbm >= cores * info.mem_bw_bytes_per_second


def test_two_cores_share_what_a_chip_has_but_its_links() -> None:
    v3, v5p = find_topology("v3-8"), find_topology("v5p-8")
    assert (v3.peak_flops, v3.hbm_bytes_per_s, v3.link_bytes_per_s) == (70e12, 450e9, 332e9)
    assert (v5p.peak_flops, v5p.hbm_bytes_per_s) == (459e12, 2765e9)
    assert v3.usable_hbm_bytes == round(15.48 * 2**30)


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
        assert float(there[1]) == pytest.approx(TOPOLOGIES[name].generation.usable_hbm, abs=0.02), name
