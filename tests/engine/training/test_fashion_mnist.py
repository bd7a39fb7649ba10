"""The preset fashion-mnist-cnn on the real pictures."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.helpers import ROOT, run_host, the
from tpu_console.engine.config.reading import with_changes
from tpu_console.engine.runs.events import FitStarted, RunFinished
from tpu_console.presets.catalog import find_preset

if TYPE_CHECKING:
    from pathlib import Path

DATA = ROOT.parent / "shared" / "data" / "fashion-mnist"


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"the data of Fashion-MNIST is not in {DATA}")
def test_it_learns_the_real_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(DATA, tmp_path / "keras" / "datasets" / "fashion-mnist")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    preset = find_preset("fashion-mnist-cnn").config
    assert (preset.batch_size, preset.epochs) == (1000, 5)
    # As many steps as in an epoch, of a tenth of the pictures each: half a minute less. All of it reaches 0.88.
    tenth = {"epochs": 1, "validation_freq": 1, "batch_size": 100, "data.train_limit": 6000}
    run = run_host(with_changes(preset, [*tenth.items()]), tmp_path / "runs")
    end = the(run, RunFinished)
    assert end.outcome == "completed"
    assert end.summary["final"]["val_accuracy"] >= 0.7
    assert (the(run, FitStarted).steps_per_epoch, the(run, FitStarted).global_batch) == (60, 100)
