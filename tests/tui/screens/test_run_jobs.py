"""From a finished run to predictions and a notebook, without leaving the console."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.helpers import run_host, small_config
from tests.tui.live_fakes import screen_text, until
from tpu_console.engine.storage.paths import runs_folder
from tpu_console.tui.app import ConsoleApp

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
@pytest.mark.usefixtures("forked_jobs")
async def test_keys_predict_new_data_and_write_a_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    np.save("new.npy", np.zeros((3, 8, 8, 1), "float32"))
    run = run_host(small_config(), runs_folder())
    async with ConsoleApp(run=run).run_test(size=(120, 40), notifications=True) as pilot:
        await until(pilot, lambda: "Finished" in screen_text(pilot) and "N Predict" in screen_text(pilot))
        await pilot.press("N")
        await until(pilot, lambda: "Predict what?" in screen_text(pilot))
        await pilot.press(*"old.npy", "enter")
        await until(pilot, lambda: "There is no old.npy" in screen_text(pilot))
        await pilot.press("ctrl+u", *"new.npy", "enter")
        written = tmp_path / f"{run.run_id}-predictions.csv"
        await until(pilot, lambda: "Written" in screen_text(pilot) and written.exists())
        with written.open(newline="") as file:
            assert [row["index"] for row in csv.DictReader(file)] == ["0", "1", "2"]
        await pilot.press("percent_sign")
        await until(pilot, (tmp_path / f"{run.run_id}.ipynb").exists)
