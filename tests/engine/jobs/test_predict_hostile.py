"""Predicting with run folders that somebody made to do harm: a sentence each, never a traceback and never a hang."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests import hostile_models
from tests.engine.jobs.predicting import Job
from tests.hostile_runs import make_all
from tpu_console.engine.errors import ConsoleError
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.sanitize import printable_lines

if TYPE_CHECKING:
    from pathlib import Path


def test_every_hostile_run_is_refused_with_a_sentence(tmp_path: Path) -> None:
    digits = tmp_path / "digits.npy"
    np.save(digits, np.zeros((2, 8, 8), np.float32))
    marker = tmp_path / "marker"
    model = hostile_models.lambda_run(tmp_path / "lambda", marker).model
    folders = [folder for folder in make_all(tmp_path / "home") if folder.is_dir()]
    assert len(folders) > 70
    for folder in folders:
        if not (folder / "model.keras").exists():
            shutil.copy(model, folder / "model.keras")
        with pytest.raises(ConsoleError) as refusal:
            Job(tmp_path)(RunDirectory(folder), digits)
        assert printable_lines(refusal.value.what) == refusal.value.what, folder
    assert not marker.exists()
