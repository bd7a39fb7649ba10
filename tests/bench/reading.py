"""Images per second of the input pipeline, without a model: read, decoded, resized and augmented.

As a program, it reads a folder in one of several ways, throws the batches away and prints one JSON object: the images
of an epoch, the seconds of each, the seconds before the first one, and how much memory reading took at its peak.
"""

import argparse
import io
import json
import shutil
import time
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from PIL import Image

from tests.bench.bench import Bench
from tests.bench.report import Row, Section, limit_row, ratio_row
from tests.images import write_image_folder

Figures = dict[str, list[dict[str, Any]]]


_BATCH = 32
_FULL_SIDE, _SIDE = 256, 128
_FIRST, _LATER = slice(1), slice(1, None)


def _read(bench: Bench, way: str, folder: Path, *options: object) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(bench.output(bench.python("-m", "tests.bench.reading", way, folder, *options)))
    return figures


def _speeds(figures: Figures, way: str, key: str, epochs: slice) -> list[float]:
    """Return the images per second of some epochs, one figure per round; `key` names the clock."""
    return [each["images"] / median(each[key][epochs]) for each in figures[way]]


def _speed_row(what: str, figures: Figures, way: str, epochs: slice) -> Row:
    return Row(what, f"{median(_speeds(figures, way, 'seconds', epochs)):,.0f} images/s")


_CLASSES = ("one", "two", "three", "four")
_EPOCHS = {"console": 5, "script": 2, "script-cached": 3}
_FREE = 600_000_000
"""Memory in the last measurement: less than its images take."""
_ROTATION_DEGREES, _SHARE, _CONTRAST = 20.0, 0.1, 0.2


def jpeg(bench: Bench) -> Section:
    per_class = 800 if bench.is_quick else 1000
    folder = bench.folder / "jpeg"
    for part, count in (("train", per_class), ("validation", 2)):
        write_image_folder(folder / part, _CLASSES, count, (_FULL_SIDE, _FULL_SIDE))
    ways = {
        way: lambda way=way, epochs=epochs: _read(bench, way, folder, "--epochs", epochs)
        for way, epochs in _EPOCHS.items()
    }
    figures = bench.in_turn(bench.rounds(9, quick=2), ways)
    bounded = _read(bench, "console", folder, "--epochs", 2, "--side", _FULL_SIDE, "--memory", _FREE)
    shutil.rmtree(folder)

    def ratio(what: str, way: str, key: str, epochs: slice, least: float | None = None) -> Row:
        return ratio_row(what, _speeds(figures, "console", key, epochs), _speeds(figures, way, key, epochs), least)

    ours, theirs = (
        [each["images"] / (each["before_s"] + each["seconds"][0]) for each in figures[way]]
        for way in ("console", "script")
    )
    script, cached = "`image_dataset_from_directory` script", "the script with `.cache()`"
    count = per_class * len(_CLASSES)
    decoded = count * _FULL_SIDE * _FULL_SIDE * 3
    peak, most = bounded["peak_bytes"] / 1e6, _FREE / 1e6
    return Section(
        "JPEG pipeline",
        f"{count:,} generated JPEGs of {_FULL_SIDE}×{_FULL_SIDE}, resized to {_SIDE}×{_SIDE} and augmented, in "
        f"batches of {_BATCH}, without a model. *Script*: `keras.utils.image_dataset_from_directory` with the same "
        f"layers. Last row: two epochs of the full-size images, {decoded / 1e6:,.0f} MB decoded, with {most:,.0f} MB "
        "of memory free; TensorFlow's memory counts.",
        (
            _speed_row("console, first epoch", figures, "console", _FIRST),
            _speed_row("console, later epochs", figures, "console", _LATER),
            _speed_row(f"{script}, first epoch", figures, "script", _FIRST),
            _speed_row(f"{script}, later epochs", figures, "script", _LATER),
            _speed_row(f"{cached}, later epochs", figures, "script-cached", _LATER),
            ratio("first epoch ÷ script", "script", "seconds", _FIRST, 2.0),
            ratio("first epoch ÷ script, in processor time", "script", "processor_s", _FIRST, 2.0),
            ratio_row("first epoch with finding and checking the files ÷ script", ours, theirs, 1.0),
            ratio("later epochs ÷ script", "script", "seconds", _LATER, 5.0),
            ratio("later epochs ÷ script with `.cache()`", "script-cached", "seconds", _LATER),
            limit_row("memory at its peak, data larger than its share", peak, most, "MB", 0),
        ),
    )


