"""Everything that the program creates is for its user only, whatever the umask is."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from tests.helpers import ROOT, run_forked

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

EVERYTHING = """
import os, time
from tpu_console.engine.data.cached_facts import save_input_speed
from tpu_console.engine.process.launch import prepare_run, start_host
from tpu_console.engine.preflight.cache import save_verdict
from tpu_console.presets.catalog import save_preset
from tests.helpers import small_config
from tests.made_verdicts import FITS
from tpu_console.tui.cli import _report_bug
from tpu_console.tui.jobs.run_process import launch
from tpu_console.tui.jobs.job_process import log_file, start_job

os.umask(0)
parts = {"checkpoint": {"monitor": "auto"}, "sinks": ["tensorboard"], "data": {"cache": "disk"}}
config = small_config(**parts)
host = start_host(prepare_run(config))
save_preset(config, "mine", "Mine")
save_verdict(config, FITS)
save_input_speed(config, [{"name": "first", "per_s": 1.0}])
_report_bug(ValueError("by design"))
start_job("none of that name", {}, log_file("job")).wait()

inside = launch(config, in_process=True)
while inside.tend():
    time.sleep(0.05)
assert inside.engine.succeeded
assert os.umask(0) == 0, "put back"

import keras, numpy as np
from tpu_console import BridgeCallback
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile(loss="mse")
model.fit(np.zeros((8, 2)), np.zeros(8), verbose=0, callbacks=[BridgeCallback("notebook")])
assert host.wait() == 0
"""


# With no umask at all, what is created is as open as the program makes it.
def test_only_the_user_may_read_what_runs_and_commands_create(tmp_path: Path) -> None:
    base = tmp_path / "deep"
    home = base / "home"
    run_forked(EVERYTHING, cwd=ROOT, env={"TPU_CONSOLE_HOME": str(home)})
    paths = [base, *base.rglob("*")]
    wanted = {path: 0o700 if path.is_dir() else 0o600 for path in paths}
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert {path: oct(mode) for path, mode in found.items() if mode != wanted[path]} == {}
    names = {path.name for path in paths}
    assert {"events.jsonl", "best.keras", "model.keras", "tensorboard", "report.json"} <= names
    assert {"console.log", "mine.toml", "speeds.json", "preflight.json", "errors.log", "job.log"} <= names
    assert len(list((home / "runs").iterdir())) == 3
    assert not [name for name in names if name.startswith(".draft") or name == "reserved-space"]
