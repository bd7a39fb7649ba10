"""`tpu-console run` on files of the user: recognized, trained, predicted and resumed, as the README says."""

from __future__ import annotations

import csv
import shlex
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.helpers import ROOT
from tests.images import write_image_folder
from tests.tui.commands.test_cli_process import Runner
from tests.tui.forked_program import FORKED, forking
from tests.tui.terminal_driver import Terminal
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.runs.run_directory import list_runs

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_the_commands_of_the_readme_train_on_photos_and_predict_others(tmp_path: Path) -> None:
    photos = write_image_folder(tmp_path / "photos", per_class=20, size=(16, 16))
    (photos / "rose" / "cut.jpg").write_bytes((photos / "rose" / "rose_0.jpg").read_bytes()[:99])
    write_image_folder(tmp_path / "others", per_class=5, size=(16, 16), seed=1)
    (tmp_path / "new").mkdir()
    for file in (tmp_path / "others").rglob("*.jpg"):
        file.rename(tmp_path / "new" / file.name)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.partition("**Train on your own files**")[2].split("```")[1]
    lines = [shlex.split(line, comments=True)[1:] for line in block.strip().splitlines()]
    assert [line[0] for line in lines] == ["inspect", "run", "predict"]
    runner = Runner(tmp_path, forks=True)
    told = {}
    for line in lines:
        code, told[line[0]], err = runner.finish(*line)
        assert code == 0, err
    assert " run ./photos\n" in told["inspect"]
    assert "1 of 61 images in " in told["run"].partition("loading data")[0]
    rows = list(csv.DictReader((tmp_path / "labels.csv").open()))
    assert len(rows) == 15
    assert np.mean([row["file"].startswith(row["label"]) for row in rows]) > 0.9
    assert load_config(runner.run.config).data.options["path"] == str(photos)


def test_reviews_are_trained_on_once_the_label_is_named(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    with (tmp_path / "reviews.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["what", "verdict", "stars"])
        for number in range(100):
            words = [f"word{index}" for index in random.integers(0, 50, 12)]
            words[int(random.integers(0, 12))] = "dull" if number % 2 else "moving"
            table.writerow([" ".join(words), "down" if number % 2 else "up", number % 5])
    command = [*FORKED, "run", str(tmp_path / "reviews.csv"), "--epochs", "1"]
    forked = Terminal(*command, home=tmp_path, size=(120, 60), program=sys.executable, environment=forking())
    with closing(forked) as terminal:
        terminal.wait_for("Which column has the labels? (verdict, stars)")
        terminal.press(*"verdict", "enter")
        assert terminal.wait() == 0
    (run,) = list_runs(tmp_path / "runs")
    assert load_config(run.config).data.options["label"] == "verdict"
