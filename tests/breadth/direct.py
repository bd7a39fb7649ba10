"""Compiles one model by direct calls of JAX and prints what the compiler says: ``python -m tests.breadth.direct NAME``.

Nothing of the preflight is used.
"""

import json
import re
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
    """Print what the compiler says of a model."""
    print(json.dumps(compiled_figures(name, batch)))


def looped_flops(text: str, rounds: int) -> float:
    """Return the operations of all rounds but the first of a program's loops, each body as XLA counts it alone.

    The compiler counts a loop once. Nothing else of these models is in a loop.
    """
    from jaxlib import _hlo, _jax  # type: ignore[attr-defined]

    client, program, total = jax.devices("cpu")[0].client, re.sub(r"^ENTRY ", "", text, flags=re.M), 0.0
    for name in {*re.findall(r"(?:body|condition)=%?([\w.-]+)", text)}:
        alone = re.sub(rf"^%?{re.escape(name)} \(", f"ENTRY %{name} (", program, flags=re.M).partition("\n")[2]
        module = _hlo.hlo_module_from_text(f"HloModule loop\n{alone}")
        total += (rounds - 1) * _jax.hlo_module_cost_analysis(client, module)["flops"]
    return total


def compiled_figures(name: str, batch: int) -> dict[str, Any]:
    """Compile a training step for v5e-8, with `batch` examples per device."""
    shape, build = models.shape_of(name), getattr(models, "build")  # noqa: B009  without types
    model: Any = build(shape, 10, name)
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
        return {"outcome": "does not fit" if "HBM" in str(error) else "does not compile", "says": str(error)}
    stats = compiled.memory_analysis()
    held = stats.argument_size_in_bytes + stats.output_size_in_bytes - stats.alias_size_in_bytes
    peak = held + stats.temp_size_in_bytes + stats.generated_code_size_in_bytes
    flops = compiled.cost_analysis()["flops"]
    if name in RECURRENT:
        flops += looped_flops(compiled.as_text(), rounds=shape[0])
    return {"outcome": "fits", "flops": flops, "peak": peak, "temporaries": stats.temp_size_in_bytes}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
