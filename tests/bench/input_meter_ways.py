"""Processor time of taking one batch of 64, with and without the stage that measures the wait for it.

Prints one JSON object: microseconds a batch by pipeline, without and with the stage.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median
from typing import Any

from tests.bench.bench import HERE
from tpu_console.engine.config.reading import parse_config
from tpu_console.engine.data.kinds.table import load_examples
from tpu_console.engine.input.pipeline import build_pipeline
from tpu_console.engine.monitoring.input_rate import metered

PIPELINES: dict[str, dict[str, Any]] = {
    "as they are": {"dataset": f"{HERE / 'small_parts.py'}:data"},
    "scaled": {"dataset": "digits"},
    "changed at random": {"dataset": "digits", "augmentation": {"translation": 0.1, "rotation": 0.05}},
}
_WARM, _BATCHES = 500, 8000


def main() -> None:
    """Take batches of each pipeline in turn, each time from a new iterator, because two share their threads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, required=True)
    rounds = parser.parse_args().rounds
    print(json.dumps({name: _measure(values, rounds) for name, values in PIPELINES.items()}))


def _measure(values: dict[str, Any], rounds: int) -> tuple[float, float]:
    config = parse_config({"model": "cnn", "batch_size": 64, "epochs": 1, **values})
    examples = load_examples(config, lambda _detail: None)
    without, with_stage = [], []
    for _ in range(rounds):
        without.append(_batch_us(build_pipeline(examples, config, 1).train))
        with_stage.append(_batch_us(metered(build_pipeline(examples, config, 1).train)[0]))
    return median(without), median(with_stage)


def _batch_us(dataset: Any) -> float:
    batches = iter(dataset)
    for _ in range(_WARM):
        next(batches)
    began = time.process_time()
    for _ in range(_BATCHES):
        next(batches)
    return 1e6 * (time.process_time() - began) / _BATCHES


if __name__ == "__main__":
    main()
