"""Images a second of a dataset that TensorFlow Datasets prepared, read by the console and as its guide does."""

from __future__ import annotations

import argparse
import io
import json
from itertools import chain, repeat
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from tests.bench.jpeg import BATCH, batches_of, timed
from tests.bench.report import Row, Section, ratio_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.bench.bench import Bench

_CLASSES, _STORED, _SIDE = 4, 256, 128
_EPOCHS = 3
_HELD_OUT = 0.001
_WAYS = ("console", "guide", "guide-cached")


def measure(bench: Bench) -> Section:
    """Read the same dataset in turn, in each way."""
    folder, count = bench.folder / "tfds", 1000 if bench.is_quick else 4000
    bench.output(bench.python("-m", "tests.bench.tfds_reading", "prepare", folder, "--count", count))
    figures: dict[str, list[dict[str, Any]]] = {way: [] for way in _WAYS}
    for _ in bench.rounds(9, quick=3):
        for way in _WAYS:
            found = bench.output(bench.python("-m", "tests.bench.tfds_reading", way, folder))
            figures[way].append(json.loads(found))

    def speeds(way: str, key: str, epoch: slice) -> list[float]:
        return [each["images"] / median(each[key][epoch]) for each in figures[way]]

    first, later = slice(1), slice(1, None)
    rows = [
        Row(f"{name}, {epochs}", f"{median(speeds(way, 'seconds', which)):,.0f} images/s")
        for way, name in (("console", "console"), ("guide", "guide"), ("guide-cached", "guide with `.cache()`"))
        for epochs, which in (("first epoch", first), ("later epochs", later))
    ]
    ratios = [
        ratio_row(f"{what} ÷ {way}{of}", speeds("console", key, which), speeds(way, key, which), least)
        for what, way, which, least in (
            ("first epoch", "guide", first, 1.0),
            ("later epochs", "guide", later, 1.0),
            ("later epochs", "guide-cached", later, None),
        )
        for key, of in (("seconds", ""), ("processor_s", ", in processor time"))
    ]
    return Section(
        "A dataset of TensorFlow Datasets",
        f"{count:,} JPEGs of {_STORED}×{_STORED}, prepared by the package, resized to {_SIDE}×{_SIDE}, in batches of "
        f"{BATCH}, without a model. *Guide*: `tfds.load` with `map`, `shuffle(1000)`, `batch` and `prefetch`.",
        (*rows, *ratios),
    )


def _prepare(folder: Path, count: int) -> None:
    import tensorflow_datasets as tfds

    random = np.random.default_rng(0)

    def examples() -> Iterator[tuple[int, dict[str, Any]]]:
        for number in range(count):
            coarse = Image.fromarray(random.integers(0, 255, (16, 16, 3), np.uint8))
            buffer = io.BytesIO()
            coarse.resize((_STORED, _STORED), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
            yield number, {"image": io.BytesIO(buffer.getvalue()), "label": number % _CLASSES}

    features = tfds.features.FeaturesDict(
        {
            "image": tfds.features.Image(shape=(_STORED, _STORED, 3), encoding_format="jpeg"),
            "label": tfds.features.ClassLabel(num_classes=_CLASSES),
        }
    )
    tfds.dataset_builders.store_as_tfds_dataset(
        name="spots", version="1.0.0", features=features, split_datasets={"train": examples()}, data_dir=folder
    )


def _console(folder: Path) -> Iterator[Any]:
    """Return the console's own batches, as `tpu-console run` feeds them to `fit`."""
    from tpu_console.engine.config.reading import with_changes
    from tpu_console.engine.data.kinds.formats import first_run
    from tpu_console.engine.data.kinds.table import load_examples
    from tpu_console.engine.input.pipeline import build_pipeline

    config = first_run("tfds:spots", [("data.options.data_dir", str(folder))]).config
    changes = {"data.options.image_size": [_SIDE, _SIDE], "batch_size": BATCH, "data.validation_fraction": _HELD_OUT}
    config = with_changes(config, [*changes.items(), ("augmentation.flip", "none"), ("augmentation.translation", 0.0)])
    examples = load_examples(config, lambda _: None)
    return batches_of(build_pipeline(examples, config, 1, cache_folder=folder / "cache"))


def _guide(folder: Path, *, is_cached: bool) -> Iterator[Any]:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    def scaled(image: Any, label: Any) -> tuple[Any, Any]:
        return tf.image.resize(image, (_SIDE, _SIDE)) / 255, label

    data = tfds.load("spots", split="train", as_supervised=False, data_dir=folder)
    data = data.map(lambda one: scaled(one["image"], one["label"]), num_parallel_calls=tf.data.AUTOTUNE)
    data = data.cache() if is_cached else data
    batches = data.shuffle(1000).batch(BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    return chain.from_iterable(repeat(batches))  # again in each epoch, as `fit` does


def main() -> None:
    """Prepare the dataset, or read it in one way and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("way", choices=("prepare", *_WAYS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=0)
    options = parser.parse_args()
    if options.way == "prepare":
        _prepare(options.folder, options.count)
        return
    import tensorflow_datasets as tfds

    count = tfds.builder("spots", data_dir=options.folder).info.splits["train"].num_examples
    is_ours = options.way == "console"
    batches = _console(options.folder) if is_ours else _guide(options.folder, is_cached=options.way == "guide-cached")
    print(json.dumps(timed(batches, round(count * (1 - _HELD_OUT)) // BATCH, _EPOCHS)))


if __name__ == "__main__":
    main()
