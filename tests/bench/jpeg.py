"""Images a second of the JPEG pipeline: read, decoded, shrunk, changed at random; without a model behind it.

As a program, it reads a folder in one of several ways, throws the batches away and prints one JSON object: the images
of an epoch, the seconds of each, the seconds before the first one, and how much memory reading took at its peak.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.bench.report import Row, Section, limit_row, ratio_row
from tests.images import write_image_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.bench import Bench

BATCH = 32
_CLASSES = ("one", "two", "three", "four")
_FULL_SIDE, _SIDE = 256, 128
_WAYS = {"console": 5, "script": 2, "script-cached": 3}
"""The ways of reading, and their epochs."""
_FREE = 600_000_000
"""Memory in the last measurement: less than its images take."""
_ROTATION_DEGREES, _SHARE, _CONTRAST = 20.0, 0.1, 0.2


def measure(bench: Bench) -> Section:
    """Read the same images in turn, in each way."""
    per_class = 800 if bench.is_quick else 1000
    folder = bench.folder / "jpeg"
    for part, count in (("train", per_class), ("validation", 2)):
        write_image_folder(folder / part, _CLASSES, count, (_FULL_SIDE, _FULL_SIDE))
    first, later, whole, work = ({way: list[float]() for way in _WAYS} for _ in range(4))
    for _ in bench.rounds(9, quick=2):
        for way, epochs in _WAYS.items():
            figures = _read(bench, way, folder, "--epochs", epochs, "--side", _SIDE)
            speeds = [figures["images"] / seconds for seconds in figures["seconds"]]
            first[way].append(speeds[0])
            whole[way].append(figures["images"] / (figures["before_s"] + figures["seconds"][0]))
            later[way].append(median(speeds[1:] or speeds))
            work[way].append(figures["images"] / figures["processor_s"][0])
    bounded = _read(bench, "console", folder, "--epochs", 2, "--side", _FULL_SIDE, "--memory", _FREE)
    shutil.rmtree(folder)

    def ratio(what: str, speeds: dict[str, list[float]], way: str, least: float | None = None) -> Row:
        return ratio_row(what, speeds["console"], speeds[way], least)

    script, cached = "`image_dataset_from_directory` script", "the script with `.cache()`"
    count = per_class * len(_CLASSES)
    decoded = count * _FULL_SIDE * _FULL_SIDE * 3
    peak, most = bounded["peak_bytes"] / 1e6, _FREE / 1e6
    return Section(
        "JPEG pipeline",
        f"{count:,} generated JPEGs of {_FULL_SIDE}×{_FULL_SIDE}, resized to {_SIDE}×{_SIDE} and augmented, in "
        f"batches of {BATCH}, without a model. *Script*: `keras.utils.image_dataset_from_directory` with the same "
        f"layers. Last row: two epochs of the full-size images, {decoded / 1e6:,.0f} MB decoded, with {most:,.0f} MB "
        "of memory free; TensorFlow's memory counts.",
        (
            Row("console, first epoch", f"{median(first['console']):,.0f} images/s"),
            Row("console, later epochs", f"{median(later['console']):,.0f} images/s"),
            Row(f"{script}, first epoch", f"{median(first['script']):,.0f} images/s"),
            Row(f"{script}, later epochs", f"{median(later['script']):,.0f} images/s"),
            Row(f"{cached}, later epochs", f"{median(later['script-cached']):,.0f} images/s"),
            ratio("first epoch ÷ script", first, "script", 2.0),
            ratio("first epoch ÷ script, in processor time", work, "script", 2.0),
            ratio("first epoch with finding and checking the files ÷ script", whole, "script", 1.0),
            ratio("later epochs ÷ script", later, "script", 5.0),
            ratio("later epochs ÷ script with `.cache()`", later, "script-cached"),
            limit_row("memory at its peak, data larger than its share", peak, most, "MB", 0),
        ),
    )


def _read(bench: Bench, way: str, folder: Path, *options: object) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(bench.output(bench.python("-m", "tests.bench.jpeg", way, folder, *options)))
    return figures


def _console(options: argparse.Namespace) -> Iterator[Any]:
    """Return the console's own batches, as `tpu-console run` feeds them to `fit`."""
    from tpu_console.engine.config.reading import parse_config
    from tpu_console.engine.data.kinds.table import load_examples
    from tpu_console.engine.input.pipeline import Room, build_pipeline

    train, validation = str(options.folder / "train"), str(options.folder / "validation")
    given = {"path": train, "validation_path": validation, "image_size": [options.side] * 2}
    changes = {"rotation": _ROTATION_DEGREES, "zoom": _SHARE, "translation": _SHARE, "contrast": _CONTRAST}
    values = {"dataset": "image-folder", "model": "cnn", "batch_size": BATCH, "epochs": 1, "data": {"options": given}}
    config = parse_config(values | {"augmentation": {"flip": "horizontal", **changes}})
    room = Room(options.memory, 10**12) if options.memory else None
    examples = load_examples(config, lambda _: None)
    return batches_of(build_pipeline(examples, config, 1, cache_folder=options.folder / "cache", room=room))


