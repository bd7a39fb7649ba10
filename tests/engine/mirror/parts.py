"""A run that seems to train, for tests of its mirror: a journal and checkpoints, and no process."""

from pathlib import Path

import numpy as np

from tests.helpers import epoch_ended, small_config
from tpu_console.engine.config.run_config import to_toml
from tpu_console.engine.config.user_code import note_start
from tpu_console.engine.runs.checkpoint import Header, SavedArray, write_checkpoint
from tpu_console.engine.runs.events import RunStarted
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.recorder import Recorder
from tpu_console.engine.runs.run_directory import RunDirectory, create_run


class Training:
    """A run that ends an epoch when it is asked to."""

    def __init__(self, folder: Path, mirror: str = "", size: int = 1000) -> None:
        self.run: RunDirectory = create_run("mirrored", folder)
        note_start(config := small_config(mirror=mirror))
        self.run.config.write_text(to_toml(config))
        self.journal = JournalWriter(self.run.journal)
        self.recorder = Recorder(self.run, self.journal)
        self.recorder.emit(RunStarted("small", "host", 1, "here"))
        self.epochs = 0
        self._size = size

    def epoch(self) -> None:
        """End an epoch: the journal says so, a better model is saved, then a checkpoint."""
        self.epochs += 1
        self.recorder.emit(epoch_ended(self.epochs, {"loss": 1 / self.epochs}))
        self.run.checkpoints.mkdir(exist_ok=True)
        (self.run.checkpoints / "best.keras").write_bytes(bytes([self.epochs]) * 100)
        values = np.full(self._size, self.epochs, np.float32)
        header = Header(
            epoch=self.epochs,
            epoch_step=0,
            step=4 * self.epochs,
            batches=4 * self.epochs,
            elapsed_s=float(self.epochs),
            epoch_s=0.0,
            phase=0,
            steps_per_epoch=4,
            global_batch=32,
            steps_per_execution=1,
            best=1 / self.epochs,
            patience={},
            arrays=(SavedArray("trainable", "w", values.dtype.str, values.shape),),
        )
        write_checkpoint(self.run, header, [values])
