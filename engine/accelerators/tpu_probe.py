"""Tries to connect a TPU, and prints the result as JSON.

It is started as ``python -P -m tpu_console.engine.accelerators.tpu_probe ADDRESS``.
It ends before the training process connects: a TPU has one user at a time.
"""

from __future__ import annotations

import json
import os
import sys
from typing import NoReturn

from ..errors import one_line
from ..machine.sources import this_machine


def main(address: str) -> NoReturn:
    """Connect, print ``{"devices": N}`` or ``{"error": …}``, and end without waiting for TensorFlow's threads."""
    if "Google" not in this_machine().text("sys/class/dmi/id/product_name"):
        # The resolver would wait for a metadata server that is not there.
        os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    import tensorflow as tf

    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address)
        if address != "local":
            tf.config.experimental_connect_to_cluster(resolver)
        topology = tf.tpu.experimental.initialize_tpu_system(resolver)
        answer = {"devices": topology.num_tasks * topology.num_tpus_per_task}
    except Exception as error:  # noqa: BLE001  whatever it is, the answer says it
        answer = {"error": f"{type(error).__name__}: {one_line(error)}"}
    print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
