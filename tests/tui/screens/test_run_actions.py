"""From a finished run to predictions and an export, without leaving the console."""

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import ROOT, run_host, small_config
from tests.tui.live_fakes import screen_text, shows, until
from tpu_console.engine.storage.paths import runs_folder
from tpu_console.tui.app import ConsoleApp
from tpu_console.tui.screens.run_actions import JobDialog


@pytest.mark.slow
@pytest.mark.usefixtures("forked_jobs")
async def test_keys_predict_new_data_and_export_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("new.npy", np.zeros((3, 8, 8, 1), "float32"))
    run = run_host(small_config(), runs_folder())
    async with ConsoleApp(run=run).run_test(size=(120, 40), notifications=True) as pilot:
        await shows(pilot, "Finished", "N Predict")
        await shows(pilot, "Predict what?", "8, 1)", after="N")
        await pilot.press(*"old.npy", "enter")
        await shows(pilot, "There is no old.npy")
        await pilot.press("ctrl+u", *"new.n")
        await until(pilot, lambda: "There is no" not in screen_text(pilot) and "new.npy" in screen_text(pilot))
        await pilot.press("right", "enter")
        written = tmp_path / f"{run.run_id}-predictions.csv"
        await until(pilot, lambda: "Saved to" in screen_text(pilot) and written.exists())
        with written.open(newline="") as file:
            assert [row["index"] for row in csv.DictReader(file)] == ["0", "1", "2"]
        for moves, ending in ((0, ".ipynb"), (1, ".py"), (2, "-savedmodel/saved_model.pb")):
            await shows(pilot, "Export as what?", after="percent_sign")
            await pilot.press(*["down"] * moves, "enter")
            path = tmp_path / f"{run.run_id}{ending}"
            await until(pilot, lambda: path.exists() and not isinstance(pilot.app.screen, JobDialog))  # noqa: B023


JOB = """
import signal, sys
from tpu_console.engine.messages import Reporter
reporter = Reporter(sys.stdout)
def end(*_):
    reporter.result({"rows": 7})
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
reporter.progress("predicting", 7, 100, "examples")
signal.pause()
"""


@pytest.mark.parametrize(("jobs", "outcome"), [(1, {"rows": 7}), (2, None)])
async def test_a_cancelled_job_keeps_what_it_has_done_and_no_other_begins(jobs: int, outcome: object) -> None:
    started: list[str] = []

    def start(name: str, _options: Any, _log: Path) -> subprocess.Popen[bytes]:
        started.append(name)
        return subprocess.Popen([sys.executable, "-c", JOB], cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True)

    app = ConsoleApp()
    outcomes: list[object] = []
    async with app.run_test(size=(80, 24)) as pilot:
        dialog = JobDialog("Predicting", "Will be saved.", [("predict", {})] * jobs, start=start)
        app.push_screen(dialog, outcomes.append)
        await shows(pilot, "7 of 100 examples")
        await pilot.press("f1")  # over it, the end of the job is not lost
        await until(pilot, lambda: outcomes, after=("escape", "escape"))
        assert (outcomes, started) == ([outcome], ["predict"])
