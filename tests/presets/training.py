"""Trains presets one after the other in a single process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.forks import quick_jax
from tests.helpers import LIMIT_S, run_forked
from tests.keras_files import ACCEPT
from tpu_console.engine.config.reading import parse_assignment, with_changes
from tpu_console.engine.process.launch import prepare_run
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

TRAIN = f"""
import os, sys
from pathlib import Path
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.config.trust import note_start
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.runs.control import Control
from tpu_console.engine.training.train import train_and_report

{ACCEPT}
flags = ""  # as the first run sets them, which JAX reads
for folder in sys.argv[1:]:
    run = RunDirectory(Path(folder))
    journal = JournalWriter(run.journal)
    config = load_config(run.config)
    note_start(config)  # the tests have another home
    train_and_report(run, config, journal, Control(), source="host")
    journal.close()
    flags = flags or os.environ.get("XLA_FLAGS", "") + " " + os.environ.get("PJRT_NPROC", "")
print(flags)
"""


def train_presets(wanted: Iterable[tuple[str, str]], folder: Path, backend: str) -> tuple[list[RunDirectory], str]:
    """Train presets with changes in Keras's home with their data; also return the variables that JAX started with."""
    runs = []
    for name, changes in wanted:
        changed = f"backend={backend} accelerator=cpu sinks=[] {changes}".split()
        config = with_changes(find_preset(name).config, [*map(parse_assignment, changed)])
        runs.append(prepare_run(config, folder / "runs"))
    env = {"KERAS_BACKEND": backend, "KERAS_HOME": str(folder)} | (quick_jax() if backend == "jax" else {})
    paths = [str(run.path) for run in runs]
    return runs, run_forked(TRAIN, *paths, cwd=folder, env=env, limit_s=9 * LIMIT_S)
