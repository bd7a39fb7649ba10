"""What the tests of predicting share: training in a moment, and predicting into a file."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from tpu_console.engine.config.run_config import RunConfig
from tpu_console.engine.jobs.predict import predict_with_run
from tpu_console.engine.messages import Reporter
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.runs.control import Control
from tpu_console.engine.runs.events import RunSource
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.training.train import train_and_report


def train(config: RunConfig, folder: Path, control: Control | None = None) -> RunDirectory:
    """Train in this process."""
    run = prepare_run(config, folder / "runs")
    journal = JournalWriter(run.journal)
    has_finished = train_and_report(run, config, journal, control or Control(), source=RunSource.IN_PROCESS)
    assert has_finished, run.journal.read_text()
    journal.close()
    return run


class Job:
    """Predicts with a run into ``out.csv`` of a folder."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "out.csv"
        self.said = io.StringIO()
        self.result: dict[str, Any] = {}

    def __call__(self, run: RunDirectory, *data: Path | str, **options: Any) -> list[dict[str, str]]:
        settings = {"run": str(run.path), "data": [str(path) for path in data], "out": str(self.out), **options}
        self.result = predict_with_run(Reporter(self.said), **settings)
        return self.rows()

    def rows(self) -> list[dict[str, str]]:
        with self.out.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said.getvalue().splitlines()]

    @property
    def notes(self) -> str:
        return " ".join(record["text"] for record in self.records if record["kind"] == "note")