def _console(options: argparse.Namespace) -> Iterator[Any]:
    """Return the console's own batches, as `tpu-console run` feeds them to `fit`."""
    from tpu_console.engine.config.reading import parse_config
    from tpu_console.engine.input.pipeline import Room

    train, validation = str(options.folder / "train"), str(options.folder / "validation")
    given = {"path": train, "validation_path": validation, "image_size": [options.side] * 2}
    changes = {"rotation": _ROTATION_DEGREES, "zoom": _SHARE, "translation": _SHARE, "contrast": _CONTRAST}
    values = {"dataset": "image-folder", "model": "cnn", "batch_size": _BATCH, "epochs": 1, "data": {"options": given}}
    config = parse_config(values | {"augmentation": {"flip": "horizontal", **changes}})
    return _batches_of(config, options.folder, Room(options.memory, 10**12) if options.memory else None)


def _batches_of(config: Any, folder: Path, room: Any = None) -> Iterator[Any]:
    from tpu_console.engine.data.kinds.table import load_examples
    from tpu_console.engine.input.pipeline import build_pipeline

    examples = load_examples(config, lambda _: None)
    pipeline = build_pipeline(examples, config, 1, cache_folder=folder / "cache", room=room)

    def batches() -> Iterator[Any]:
        with pipeline.reading(lambda _: None):
            yield from pipeline.train

    return batches()  # everything above runs before the first epoch


def _script(options: argparse.Namespace) -> Iterator[Any]:
    """Return the batches of Keras's guide: layers mapped over `image_dataset_from_directory`."""
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
        options.folder / "train", image_size=(options.side, options.side), batch_size=_BATCH, verbose=False
    )
    if options.way == "script-cached":
        data = data.cache()
    changed = data.map(lambda x, y: (changes(x, training=True), y), num_parallel_calls=tf.data.AUTOTUNE)
    # Making the iterator counts as part of the first epoch, as in the console.
    return chain.from_iterable([changed.prefetch(tf.data.AUTOTUNE).repeat()])


_NUMBER_OF_CLASSES = 4
_HELD_OUT = 0.001
_GUIDES = {"tfds-console": "console", "tfds-guide": "guide", "tfds-guide-cached": "guide with `.cache()`"}


def tfds(bench: Bench) -> Section:
    folder, count = bench.folder / "tfds", 1000 if bench.is_quick else 4000
    bench.output(bench.python("-m", "tests.bench.reading", "tfds-prepare", folder, "--count", count))
    ways = {way: lambda way=way: _read(bench, way, folder, "--epochs", 3) for way in _GUIDES}
    figures = bench.in_turn(bench.rounds(9, quick=3), ways)
    rows = [
        _speed_row(f"{name}, {epochs}", figures, way, which)
        for way, name in _GUIDES.items()
        for epochs, which in (("first epoch", _FIRST), ("later epochs", _LATER))
    ]
    for what, way, which, least in (
        ("first epoch", "guide", _FIRST, 1.0),
        ("later epochs", "guide", _LATER, 1.0),
        ("later epochs", "guide-cached", _LATER, None),
    ):
        for key, of in (("seconds", ""), ("processor_s", ", in processor time")):
            ours, theirs = (_speeds(figures, f"tfds-{one}", key, which) for one in ("console", way))
            rows.append(ratio_row(f"{what} ÷ {way}{of}", ours, theirs, least))
    return Section(
        "A dataset of TensorFlow Datasets",
        f"{count:,} JPEGs of {_FULL_SIDE}×{_FULL_SIDE}, prepared by the package, resized to {_SIDE}×{_SIDE}, in "
        f"batches of {_BATCH}, without a model. *Guide*: `tfds.load` with `map`, `shuffle(1000)`, `batch` and "
        "`prefetch`.",
        tuple(rows),
    )


