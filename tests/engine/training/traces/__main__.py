"""Gets the files that `test_traces.py` reads.

``python -m tests.engine.training.traces [ADDRESS]`` fetches ``v6e.xplane.pb.gz``: a trace of eight real TPU v6e
chips, which openxla/xprof published under the Apache License 2.0 (a test of offloading to the host's memory). It is not
part of this repository; without it, its test is skipped.

``python -m tests.engine.training.traces programs`` makes ``*.hlo.pb.gz``: the training step of a small network as the
TPU compiler compiles it for a v5e chip, in float32 and in mixed_bfloat16.
"""

import gzip
import hashlib
import sys
import urllib.request
from pathlib import Path

FOLDER = Path(__file__).parent
_ADDRESS = (
    "https://raw.githubusercontent.com/openxla/xprof/01d85deb6a7a1bc712e00588ef43b4fc523ee5f7/"
    "xprof/convert/test_xplanes/tpu_inference_2.xplane.pb"  # later versions of this file are broken
)
_DIGEST = "e312ef8bd5a5104a44b36201bec0e743ef4868cb179c9b67b679c9955f8279c6"
_OPTIONS = {"filters": [128], "hidden": [256], "padding": "same", "dropout": 0.0, "batch_norm": False}


def _write_program(precision: str) -> None:
    from tests.helpers import small_config
    from tpu_console.engine.compat.tensorflow import trace_messages
    from tpu_console.engine.preflight.build import build
    from tpu_console.engine.preflight.choice import batch_of
    from tpu_console.engine.preflight.compile import Compiler, Subject
    from tpu_console.engine.preflight.topologies import find_topology

    config = small_config(model="cnn", model_options=_OPTIONS, batch_size=256, precision=precision, backend="jax")
    topology = find_topology("v5e-1")
    model, batch = build(config, batch_of(config), topology.devices)
    lowered = Subject(config, batch, model, Compiler(topology)).lowered("training")
    (module,) = lowered.compile().runtime_executable().hlo_modules()
    program = trace_messages()[1].HloProto()
    program.hlo_module.ParseFromString(module.as_serialized_hlo_module_proto())
    program.hlo_module.ClearField("stack_frame_index")
    for one in (one for part in program.hlo_module.computations for one in part.instructions):
        one.ClearField("backend_config")
    data = gzip.compress(program.SerializeToString(deterministic=True), mtime=0)
    (FOLDER / f"{precision}.hlo.pb.gz").write_bytes(data)


def _fetch(address: str) -> None:
    with urllib.request.urlopen(address, timeout=60) as answer:
        data = answer.read()
    if hashlib.sha256(data).hexdigest() != _DIGEST:
        sys.exit(f"{address} is another file than the one that the test was written for.")
    (FOLDER / "v6e.xplane.pb.gz").write_bytes(gzip.compress(data, mtime=0))


if __name__ == "__main__":
    if sys.argv[1:] == ["programs"]:
        for name in ("float32", "mixed_bfloat16"):
            _write_program(name)
    else:
        _fetch(*sys.argv[1:] or [_ADDRESS])
