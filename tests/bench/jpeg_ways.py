"""Reads a folder of JPEGs in one of several ways, changed at random, and throws the batches away.

Prints one JSON object: the images of an epoch, the seconds of each, the seconds before the first one, and how much
memory reading took at its peak.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH = 32
ROTATION_DEGREES, SHARE, CONTRAST = 20.0, 0.1, 0.2


def console(options: argparse.Namespace) -> Iterator[Any]:
    """Return the console's own batches, as `tpu-console run` feeds them to `fit`."""
    from tpu_console.engine.config.reading import parse_config
    from tpu_console.engine.data.kinds.table import load_examples
    from tpu_console.engine.input.cache import Room
    from tpu_console.engine.input.pipeline import build_pipeline

    config = parse_config(
        {
            "dataset": "image-folder",
            "model": "cnn",
            "batch_size": BATCH,
            "epochs": 1,
            "data": {
                "options": {
                    "path": str(options.folder / "train"),
                    "validation_path": str(options.folder / "validation"),
                    "image_size": [options.side, options.side],
                }
            },
            "augmentation": {
                "flip": "horizontal",
                "rotation": ROTATION_DEGREES,
                "zoom": SHARE,
                "translation": SHARE,
                "contrast": CONTRAST,
            },
        }
    )
    examples = load_examples(config, lambda _: None)
    room = Room(options.memory, 10**12) if options.memory else None

    cache = options.folder / "cache"
    pipeline = build_pipeline(examples, config, 1, cache_folder=cache, room=room)

    def batches() -> Iterator[Any]:
        with pipeline.reading(lambda _: None):
            yield from pipeline.train

    return batches()


def script(options: argparse.Namespace) -> Iterator[Any]:
    """Return the batches of Keras's own guide: layers mapped over `image_dataset_from_directory`."""
    layers = keras.layers
    changes = keras.Sequential(
        [
            layers.RandomFlip("horizontal"),
            layers.RandomRotation(ROTATION_DEGREES / 360),
            layers.RandomTranslation(SHARE, SHARE),
            layers.RandomZoom(SHARE),
            layers.RandomContrast(CONTRAST),
            layers.Rescaling(1 / 255),
        ]
    )
    data = keras.utils.image_dataset_from_directory(
        options.folder / "train", image_size=(options.side, options.side), batch_size=BATCH, verbose=False
    )
    if options.way == "script-cached":
        data = data.cache()
    changed = data.map(lambda x, y: (changes(x, training=True), y), num_parallel_calls=tf.data.AUTOTUNE)
    return _iterated(changed.prefetch(tf.data.AUTOTUNE).repeat())


def _iterated(data: Any) -> Iterator[Any]:
    """Yield the batches; making the iterator counts as part of the first epoch, as in the console."""
    yield from data


WAYS: dict[str, Callable[[argparse.Namespace], Iterator[Any]]] = {
    "console": console,
    "script": script,
    "script-cached": script,
}


def main() -> None:
    """Read the options, read the images, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("folder", type=Path, help="with a folder train and a folder validation, of a folder a class")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--side", type=int, default=128)
    parser.add_argument("--memory", type=int, default=0, help="bytes of memory to go by instead of what is free")
    options = parser.parse_args()
    steps = sum(1 for _ in (options.folder / "train").glob("*/*.jpg")) // BATCH
    memory_before = _peak_bytes()
    began = time.perf_counter()
    batches = WAYS[options.way](options)
    before_s = time.perf_counter() - began
    seconds, processor_s = [], []
    for _ in range(options.epochs):
        began, used = time.perf_counter(), time.process_time()
        for _ in range(steps):
            next(batches)
        seconds.append(time.perf_counter() - began)
        processor_s.append(time.process_time() - used)
    taken = _peak_bytes() - memory_before
    figures = {"images": steps * BATCH, "before_s": before_s, "seconds": seconds, "processor_s": processor_s}
    print(json.dumps(figures | {"peak_bytes": taken}))


def _peak_bytes() -> int:
    """Return the most memory this process had; what getrusage tells begins with that of whoever started it."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
