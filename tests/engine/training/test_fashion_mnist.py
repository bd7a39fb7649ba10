"""The preset fashion-mnist-cnn on the real pictures."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.helpers import ROOT, all_of, run_host, the
from tpu_console.engine.runs.events import EpochEnded, FitStarted, RunFinished
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from pathlib import Path

DATA = ROOT.parent / "shared" / "data" / "fashion-mnist"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"the data of Fashion-MNIST is not in {DATA}")
def test_it_reaches_the_accuracy_that_it_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(DATA, tmp_path / "keras" / "datasets" / "fashion-mnist")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    run = run_host(find_preset("fashion-mnist-cnn").config, tmp_path / "runs")
    end = the(run, RunFinished)
    assert end.outcome == "completed"
    assert end.summary["final"]["val_accuracy"] >= 0.86
    assert end.summary["final"]["accuracy"] >= 0.87
    assert (the(run, FitStarted).steps_per_epoch, the(run, FitStarted).global_batch) == (60, 1000)
    assert ["val_loss" in epoch.logs for epoch in all_of(run, EpochEnded)] == [False] * 4 + [True]
