"""`BridgeCallback` called as Keras calls it, without training."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING

from tests.helpers import all_of, wait_until
from tpu_console import Run
from tpu_console.engine.runs.events import ValidationProgress
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import create_run, list_runs

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_validation_reports_twice_a_second_and_its_length_once_that_is_known(tmp_path: Path) -> None:
    from tpu_console.engine.training.bridge import BridgeCallback

    run = create_run("bridge", tmp_path)
    now = [100.0]
    callback = BridgeCallback(Recorder(run, JournalWriter(run.journal)), clock=lambda: now[0])
    callback.set_model(SimpleNamespace(metrics=[], run_eagerly=True))
    callback.set_params({"epochs": 2, "steps": 1})
    callback.on_train_begin()
    for epoch in range(2):
        callback.on_epoch_begin(epoch)
        callback.on_test_begin()
        for batch in range(10):
            now[0] += 0.15
            callback.on_test_batch_end(batch)
        callback.on_test_end()
    written = all_of(run, ValidationProgress)
    assert written == [
        *(ValidationProgress(1, batches, None) for batches in (4, 8)),
        *(ValidationProgress(2, batches, 10) for batches in (4, 8)),
    ]


def test_a_loop_whose_run_is_removed_goes_on_with_a_warning(recwarn: pytest.WarningsRecorder) -> None:
    with Run("loop") as loop:
        (run,) = list_runs()
        shutil.rmtree(run.path)
        wait_until(lambda: any("removed" in str(warning.message) for warning in recwarn))
        loop.log(1, loss=1.0)
        assert not loop.should_stop
    assert not run.path.exists()