def batches_of(pipeline: Any) -> Iterator[Any]:
    """Yield the training batches of a pipeline of the console."""
    with pipeline.reading(lambda _: None):
        yield from pipeline.train


def _script(options: argparse.Namespace) -> Iterator[Any]:
    """Return the batches of Keras's own guide: layers mapped over `image_dataset_from_directory`."""
    import keras
    import tensorflow as tf

    layers = keras.layers
    changes = keras.Sequential(
        [
            layers.RandomFlip("horizontal"),
            layers.RandomRotation(_ROTATION_DEGREES / 360),
            layers.RandomTranslation(_SHARE, _SHARE),
            layers.RandomZoom(_SHARE),
            layers.RandomContrast(_CONTRAST),
            layers.Rescaling(1 / 255),
        ]
    )
    data = keras.utils.image_dataset_from_directory(
        options.folder / "train", image_size=(options.side, options.side), batch_size=BATCH, verbose=False
    )
    if options.way == "script-cached":
        data = data.cache()
    changed = data.map(lambda x, y: (changes(x, training=True), y), num_parallel_calls=tf.data.AUTOTUNE)
    # Making the iterator counts as part of the first epoch, as in the console.
    return chain.from_iterable([changed.prefetch(tf.data.AUTOTUNE).repeat()])


def timed(batches: Iterator[Any], steps: int, epochs: int) -> dict[str, Any]:
    """Time epochs; both clocks start before the first batch is asked for."""
    seconds, processor_s = [], []
    for _ in range(epochs):
        began, worked = time.perf_counter(), time.process_time()
        for _ in range(steps):
            next(batches)
        seconds.append(time.perf_counter() - began)
        processor_s.append(time.process_time() - worked)
    return {"images": steps * BATCH, "seconds": seconds, "processor_s": processor_s}


def _peak_bytes() -> int:
    """Return the most memory this process had; what getrusage tells begins with that of whoever started it."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def main() -> None:
    """Read the options, read the images, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=_WAYS)
    parser.add_argument("folder", type=Path, help="with a folder train and a folder validation, of a folder a class")
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--side", type=int, default=_SIDE)
    parser.add_argument("--memory", type=int, default=0, help="bytes of memory to go by instead of what is free")
    options = parser.parse_args()
    import keras  # noqa: F401  whose memory does not count

    steps = sum(1 for _ in (options.folder / "train").glob("*/*.jpg")) // BATCH
    memory_before, began = _peak_bytes(), time.perf_counter()
    batches = _console(options) if options.way == "console" else _script(options)
    before_s = time.perf_counter() - began
    figures = timed(batches, steps, options.epochs)
    print(json.dumps({**figures, "before_s": before_s, "peak_bytes": _peak_bytes() - memory_before}))


if __name__ == "__main__":
    main()
