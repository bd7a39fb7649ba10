"""Images a second of the JPEG pipeline: read, decoded, shrunk, changed at random; without a model behind it."""

from __future__ import annotations

import json
import shutil
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.bench.report import Row, Section, limit_row, ratio_row
from tests.images import write_image_folder

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.bench import Bench

_CLASSES = ("one", "two", "three", "four")
_FULL_SIDE, _SIDE = 256, 128
_WAYS = {"console": 5, "script": 2, "script-cached": 3}
"""The ways of `tests.bench.jpeg_ways`, and their epochs."""

_FREE = 600_000_000
"""Memory in the last measurement: less than its images take."""


def measure(bench: Bench) -> Section:
    """Read the same images in turn, in each way."""
    per_class = 800 if bench.is_quick else 1000
    folder = bench.folder / "jpeg"
    for part, count in (("train", per_class), ("validation", 2)):
        write_image_folder(folder / part, _CLASSES, count, (_FULL_SIDE, _FULL_SIDE))
    first: dict[str, list[float]] = {}
    later: dict[str, list[float]] = {}
    whole: dict[str, list[float]] = {}
    work: dict[str, list[float]] = {}
    for _ in bench.rounds(9, quick=2):
        for name, epochs in _WAYS.items():
            figures = _read(bench, name, folder, "--epochs", epochs, "--side", _SIDE)
            speeds = [figures["images"] / seconds for seconds in figures["seconds"]]
            first.setdefault(name, []).append(speeds[0])
            whole.setdefault(name, []).append(figures["images"] / (figures["before_s"] + figures["seconds"][0]))
            later.setdefault(name, []).append(median(speeds[1:] or speeds))
            work.setdefault(name, []).append(figures["images"] / figures["processor_s"][0])
    bounded = _read(bench, "console", folder, "--epochs", 2, "--side", _FULL_SIDE, "--memory", _FREE)
    shutil.rmtree(folder)
    return _section(first, later, whole, work, bounded, per_class * len(_CLASSES))


def _read(bench: Bench, way: str, folder: Path, *options: object) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads(
        bench.output(bench.python("-m", "tests.bench.jpeg_ways", way, folder, *options))
    )
    return figures


def _section(
    first: dict[str, list[float]],
    later: dict[str, list[float]],
    whole: dict[str, list[float]],
    work: dict[str, list[float]],
    bounded: dict[str, Any],
    count: int,
) -> Section:
    script, cached = "`image_dataset_from_directory` script", "the script with `.cache()`"
    decoded = count * _FULL_SIDE * _FULL_SIDE * 3
    return Section(
        "JPEG pipeline",
        f"{count:,} generated JPEGs of {_FULL_SIDE}×{_FULL_SIDE}, resized to {_SIDE}×{_SIDE} and augmented, in "
        "batches of 32, without a model. *Script*: `keras.utils.image_dataset_from_directory` with the same "
        "layers. Last row: two epochs of "
        f"the full-size images, {decoded / 1e6:,.0f} MB decoded, with {_FREE / 1e6:,.0f} MB of memory free; "
        "TensorFlow's memory counts.",
        (
            Row("console, first epoch", f"{median(first['console']):,.0f} images/s"),
            Row("console, later epochs", f"{median(later['console']):,.0f} images/s"),
            Row(f"{script}, first epoch", f"{median(first['script']):,.0f} images/s"),
            Row(f"{script}, later epochs", f"{median(later['script']):,.0f} images/s"),
            Row(f"{cached}, later epochs", f"{median(later['script-cached']):,.0f} images/s"),
            ratio_row("first epoch ÷ script", first["console"], first["script"], 2.0),
            ratio_row("first epoch ÷ script, in processor time", work["console"], work["script"], 2.0),
            ratio_row(
                "first epoch with finding and checking the files ÷ script", whole["console"], whole["script"], 1.0
            ),
            ratio_row("later epochs ÷ script", later["console"], later["script"], 5.0),
            ratio_row("later epochs ÷ script with `.cache()`", later["console"], later["script-cached"]),
            limit_row(
                "memory at its peak, data larger than its share", bounded["peak_bytes"] / 1e6, _FREE / 1e6, "MB", 0
            ),
        ),
    )
