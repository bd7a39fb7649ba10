"""The thread that trains, in a training process and in the console alike."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..runs.control import Control

if TYPE_CHECKING:
    from ..config.run_config import RunConfig
    from ..runs.events import RunSource
    from ..runs.journal import JournalWriter
    from ..runs.run_directory import RunDirectory


class EngineThread(threading.Thread):
    """Builds, compiles, fits and saves one configuration in the background.

    A process that ends does not wait for this daemon thread. An exception becomes the run's last event. `resumes` is
    that of `process.launch.start_host`; `importing` is a thread that already imports the framework.
    """

    def __init__(
        self,
        run: RunDirectory,
        config: RunConfig,
        journal: JournalWriter,
        source: RunSource,
        resumes: str | None = None,
        importing: threading.Thread | None = None,
    ) -> None:
        super().__init__(name="tpu-console-engine", daemon=True)
        self.control = Control()
        self.succeeded = False  # whether the run has finished
        self._run = run
        self._config = config
        self._journal = journal
        self._source = source
        self._resumes = resumes
        self._importing = importing

    def run(self) -> None:
        """Train; never raises."""
        if self._importing is not None:
            self._importing.join()
        # Imported here, in the thread, because it loads TensorFlow and Keras.
        from ..training.train import train_and_report

        self.succeeded = train_and_report(
            self._run, self._config, self._journal, self.control, source=self._source, resumes=self._resumes
        )
