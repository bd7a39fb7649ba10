"""Reads a folder of JPEGs in one of several ways, changed at random, and throws the batches away.

Prints one JSON object: the images of an epoch, the seconds of each, the seconds before the first one, and how much
memory reading took at its peak.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf
from PIL import Image, features

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


def libjpeg(options: argparse.Namespace) -> Iterator[Any]:
    """Decode with libjpeg-turbo in Pillow, at the least of its sizes that is large enough, and nothing else."""
    if not features.check("libjpeg_turbo"):
        raise SystemExit("this Pillow has another libjpeg")
    files = sorted((options.folder / "train").glob("*/*.jpg"))

    def decode(file: Path) -> None:
        with Image.open(file) as image:
            image.draft("RGB", (options.side, options.side))
            image.load()

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:  # Pillow decodes without Python's lock
        for number, _ in enumerate(pool.map(decode, files)):
            if number % BATCH == BATCH - 1:
                yield None


def generator(options: argparse.Namespace) -> Iterator[Any]:
    """Return batches made by PIL, NumPy and SciPy in Python, the way `ImageDataGenerator` made them."""
    files = sorted((options.folder / "train").glob("*/*.jpg"))
    classes = sorted({file.parent.name for file in files})
    random = np.random.default_rng(0)

    def batches() -> Iterator[Any]:
        while True:
            order = random.permutation(len(files))
            for start in range(0, len(files) - BATCH + 1, BATCH):
                chosen = [files[index] for index in order[start : start + BATCH]]
                images = np.stack([_changed(_read(file, options.side), random) for file in chosen])
                yield images / np.float32(255), np.array([classes.index(file.parent.name) for file in chosen])

    return batches()


def _read(file: Path, side: int) -> Any:
    with Image.open(file) as image:
        return np.asarray(image.convert("RGB").resize((side, side), Image.Resampling.BILINEAR), np.float32)


def _changed(image: Any, random: np.random.Generator) -> Any:
    from scipy.ndimage import affine_transform  # type: ignore[import-untyped]

    angle = np.deg2rad(random.uniform(-ROTATION_DEGREES, ROTATION_DEGREES))
    zoom = random.uniform(1 - SHARE, 1 + SHARE)
    turn = zoom * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    centre = (np.array(image.shape[:2]) - 1) / 2
    offset = centre - turn @ centre + random.uniform(-SHARE, SHARE, 2) * image.shape[0]
    channels = [affine_transform(image[..., n], turn, offset, order=1, mode="reflect") for n in range(3)]
    image = np.stack(channels, axis=-1)
    if random.random() < 0.5:
        image = image[:, ::-1]
    mean = image.mean(axis=(0, 1))
    return np.clip((image - mean) * random.uniform(1 - CONTRAST, 1 + CONTRAST) + mean, 0, 255)


WAYS: dict[str, Callable[[argparse.Namespace], Iterator[Any]]] = {
    "console": console,
    "script": script,
    "script-cached": script,
    "generator": generator,
    "libjpeg": libjpeg,
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
