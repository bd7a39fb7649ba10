"""Compiles one model by direct calls of JAX and prints what the compiler says: ``python -m tests.breadth.direct NAME``.

Nothing of the preflight is used.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax
import keras
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.breadth import models

RECURRENT = ("lstm", "bidirectional_gru")


def main(name: str, batch: int) -> None:
    """Print what the compiler says of a model; a recurrent one is unrolled too, which counts its operations."""
    found = compiled_figures(name, batch, unroll=False)
    if name in RECURRENT:
        found["flops"] = compiled_figures(name, batch, unroll=True)["flops"]
    print(json.dumps(found))


def compiled_figures(name: str, batch: int, *, unroll: bool) -> dict[str, Any]:
    """Compile a training step for v5e-8, with `batch` examples per device."""
    shape, build = models.shape_of(name), getattr(models, "build")  # noqa: B009  without types
    model: Any = build(shape, 10, name, unroll=unroll)
    model.compile(keras.optimizers.Adam(0.001), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.optimizer.build(model.trainable_variables)
    devices = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4").devices
    mesh = Mesh(np.array(devices), ("batch",))
    copied, dealt = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("batch"))
    x = jax.ShapeDtypeStruct((8 * batch, *shape), "float32", sharding=dealt)
    y = jax.ShapeDtypeStruct((8 * batch,), "int32", sharding=dealt)
    model._symbolic_build(data_batch=(x, y))
    parts = (
        model.trainable_variables,
        model.non_trainable_variables,
        model.optimizer.variables,
        model.metrics_variables,
    )
    state = [[jax.ShapeDtypeStruct(v.shape, v.dtype, sharding=copied) for v in part] for part in parts]
    shardings = (None, tuple([copied] * len(part) for part in state))
    step = jax.jit(model.train_step, donate_argnums=0, out_shardings=shardings)
    try:
        compiled = step.lower(tuple(state), (x, y)).compile()
    except jax.errors.JaxRuntimeError as error:
        return {"outcome": "does not fit" if "HBM" in str(error) else "does not compile"}
    stats = compiled.memory_analysis()
    held = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    peak = held + stats.temp_size_in_bytes + stats.generated_code_size_in_bytes
    return {"outcome": "fits", "flops": compiled.cost_analysis()["flops"], "peak": peak}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
