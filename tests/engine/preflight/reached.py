"""Verdicts that one process reaches with the real compiler; a preflight has a process for each."""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.helpers import run_forked
from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.preflight.result import Verdict, from_dict
from tpu_console.engine.preflight.worker_pool import PREFLIGHT

_REACH = """
import json, sys
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.preflight.choice import TpuChoice
from tpu_console.engine.preflight.verdict import reach_verdict
from tpu_console.engine.preflight.topologies import find_topology
found = {}
for name, values in json.loads(sys.argv[2]).items():
    if name == "unreadable":
        import jaxlib._jax
        del jaxlib._jax.mlir.hlo_to_stablehlo
    choice = TpuChoice(parse_config(values), find_topology(sys.argv[1]))
    asked = {"search": name == "searched", "advise": not name.startswith("too-large")}
    found[name] = reach_verdict(choice, lambda *_: None, **asked).as_dict()
print(json.dumps(found))
"""


def verdicts_of(configs: Mapping[str, RunConfig], tpu: str, folder: Path, **env: str) -> dict[str, Verdict]:
    """Return the verdicts for a TPU; search the largest batch for the configuration named ``searched``.

    The one named ``unreadable`` meets a jaxlib without the function that reads TensorFlow's programs. For names that
    begin with ``too-large``, no changes are tried.
    """
    asked = {name: config.model_dump(mode="json") for name, config in configs.items()}
    said = run_forked(_REACH, tpu, json.dumps(asked), cwd=folder, env=PREFLIGHT | env)
    return {name: from_dict(values) for name, values in json.loads(said.splitlines()[-1]).items()}
