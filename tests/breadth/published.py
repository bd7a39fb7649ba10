"""Asks for the bound of a published run's step: ``python -m tests.breadth.published NAME TPU BATCH``.

`engine.preflight.likely` keeps the bounds beside the published times: ``ResNet50 v3-8 128``, ``ResNet50 v3-32 32``,
``ResNet50 v2-32 32``, ``EfficientNetB0 v2-8 256``, ``bert_128 v3-32 16`` and ``bert_512 v3-32 16`` (BERT-Large with
sequences of 128 and of 512 words). The last three take about five minutes each.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from tests.breadth.__main__ import MODELS, verdict_on
from tpu_console.engine.data.cached_facts import FunctionRecord
from tpu_console.engine.data.examples import Input

SGD, RMSPROP = "sgd(momentum=0.9)", "rmsprop(momentum=0.9)"


def run_of(name: str) -> tuple[dict[str, Any], FunctionRecord]:
    """Return the settings of a published run, and what its dataset gives."""
    if name.startswith("bert_"):
        length = int(name.removeprefix("bert_"))
        masked = {128: 20, 512: 80}[length]
        values: dict[str, Any] = {
            "model": f"{MODELS}:bert_large",
            "model_options": {"masked": masked},
            "optimizer": {"name": "adamw"},
        }
        return values, FunctionRecord(
            (Input((length,), "int32"), Input((masked,), "int32")), (), 30_522, None, 0, "2026-11-22"
        )
    values = {
        "model": "application",
        "model_options": {"name": name, "weights": "none", "trainable": "all"},
        "optimizer": {"name": SGD if name.startswith("ResNet") else RMSPROP},
    }
    return values, FunctionRecord(
        (Input((224, 224, 3), "uint8"), Input((), "int32")), (), 1000, 1_281_167, 0, "2026-11-22"
    )


def main(name: str, tpu: str, batch: int) -> None:
    """Print the bound of a published run's step."""
    values, record = run_of(name)
    verdict = verdict_on({**values, "batch_size": batch, "precision": "mixed_bfloat16"}, record, tpu)
    print(verdict.reason, asdict(verdict.bound) if verdict.bound else "")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
