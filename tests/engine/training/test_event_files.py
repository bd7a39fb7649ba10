"""The files that TensorBoard reads, besides the metrics of each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.helpers import small_config
from tpu_console.engine.config.run_config import compared_values
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import create_run
from tpu_console.engine.training.outputs import EpochSummaries

if TYPE_CHECKING:
    from pathlib import Path


def test_tensorboard_compares_runs_by_their_settings(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2

    secret = {"webhook": "https://hooks.example.com/services/secret"}
    settings = compared_values(small_config(alerts=secret, optimizer={"schedule": "cosine"}))
    run = create_run("small", tmp_path)
    journal = JournalWriter(run.journal)
    summaries = EpochSummaries(Recorder(run, journal), settings)
    for epoch in range(2):
        summaries.on_epoch_end(epoch, {"loss": 0.5, "val_loss": 0.6})
    summaries.on_train_end()
    journal.close()
    accumulator = EventAccumulator(str(run.tensorboard))
    accumulator.Reload()
    content = accumulator.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    known = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert known["batch_size"].number_value == 32
    assert known["optimizer.learning_rate"].number_value == 0.001
    assert known["optimizer.schedule"].string_value == "cosine"
    assert known["model_options.hidden"].string_value == "[8]"
    assert known["sinks"].string_value == "[]"
    assert known["alerts.webhook"].string_value == "https://hooks.example.com/…"
    assert "optimizer.momentum" not in known
