"""The processor time of what Keras calls after a small step, for each way of watching in turn.

All ways take turns in one process, because the same call may take a third longer in another process. Writes one JSON
object into a file, because a progress bar takes the output: for each way, the seconds per step in each of its turns.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import keras

from tests.bench.plain_small import WAYS, parts, watching

_STEPS, _FIRST = 400, 50


class StepEnds:
    """Takes the processor time of all callbacks at a step's end, in whichever thread Keras calls them."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        called = keras.callbacks.CallbackList._on_train_batch_end

        def timed(callbacks: Any, batch: int, logs: dict[str, float] | None = None) -> None:
            began = time.thread_time()
            called(callbacks, batch, logs)
            self._seconds.append(time.thread_time() - began)

        keras.callbacks.CallbackList._on_train_batch_end = timed

    def take(self) -> float:
        """Return the seconds per step since the last call, without the first steps."""
        counted, self._seconds = self._seconds[_FIRST:], []
        return sum(counted) / len(counted)


def main() -> None:
    """Read the options, train, write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--result", type=Path, required=True, help="the file to write")
    options = parser.parse_args()
    batches, model = parts()
    model.fit(batches, steps_per_epoch=_STEPS, verbose=0)
    ends = StepEnds()
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(options.turns):
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                model.fit(batches, steps_per_epoch=_STEPS, **watching(way, folder))
            seconds[way].append(ends.take())
    options.result.write_text(json.dumps(seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
