"""What it costs to measure whether the input or the accelerator limits a run."""

from __future__ import annotations

import argparse
import json
import os
import time
from statistics import median
from typing import Any

from tests.bench.bench import HERE, Bench
from tests.bench.report import Row, Section

_MOST = 0.005
_SHORT_STEP_US = 1000.0
_CHANGED = ("--set", "augmentation.translation=0.1", "--set", "augmentation.rotation=0.05")


def measure(bench: Bench) -> Section:
    """Compare the processor time of a batch, and set it against a step's."""
    rounds = 3 if bench.is_quick else 9
    figures = json.loads(bench.output(bench.python("-m", "tests.bench.input_meter", "--rounds", rounds)))
    rows = []
    for name, (without, with_stage) in figures.items():
        figure = f"{without:.1f} µs, with the stage {with_stage:.1f} µs"
        rows.append(Row(f"a batch {name}", figure))
        if name != "changed at random":
            rows.append(_share_row("of a step of 1 ms", with_stage - without, _SHORT_STEP_US))
    step_us = _step_us(bench)
    without, with_stage = figures["changed at random"]
    cores = len(os.sched_getaffinity(0))
    rows.append(_share_row(f"of a step of `digits-cnn`, {step_us / 1e3:.1f} ms", with_stage - without, step_us * cores))
    return Section(
        "The input measured",
        "Processor time per batch of 64 examples, with and without the stage that measures how long training "
        "waits for its input. The share of a step counts all of it as delay; augmentation keeps all cores busy, "
        "so its share is of the step's time on all cores.",
        tuple(rows),
    )


def _share_row(of: str, more_us: float, step_us: float) -> Row:
    share = more_us / step_us
    return Row(f"the stage, {of}", f"{share:.2%}", f"≤ {_MOST:.1%}", share <= _MOST)


def _step_us(bench: Bench) -> float:
    options = ["digits-cnn", "--batch-size", 64, "--epochs", 4, "--set", "steps_per_execution=1", *_CHANGED, "--json"]
    records = bench.records(bench.console("run", *options))
    ends = (record for record in records if record["type"] == "EpochEnded")
    return 1e3 * median(float(record["step_ms"]) for record in ends if record["step_ms"])


PIPELINES: dict[str, dict[str, Any]] = {
    "as they are": {"dataset": f"{HERE / 'small_parts.py'}:data"},
    "scaled": {"dataset": "digits"},
    "changed at random": {"dataset": "digits", "augmentation": {"translation": 0.1, "rotation": 0.05}},
}
_WARM, _BATCHES = 500, 8000


def main() -> None:
    """Print the microseconds of a batch of each pipeline, without and with the stage, as a JSON object.

    The pipelines take turns, each time with a new iterator, because two share their threads.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, required=True)
    rounds = parser.parse_args().rounds
    print(json.dumps({name: _measure(values, rounds) for name, values in PIPELINES.items()}))


def _measure(values: dict[str, Any], rounds: int) -> tuple[float, float]:
    from tpu_console.engine.config.reading import parse_config
    from tpu_console.engine.data.kinds.table import load_examples
    from tpu_console.engine.input.pipeline import build_pipeline
    from tpu_console.engine.monitoring.input_rate import metered

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
