"""Presets on Keras's JAX backend, each at a reduced size on data of its format, and every feature of the engine.

Runs in separate processes are in ``test_backends.py``, the user's functions in ``test_script.py``. The saved models are
then used with TensorFlow.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.engine.jobs.predicting import Job
from tests.helpers import all_of, run_forked, the
from tests.images import write_plant_pathology
from tests.presets.training import train_presets
from tests.words import ratings, write_pairs, write_ratings
from tpu_console.engine.runs import events

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.run_directory import RunDirectory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# The first sets how many devices JAX simulates in the process; the others use as many of them as they ask for.
RUNS = {
    "ratings": (
        "movielens-recommender",
        "accelerator=sim:8 epochs=2 batch_size=8 model_options={width=8,hidden=[16,8]} optimizer.learning_rate=0.02",
    ),
    "translation": (
        "nmt-transformer",
        """accelerator=sim:2 epochs=3 batch_size=32 data.options.length=10
        model_options={width=64,heads=4,hidden=128,final_dropout=0.1}""",
    ),
    "leaves": (
        "plant-pathology-augmented",
        """accelerator=sim:2 batch_size=8 epochs=2 data.options.image_size=[32,32] model_options.filters=[8]
        class_weight=balanced label_smoothing=0.1 augmentation.mixup=0.2 augmentation.cutmix=0.5""",
    ),
    # Nothing is ever better by so much: the second phase ends after a second epoch, with the run's first.
    "two phases": (
        "plant-pathology-efficientnet",
        """batch_size=16 epochs=6 steps_per_epoch=2 steps_per_execution=1 data.options.image_size=[32,32]
        model_options.name=MobileNet model_options.weights=none fine_tuning.after_epochs=2 fine_tuning.from_layer=-7
        early_stopping.patience=2 early_stopping.min_delta=9.0 early_stopping.restore_best_weights=true""",
    ),
    "in the model": (
        "digits-cnn",
        """epochs=4 batch_size=64 steps_per_execution=1 model_options.filters=[8,16] precision=mixed_bfloat16
        optimizer.warmup_epochs=1 augmentation={placement='model',contrast=0.1,brightness=0.05}""",
    ),
    "not a number": ("digits-cnn", "model=mlp model_options={hidden=[4]} epochs=1 optimizer.learning_rate=1e30"),
    # More than a process can address.
    "no memory": ("digits-cnn", "model=mlp model_options={hidden=[10_000_000_000_000]}"),
}

LOAD = """
import sys
import keras
import numpy as np
model = keras.saving.load_model(sys.argv[1])
print(model.predict({part.name: np.zeros((2, *part.shape[1:]), "int32") for part in model.inputs}, verbose=0).shape)
assert "engine" not in sys.modules
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with every preset's data."""
    folder = tmp_path_factory.mktemp("jax")
    write_pairs(folder / "spa-eng" / "spa.txt", 1200)
    write_ratings(folder / "ml-latest-small" / "ratings.csv", ratings(100, 80, 6000))
    write_plant_pathology(folder / "plant-pathology-2020-fgvc7", per_class=61, size=(32, 48))
    return folder


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, RunDirectory]:
    """The runs, by what they are here for."""
    runs, flags = train_presets(RUNS.values(), folder, "jax")
    # Without these, many replicas on two cores wait for each other for ever, now and then.
    assert "multi_thread_eigen=false" in flags
    assert flags.split()[-1] == "64"
    return dict(zip(RUNS, runs, strict=True))


def finished(run: RunDirectory) -> list[events.EpochEnded]:
    """The epochs of a run that trained to its end, on the accelerator it was to."""
    failed = all_of(run, events.RunFailed)
    assert not failed, (failed, run.log.read_text(errors="replace")[-3000:])
    assert run.model.is_file()
    return all_of(run, events.EpochEnded)


def notices(run: RunDirectory) -> str:
    return " ".join(notice.message for notice in all_of(run, events.Noticed))


def test_a_transformer_on_replicas_translates_while_it_learns(runs: dict[str, RunDirectory]) -> None:
    run = runs["translation"]
    assert finished(run)[-1].logs["val_accuracy"] > 0.9
    *_, last = all_of(run, events.Translated)
    wrong = [sample for sample in last.samples if sample.predicted != sample.expected.lower().strip(".¿?")]
    assert (last.epoch, len(last.samples)) == (3, 4)
    assert len(wrong) <= 1
    # It loads in a process that has never heard of this project.
    assert run_forked(LOAD, str(run.model), cwd=run.path).splitlines()[-1].startswith("(2, 10, ")


def test_ratings_are_learnt_on_eight_replicas(runs: dict[str, RunDirectory]) -> None:
    # Always saying the mean is wrong by 0.8.
    errors = finished(runs["ratings"])[-1].logs
    assert errors["val_root_mean_squared_error"] < 0.4


def test_weighted_smoothed_mixed_leaves_train_step_by_step_and_are_scored_by_class(
    runs: dict[str, RunDirectory],
) -> None:
    run = runs["leaves"]
    first, last = (epoch.logs["loss"] for epoch in finished(run))
    assert last < first
    report = json.loads(run.report.read_text(encoding="utf-8"))
    assert report["accuracy"] == pytest.approx(finished(run)[-1].logs["val_accuracy"], abs=1e-3)
    assert "32 is ignored" in the(run, events.FitStarted).execution_reason


def test_patience_and_the_best_weights_outlast_the_first_phase(runs: dict[str, RunDirectory]) -> None:
    run = runs["two phases"]
    epochs = finished(run)
    assert "Fine-tuning begins: " in notices(run)
    assert [epoch.epoch for epoch in epochs] == [1, 2, 3, 4]
    assert the(run, events.RunFinished).outcome == "early"
    report = json.loads(run.report.read_text(encoding="utf-8"))
    assert report["accuracy"] == pytest.approx(epochs[0].logs["val_accuracy"], abs=1e-3)
    assert epochs[2].learning_rate == pytest.approx(1e-4)


def test_images_changed_in_the_model_train_in_sixteen_bits_and_are_predicted_by_tensorflow(
    runs: dict[str, RunDirectory], tmp_path: Path
) -> None:
    import numpy as np
    from sklearn.datasets import load_digits

    run = runs["in the model"]
    epochs = finished(run)
    assert epochs[-1].logs["val_accuracy"] > 0.6
    # The learning rate goes up for an epoch and falls to the end.
    assert epochs[0].learning_rate == pytest.approx(2e-3, rel=1e-3)
    assert epochs[-1].learning_rate == pytest.approx(0.0, abs=1e-4)
    digits = load_digits()
    np.save(tmp_path / "new.npy", digits.images[:200].astype("uint8")[..., None])
    rows = Job(tmp_path)(run, tmp_path / "new.npy")
    right = sum(int(row["label"]) == label for row, label in zip(rows, digits.target, strict=False))
    assert right > 120


def test_what_goes_wrong_is_told_as_with_tensorflow(runs: dict[str, RunDirectory]) -> None:
    assert finished(runs["not a number"])
    (alert,) = [alert for alert in all_of(runs["not a number"], events.Alerted) if alert.kind == events.AlertKind.NAN]
    assert alert.epoch == 1
    failed = the(runs["no memory"], events.RunFailed)
    assert "out of memory" in failed.what
    assert failed.why.startswith("Out of memory")
