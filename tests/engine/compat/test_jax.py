"""Private names of JAX: they exist, take what is passed, and have no public replacement."""

from pathlib import Path

import jax
from jax._src import distributed
from jax._src.lib import _jax

from tests.helpers import run_forked
from tpu_console.engine.compat.jax import coordination_client
from tpu_console.engine.preflight.worker_pool import PREFLIGHT

COMPILE = """
import jax
import jax.experimental.topologies
from tpu_console.engine.compat.jax import compile_module, stablehlo
lowered = jax.jit(lambda x: x * 2).lower(jax.ShapeDtypeStruct((4,), "float32"))
module = stablehlo(lowered.compiler_ir("hlo").as_serialized_hlo_module_proto())
device = jax.experimental.topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2").devices[0]
print("stablehlo.multiply" in str(module), compile_module(module, device).cost_analysis()["flops"] > 0)
try:
    stablehlo(b"nothing")
except (ValueError, RuntimeError):
    print("refused")
"""


def test_a_program_of_xla_is_compiled(tmp_path: Path) -> None:
    printed = run_forked(COMPILE, cwd=tmp_path, env=PREFLIGHT)
    assert printed.split() == ["True", "True", "refused"]


def test_the_client_of_the_coordination_service_takes_what_is_passed() -> None:
    assert "allow_overwrite" in _jax.DistributedRuntimeClient.key_value_set.__doc__
    assert "timeout_in_ms" in _jax.DistributedRuntimeClient.wait_at_barrier.__doc__
    assert hasattr(_jax.DistributedRuntimeClient, "key_value_dir_get")
    assert hasattr(distributed.State, "initialize_preemption_sync_manager")
    assert coordination_client() is distributed.global_state.client is None


def test_jax_offers_no_public_call_for_these_yet() -> None:
    public = {name for name in dir(jax.distributed) if not name.startswith("_")}
    assert public == {"initialize", "is_initialized", "shutdown"}, "a new call may replace one of engine.compat.jax"
    assert not hasattr(jax, "mlir")
