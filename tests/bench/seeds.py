"""Trains the preset `fashion-mnist-cnn` and the plain script side by side with several seeds.

``python -m tests.bench.seeds --seeds 5 --results FILE`` adds one line of JSON per trained model to the file, skips what
it has, and prints mean and spread. A model takes about half a minute on two free cores. This is no part of
``python -m tests.bench``, because it measures no speed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.bench import provide_fashion_mnist

if TYPE_CHECKING:
    from collections.abc import Callable


def of_preset(seed: int) -> tuple[float, float]:
    """Train the preset; return the accuracies of training and validation after the last epoch."""
    from tests.engine.jobs.predicting import train
    from tests.helpers import all_of
    from tpu_console.engine.config.reading import with_changes
    from tpu_console.engine.runs.events import EpochEnded
    from tpu_console.presets.catalog import find_preset

    changes = [("seed", seed), ("accelerator", "cpu"), ("sinks", []), ("checkpoint.monitor", "none")]
    config = with_changes(find_preset("fashion-mnist-cnn").config, changes)
    with tempfile.TemporaryDirectory() as folder:
        logs = all_of(train(config, Path(folder)), EpochEnded)[-1].logs
    return logs["accuracy"], logs["val_accuracy"]


def of_plain_script(seed: int) -> tuple[float, float]:
    """Train the plain script; return the same."""
    from tests.bench import plain_fashion

    history = plain_fashion.train([], 5, 60, seed)
    return history["accuracy"][-1], history["val_accuracy"][-1]


WAYS: dict[str, Callable[[int], tuple[float, float]]] = {"preset": of_preset, "plain script": of_plain_script}


def main() -> None:
    """Train what is missing, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.seeds", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="train with the seeds 1 to this")
    parser.add_argument("--results", type=Path, required=True, help="the file of results; it is added to")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tpu-console-seeds-") as folder:
        os.environ |= {"KERAS_HOME": f"{folder}/keras", "TPU_CONSOLE_HOME": folder, "TF_CPP_MIN_LOG_LEVEL": "3"}
        if provide_fashion_mnist(Path(folder) / "keras") != "Fashion-MNIST":
            raise SystemExit("Fashion-MNIST is not here.")
        for seed in range(1, options.seeds + 1):
            for way, trained in WAYS.items():
                if (way, seed) not in {(line["way"], line["seed"]) for line in _read(options.results)}:
                    training, validation = trained(seed)
                    line = {"way": way, "seed": seed, "accuracy": training, "val_accuracy": validation}
                    with options.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")
    for way in WAYS:
        print(_in_words(way, [line for line in _read(options.results) if line["way"] == way]))


def _read(results: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()] if results.exists() else []


def _in_words(way: str, lines: list[dict[str, Any]]) -> str:
    """Return the mean and the standard deviation of both accuracies."""
    figures = []
    for name in ("accuracy", "val_accuracy"):
        values = [line[name] for line in lines]
        figures.append(f"{name} {statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}")
    return f"{way}, {len(lines)} seeds: {', '.join(figures)}"


if __name__ == "__main__":
    main()
