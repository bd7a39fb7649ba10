"""The state of the configuration's callbacks in a checkpoint, which may come from anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import keras

from tests.helpers import small_config
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.runs.control import Control
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.training.checkpoints import OwnCallbacks

if TYPE_CHECKING:
    from pathlib import Path


def test_a_checkpoint_brings_back_what_a_callback_remembers_but_not_the_file_it_writes(tmp_path: Path) -> None:
    run = prepare_run(small_config(), tmp_path / "runs")
    recorder = Recorder(run, JournalWriter(run.journal), Control())
    logger = keras.callbacks.CSVLogger(str(tmp_path / "log.csv"))
    own = OwnCallbacks(recorder, [logger], [{"filename": str(tmp_path / "elsewhere"), "keys": ["loss"]}])
    own.on_train_begin()
    assert (logger.filename, logger.keys) == (str(tmp_path / "log.csv"), ["loss"])
