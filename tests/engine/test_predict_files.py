"""Predicting: which runs can, and what becomes of the file that is written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import pytest

from engine.errors import ConsoleError, DataError, RunNotFoundError
from engine.job import Reporter
from engine.jobs.predict import perform
from engine.predicting.table import Table, write_table
from engine.rundir import create_run
from tests.engine.predicting import Job, train
from tests.helpers import small_config

if TYPE_CHECKING:
    from engine.rundir import RunDirectory

pytestmark = pytest.mark.slow


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("predict")


@pytest.fixture(scope="module")
def digits(home: Path) -> RunDirectory:
    return train(small_config(epochs=2, model_options={"hidden": [32]}, checkpoint={"enabled": True}), home)


def test_the_best_epochs_model_when_asked(job: Job, digits: RunDirectory) -> None:
    np.save(job.out.parent / "x.npy", np.zeros((2, 8, 8)))
    job(digits, job.out.parent / "x.npy", checkpoint="best")
    assert Path(job.result["model"]) == digits.checkpoints / "best.keras"


def test_a_run_without_a_model(job: Job, tmp_path: Path) -> None:
    run = create_run("empty", tmp_path / "runs")
    run.config.write_text("")
    with pytest.raises(ConsoleError, match=r"no model\.keras"):
        job(run, "x.npy")
    run.model.touch()
    with pytest.raises(ConsoleError, match=r"no checkpoints/best\.keras.*--checkpoint last"):
        job(run, "x.csv", checkpoint="best")
    with pytest.raises(RunNotFoundError):
        perform(Reporter(job.said), run=str(tmp_path / "nowhere"), data=["x"], out=str(job.out))


@pytest.mark.parametrize("own", [True, False])
def test_data_that_only_its_maker_knows(job: Job, digits: RunDirectory, tmp_path: Path, own: bool) -> None:
    run = create_run("own", tmp_path / "runs")
    run.journal.write_text("")
    run.model.write_bytes(digits.model.read_bytes())
    if own:
        run.config.write_text('dataset = "my.module:data"\nmodel = "mlp"\nbatch_size = 8\nepochs = 1\n')
    with pytest.raises(DataError, match=r"(my\.module:data|notebook).*load_model"):
        job(run, "x.npy")


def test_a_damaged_model(job: Job, digits: RunDirectory, tmp_path: Path) -> None:
    run = create_run("damaged", tmp_path / "runs")
    run.config.write_bytes(digits.config.read_bytes())
    run.model.write_bytes(digits.model.read_bytes()[:5000])
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8)))
    with pytest.raises(ConsoleError, match="cannot be loaded"):
        job(run, tmp_path / "x.npy")


def test_a_model_whose_answers_are_no_numbers(job: Job, digits: RunDirectory, tmp_path: Path) -> None:
    run = create_run("nan", tmp_path / "runs")
    run.config.write_bytes(digits.config.read_bytes())
    model = keras.saving.load_model(digits.model, compile=False)
    model.set_weights([np.full_like(weight, np.nan) for weight in model.get_weights()])
    model.save(run.model)
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8)))
    with pytest.raises(DataError, match="not numbers"):
        job(run, tmp_path / "x.npy")
    assert not job.out.exists()


def test_a_file_that_is_there_is_kept_unless_forced(job: Job, digits: RunDirectory) -> None:
    np.save(job.out.parent / "x.npy", np.zeros((2, 8, 8)))
    job.out.write_text("mine")
    with pytest.raises(ConsoleError, match=r"out\.csv is there already.*--force"):
        job(digits, job.out.parent / "x.npy")
    assert job.out.read_text() == "mine"
    assert len(job(digits, job.out.parent / "x.npy", force=True)) == 2
    with pytest.raises(ConsoleError, match="no folder"):
        job(digits, job.out.parent / "x.npy", out=str(job.out.parent / "nowhere" / "out.csv"))


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    def rows() -> Any:
        yield ("1",)
        raise DataError("the second image is damaged")

    (tmp_path / "out.csv").write_text("before")
    with pytest.raises(DataError):
        write_table(Table(("index",), rows()), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == "before"
    assert list(tmp_path.iterdir()) == [tmp_path / "out.csv"]


def test_a_full_disk_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConsoleError, match="disk is full"):
        write_table(Table(("index",), [("1",)]), _FullDisk(tmp_path / "out.csv"))
    assert list(tmp_path.iterdir()) == []


class _FullDisk(type(Path())):  # type: ignore[misc]  # the class of paths on this system
    """A place on a device that is always full."""

    def with_name(self, name: str) -> Path:
        link = Path(super().with_name(name))
        link.symlink_to("/dev/full")
        return link
