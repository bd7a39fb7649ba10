"""Predicting: which runs can, and what becomes of the file that is written."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import pytest

from tests import saved_models
from tests.engine.jobs.predicting import Job, train
from tests.helpers import small_config
from tests.images import write_image_folder
from tests.small_disk import small_disk
from tpu_console.engine.data.predictions import Table
from tpu_console.engine.errors import ConsoleError, DataError, RunNotFoundError, UntrustedCodeError
from tpu_console.engine.jobs.predict import Checkpoint, open_trained, predict_with_run, write_table
from tpu_console.engine.messages import Reporter
from tpu_console.engine.runs.run_directory import RunDirectory, create_run

pytestmark = pytest.mark.slow


def test_a_run_without_a_model(job: Job, tmp_path: Path) -> None:
    run = create_run("empty", tmp_path / "runs")
    run.config.write_text("")
    with pytest.raises(ConsoleError, match=r"no model\.keras"):
        job(run, "x.npy")
    run.model.touch()
    with pytest.raises(ConsoleError, match=r"no checkpoints/best\.keras.*--checkpoint last"):
        job(run, "x.csv", checkpoint="best")
    with pytest.raises(RunNotFoundError):
        predict_with_run(Reporter(job.said), run=str(tmp_path / "nowhere"), data=["x"], out=str(job.out))


def test_without_a_name_the_newest_run_with_a_model_counts(small_digits: RunDirectory, private_home: Path) -> None:
    with pytest.raises(RunNotFoundError):
        open_trained(None, "last")
    runs = private_home / "runs"
    oldest, older, newest = (
        runs / name for name in ("20251231-000000-newer", "20260101-000000-older", "20260102-000000-newer")
    )
    for run in (older, newest):
        shutil.copytree(small_digits.path, run)
    (newest / "model.keras").unlink()
    assert open_trained(None, "last").run.path == older
    assert open_trained(None, "best").run.path == newest
    shutil.copytree(older, oldest)
    assert open_trained("newer", "last").run.path == oldest
    assert open_trained("newer", "best").run.path == newest
    shutil.rmtree(oldest)
    (older / "model.keras").unlink()
    with pytest.raises(ConsoleError, match=r"newer has no model\.keras"):
        open_trained(None, "last")


@pytest.mark.parametrize("own", [True, False])
def test_runs_on_custom_data_are_refused(job: Job, small_digits: RunDirectory, tmp_path: Path, own: bool) -> None:
    run = create_run("own", tmp_path / "runs")
    run.journal.write_text("")
    run.model.write_bytes(small_digits.model.read_bytes())
    if own:
        run.config.write_text('dataset = "my.module:data"\nmodel = "mlp"\nbatch_size = 8\nepochs = 1\n')
    with pytest.raises(DataError, match=r"(my\.module:data.*mine\.py:new_data|notebook.*load_model)"):
        job(run, "x.npy")


def test_a_damaged_model_and_one_whose_predictions_are_nan(
    job: Job, small_digits: RunDirectory, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 8, 8)))
    run = create_run("damaged", tmp_path / "runs")
    run.config.write_bytes(small_digits.config.read_bytes())
    run.model.write_bytes(small_digits.model.read_bytes()[:5000])
    with pytest.raises(ConsoleError, match="cannot be loaded"):
        job(run, tmp_path / "x.npy")
    model = keras.saving.load_model(small_digits.model, compile=False)
    model.set_weights([np.full_like(weight, np.nan) for weight in model.get_weights()])
    model.save(run.model)
    with pytest.raises(DataError, match="are NaN"):
        job(run, tmp_path / "x.npy")
    assert not job.out.exists()


def test_an_existing_file_is_kept_unless_forced(job: Job, small_digits: RunDirectory) -> None:
    np.save(job.out.parent / "x.npy", np.zeros((2, 8, 8)))
    job.out.write_text("mine")
    with pytest.raises(ConsoleError, match=r"out\.csv exists already.*--force"):
        job(small_digits, job.out.parent / "x.npy")
    assert job.out.read_text() == "mine"
    assert len(job(small_digits, job.out.parent / "x.npy", force=True)) == 2
    with pytest.raises(ConsoleError, match="no folder"):
        job(small_digits, job.out.parent / "x.npy", out=str(job.out.parent / "nowhere" / "out.csv"))


def test_only_an_interrupt_keeps_the_rows_before_it(tmp_path: Path) -> None:
    def rows(done: int, error: BaseException) -> Iterator[tuple[str]]:
        yield from [("a",), ("b",)][:done]
        raise error

    path = tmp_path / "out.csv"
    path.write_text("before")
    for done, error in ((0, KeyboardInterrupt()), (1, DataError("the second image is damaged"))):
        with pytest.raises(type(error)):
            write_table(Table(("index",), rows(done, error)), path)
        assert path.read_text() == "before"
        assert list(tmp_path.iterdir()) == [path]
    assert write_table(Table(("index",), rows(2, KeyboardInterrupt())), path) == (2, False)
    assert path.read_text() == "index\na\nb\n"


def test_a_full_disk_is_reported_in_a_sentence(tmp_path: Path) -> None:
    with small_disk(tmp_path, "64k") as disk:
        with pytest.raises(ConsoleError, match="disk is full"):
            write_table(Table(("index",), [("1" * 100_000,)]), disk.path / "out.csv")
        assert list(disk.path.iterdir()) == []


@pytest.fixture
def hub_run(tmp_path: Path) -> RunDirectory:
    """A run whose SavedModel was trained further, behind augmentation in the model, and is gone where it came from."""
    flowers = write_image_folder(tmp_path / "flowers", per_class=12)
    source = saved_models.reusable(tmp_path / "saved")
    data = {"options": {"path": str(flowers), "image_size": [16, 16]}}
    options = {"path": source, "trainable": True}
    changed = {"flip": "horizontal", "placement": "model"}
    config = small_config(
        dataset="image-folder", data=data, model="hub", model_options=options, augmentation=changed, batch_size=8,
        optimizer={"learning_rate": 0.1}, checkpoint={"monitor": "auto"},
    )  # fmt: skip
    run = train(config, tmp_path)
    shutil.rmtree(source)
    return run


def test_a_run_with_a_saved_model_predicts_the_same_when_it_was_moved_and_not_without_it(
    job: Job, hub_run: RunDirectory, tmp_path: Path
) -> None:
    pixels = np.random.default_rng(1).uniform(0, 1, (5, 16, 16, 3)).astype(np.float32)
    checkpoints: tuple[Checkpoint, ...] = ("last", "best")
    expected = {}
    for checkpoint in checkpoints:
        path = open_trained(str(hub_run.path), checkpoint).model_path
        plain = keras.saving.load_model(path, compile=False, safe_mode=False)
        rows = job(hub_run, tmp_path / "flowers", checkpoint=checkpoint, force=True)
        expected[checkpoint] = np.asarray(plain(pixels)), rows
    hub_run.path.rename(tmp_path / "elsewhere")
    moved = RunDirectory(tmp_path / "elsewhere")
    for checkpoint in checkpoints:
        model = open_trained(str(moved.path), checkpoint).load_model()
        np.testing.assert_allclose(model(pixels), expected[checkpoint][0], atol=1e-6)
        assert job(moved, tmp_path / "flowers", checkpoint=checkpoint, force=True) == expected[checkpoint][1]
    shutil.rmtree(moved.hub)
    for is_empty in (False, True):
        if is_empty:
            moved.hub.mkdir()
        with pytest.raises(ConsoleError, match="hub does not exist"):
            job(moved, tmp_path / "flowers", force=True)
    shutil.rmtree(moved.hub)
    saved_models.reusable(moved.hub)
    with pytest.raises(UntrustedCodeError, match="TFSMLayer 'features'"):
        job(moved, tmp_path / "flowers", force=True)