def _prepare(folder: Path, count: int) -> None:
    import tensorflow_datasets

    random = np.random.default_rng(0)

    def examples() -> Iterator[tuple[int, dict[str, Any]]]:
        for number in range(count):
            coarse = Image.fromarray(random.integers(0, 255, (16, 16, 3), np.uint8))
            buffer = io.BytesIO()
            coarse.resize((_FULL_SIDE, _FULL_SIDE), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
            yield number, {"image": io.BytesIO(buffer.getvalue()), "label": number % _NUMBER_OF_CLASSES}

    kinds = tensorflow_datasets.features
    image = kinds.Image(shape=(_FULL_SIDE, _FULL_SIDE, 3), encoding_format="jpeg")
    features = kinds.FeaturesDict({"image": image, "label": kinds.ClassLabel(num_classes=_NUMBER_OF_CLASSES)})
    tensorflow_datasets.dataset_builders.store_as_tfds_dataset(
        name="spots", version="1.0.0", features=features, split_datasets={"train": examples()}, data_dir=folder
    )


def _tfds_console(options: argparse.Namespace) -> Iterator[Any]:
    from tpu_console.engine.config.reading import with_changes
    from tpu_console.engine.data.kinds.formats import first_run

    config = first_run("tfds:spots", [("data.options.data_dir", str(options.folder))]).config
    changes = {"data.options.image_size": [_SIDE, _SIDE], "batch_size": _BATCH, "data.validation_fraction": _HELD_OUT}
    config = with_changes(config, [*changes.items(), ("augmentation.flip", "none"), ("augmentation.translation", 0.0)])
    return _batches_of(config, options.folder)


def _tfds_guide(options: argparse.Namespace) -> Iterator[Any]:
    import tensorflow as tf
    import tensorflow_datasets

    def scaled(example: Any) -> tuple[Any, Any]:
        return tf.image.resize(example["image"], (_SIDE, _SIDE)) / 255, example["label"]

    data = tensorflow_datasets.load("spots", split="train", as_supervised=False, data_dir=options.folder)
    data = data.map(scaled, num_parallel_calls=tf.data.AUTOTUNE)
    data = data.cache() if options.way.endswith("cached") else data
    batches = data.shuffle(1000).batch(_BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    return chain.from_iterable(repeat(batches))  # again in each epoch, as `fit` does


def _examples_in(options: argparse.Namespace) -> int:
    if options.way not in _GUIDES:
        return sum(1 for _ in (options.folder / "train").glob("*/*.jpg"))
    import tensorflow_datasets

    count: int = tensorflow_datasets.builder("spots", data_dir=options.folder).info.splits["train"].num_examples
    return round(count * (1 - _HELD_OUT))


_READERS = {
    "console": _console,
    "script": _script,
    "script-cached": _script,
    "tfds-console": _tfds_console,
    "tfds-guide": _tfds_guide,
    "tfds-guide-cached": _tfds_guide,
}


def _timed(batches: Iterator[Any], steps: int, epochs: int) -> dict[str, Any]:
    """Time epochs; both clocks start before the first batch is requested."""
    seconds, processor_s = [], []
    for _ in range(epochs):
        began, worked = time.perf_counter(), time.process_time()
        for _ in range(steps):
            next(batches)
        seconds.append(time.perf_counter() - began)
        processor_s.append(time.process_time() - worked)
    return {"images": steps * _BATCH, "seconds": seconds, "processor_s": processor_s}


def _peak_bytes() -> int:
    """Return the most memory this process had; `getrusage` would include its parent's peak."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("tfds-prepare", *_READERS))
    parser.add_argument("folder", type=Path, help="with a folder train and a folder validation, of a folder a class")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--side", type=int, default=_SIDE)
    parser.add_argument("--memory", type=int, default=0, help="bytes of memory to go by instead of what is free")
    parser.add_argument("--count", type=int, default=0, help="how many images to prepare")
    options = parser.parse_args()
    if options.way == "tfds-prepare":
        _prepare(options.folder, options.count)
        return
    import keras  # noqa: F401  whose memory does not count

    steps = _examples_in(options) // _BATCH
    memory_before, began = _peak_bytes(), time.perf_counter()
    batches = _READERS[options.way](options)
    before_s = time.perf_counter() - began
    figures = _timed(batches, steps, options.epochs)
    print(json.dumps({**figures, "before_s": before_s, "peak_bytes": _peak_bytes() - memory_before}))


if __name__ == "__main__":
    main()
