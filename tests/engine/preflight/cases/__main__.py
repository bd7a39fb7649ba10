"""Asks the TPU compiler for the verdicts that are kept beside: ``python -m tests.engine.preflight.cases [NAME…]``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.preflight.choice import TpuChoice
from tpu_console.engine.preflight.topologies import find_topology
from tpu_console.engine.preflight.worker_pool import reach_verdicts

FOLDER = Path(__file__).parent
ON = "v5e-1"
BFLOAT16 = {"precision": "mixed_bfloat16"}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    # name: model function, TPU, settings
    "fine": ("fine", ON, {"batch_size": 1024}),
    "fine-small-batch": ("fine", ON, {"batch_size": 8}),
    "fine-eight-chips": ("fine", "v5e-8", {"batch_size": 256}),
    "fine-bfloat16": ("fine", ON, {"batch_size": 1024, **BFLOAT16}),
    "lstm": ("lstm", ON, {"batch_size": 256}),
    "halving": ("halving", ON, {"batch_size": 1024}),
    "rotated": ("rotated", ON, {"batch_size": 64}),
    "wide": ("wide", ON, {"batch_size": 1024}),
    "printed": ("printed", ON, {"batch_size": 1024}),
    "padded": ("padded", ON, {"batch_size": 1024}),
    "too-large-batch": ("images", ON, {"batch_size": 320}),
    "too-large-bfloat16": ("images", ON, {"batch_size": 2048, **BFLOAT16}),
    "too-large-table": ("table", ON, {"batch_size": 64}),
    "too-large-weights": ("weights", ON, {"batch_size": 16}),
    "too-large-attention": ("attention", ON, {"batch_size": 512}),
}


def main(names: list[str]) -> None:
    """Write the verdict on each case."""
    for name in names or list(CASES):
        model, tpu, settings = CASES[name]
        values = {"dataset": "cifar10", "model": f"{FOLDER / 'compiled.py'}:{model}", "epochs": 10, **settings}
        choice = TpuChoice(parse_config(values), find_topology(tpu))
        (verdict,) = reach_verdicts([choice], lambda *_: None, use_cache=False)
        found = {"settings": settings, "verdict": verdict.as_dict()}
        (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(name, verdict.outcome.value, verdict.reason, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
