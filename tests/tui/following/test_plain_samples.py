"""Plain lines of runs that are no classification: translations, and data without classes or a single shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from tpu_console.engine.runs.events import DataReady, PhaseStarted, RunStarted, Sample, Translated
from tpu_console.engine.runs.journal import encode
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.tui.following.follow import PlainPrinter

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.events import Event


def said(folder: Path, *events: Event) -> list[str]:
    records = [orjson.loads(encode(event, float(number))) for number, event in enumerate(events)]
    return PlainPrinter(RunDirectory(folder / "20261120-120000-nmt")).feed(records)


def test_each_sample_is_a_line(tmp_path: Path) -> None:
    samples = (Sample("I read.", "Yo leo.", "yo leo"), Sample("Go!", "¡Ve!", ""))
    assert said(tmp_path, Translated(3, samples)) == [
        "sample       I read. → yo leo  (expected: Yo leo.)",
        "sample       Go! → …  (expected: ¡Ve!)",
    ]


def test_data_without_classes_or_shape_claims_neither(tmp_path: Path) -> None:
    started = RunStarted("nmt", "host", 1, "here")
    lines = said(tmp_path, started, PhaseStarted("loading data"), DataReady(2125, 375, (), 0), PhaseStarted("building"))
    assert lines[-1].endswith("2,125 training examples, 375 for validation")
