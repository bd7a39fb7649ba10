"""Presets, each trained at a reduced size on made-up data of its format, and every feature of the engine on JAX.

On TensorFlow, translations and ratings are in tests/engine/jobs/test_predict.py; runs in separate processes are in
test_backends.py, the user's functions in test_script.py.
"""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from tests import saved_models
from tests.engine.jobs.predicting import Job
from tests.forks import quick_jax
from tests.helpers import LIMIT_S, all_of, only_shapes, report_of, run_forked, the
from tests.images import write_plant_pathology
from tests.keras_files import ACCEPT, write_cifar, write_fashion_mnist, write_mnist
from tests.words import ratings, write_pairs, write_ratings, write_reviews
from tpu_console.engine.config.reading import parse_assignment, with_changes
from tpu_console.engine.data.examples import Input, Signature, Task
from tpu_console.engine.models.build import build_model, unfreeze
from tpu_console.engine.process.launch import prepare_run
from tpu_console.engine.runs import events
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.presets.catalog import all_presets, find_preset

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

# On one device. What to change, as ``--set`` takes it, and the validation accuracy that shows that it learns.
ON_TENSORFLOW = {
    "fashion-mnist-cnn": ("epochs=1 validation_freq=1 batch_size=128 steps_per_epoch=30", 0.8),
    "mnist-mlp": ("epochs=1 steps_per_epoch=40 model_options.hidden=[64]", 0.8),
    "cifar10-cnn": ("epochs=1 steps_per_epoch=40 model_options.filters=[8] model_options.hidden=[32]", 0.3),
    "cifar10-vgg-augmented": (
        """dataset=digits epochs=4 steps_per_epoch=15 batch_size=64 validation_freq=4 model_options.filters=[16]
        model_options.hidden=32 optimizer.learning_rate=0.006""",
        0.3,
    ),
    "imdb-text": (
        """epochs=2 data.options.length=80 model_options.width=32 model_options.filters=[32,32]
        optimizer.learning_rate=0.004""",
        0.8,
    ),
    "plant-pathology-cnn": (
        """data.options.image_size=[48,48] epochs=8 batch_size=16 model_options.filters=[16,32]
        optimizer.learning_rate=0.003""",
        0.5,
    ),
    "plant-pathology-hub": (
        """data.options.image_size=[48,48] epochs=16 batch_size=16 optimizer.learning_rate=0.03 model_options.path=saved
        fine_tuning.after_epochs=12""",
        0.5,
    ),
}


# The first sets how many devices JAX simulates in the process; the others use as many of them as they ask for.
ON_JAX = {
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
    # No epoch improves by this much: the second phase ends after two epochs, with the weights of the run's first.
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
    "not a number": (
        "digits-cnn",
        "model=mlp model_options={hidden=[4]} epochs=2 optimizer.learning_rate=1e30 alerts.nan=warn",
    ),
    # More than a process can address.
    "no memory": ("digits-cnn", "model=mlp model_options={hidden=[10_000_000_000_000]}"),
}

TRAIN = f"""
import os, sys
from pathlib import Path
from tpu_console.engine.config.reading import load_config
from tpu_console.engine.config.user_code import note_start
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.engine.runs.control import Control
from tpu_console.engine.training.train import train_and_report

{ACCEPT}
flags = ""  # as the first run sets them, which JAX reads
for folder in sys.argv[1:]:
    run = RunDirectory(Path(folder))
    journal = JournalWriter(run.journal)
    config = load_config(run.config)
    note_start(config)  # the tests have another home
    train_and_report(run, config, journal, Control(), source="host")
    journal.close()
    flags = flags or os.environ.get("XLA_FLAGS", "") + " " + os.environ.get("PJRT_NPROC", "")
print(flags)
"""


def train_presets(wanted: Iterable[tuple[str, str]], folder: Path, backend: str) -> tuple[list[RunDirectory], str]:
    """Train presets with changes in one process, whose Keras home has their data; also return what JAX started with."""
    runs = []
    for name, changes in wanted:
        changed = f"backend={backend} accelerator=cpu sinks=[] {changes}".split()
        config = with_changes(find_preset(name).config, [*map(parse_assignment, changed)])
        runs.append(prepare_run(config, folder / "runs"))
    env = {"KERAS_BACKEND": backend, "KERAS_HOME": str(folder)} | (quick_jax() if backend == "jax" else {})
    paths = [str(run.path) for run in runs]
    return runs, run_forked(TRAIN, *paths, cwd=folder, env=env, limit_s=9 * LIMIT_S)


@pytest.fixture(scope="module")
def on_tensorflow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDirectory]:
    home = tmp_path_factory.mktemp("keras")
    write_fashion_mnist(home)
    write_mnist(home)
    write_cifar(home, "cifar10")
    write_reviews(home / "IMDB Dataset.csv", 1200)
    write_plant_pathology(home / "plant-pathology-2020-fgvc7", per_class=60, size=(64, 96))
    saved_models.exported(home / "saved")
    wanted = ((name, changes) for name, (changes, _) in ON_TENSORFLOW.items())
    return dict(zip(ON_TENSORFLOW, train_presets(wanted, home, "tensorflow")[0], strict=True))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunDirectory]:
    """The runs on JAX, by what they test."""
    home = tmp_path_factory.mktemp("jax")
    write_pairs(home / "spa-eng" / "spa.txt", 1200)
    write_ratings(home / "ml-latest-small" / "ratings.csv", ratings(100, 80, 6000))
    write_plant_pathology(home / "plant-pathology-2020-fgvc7", per_class=61, size=(32, 48))
    runs, flags = train_presets(ON_JAX.values(), home, "jax")
    # Without these, many replicas on two cores sometimes deadlock.
    assert "multi_thread_eigen=false" in flags
    assert flags.split()[-1] == "64"
    return dict(zip(ON_JAX, runs, strict=True))


@pytest.mark.parametrize("name", ON_TENSORFLOW)
def test_a_preset_learns(name: str, on_tensorflow: dict[str, RunDirectory]) -> None:
    run = on_tensorflow[name]
    assert run.summary.is_file(), run.journal.read_text()[-2000:]
    summary = json.loads(run.summary.read_text(encoding="utf-8"))
    assert (summary["outcome"], summary["replicas"]) == ("completed", 1)
    assert summary["best"]["val_accuracy"] >= ON_TENSORFLOW[name][1]


def test_the_last_blocks_of_efficientnet_are_trained_in_the_second_phase() -> None:
    config = with_changes(find_preset("plant-pathology-efficientnet").config, [("model_options.weights", "none")])
    with only_shapes():
        model = build_model(config, Signature(Task.CLASSES, {"image": Input((32, 32, 3))}, 4))
        trained = len(model.trainable_weights)
        assert "60 of the 238 layers" in unfreeze(model, config)
    assert len(model.trainable_weights) > trained == 2


def test_every_preset_is_trained_by_a_test() -> None:
    found, _ = all_presets()
    assert {*ON_TENSORFLOW, *(name for name, _ in ON_JAX.values())} == {preset.name for preset in found}


def finished(run: RunDirectory) -> list[events.EpochEnded]:
    """The epochs of a run, which must have finished on the configured accelerator."""
    failed = all_of(run, events.RunFailed)
    assert not failed, (failed, run.log.read_text(errors="replace")[-3000:])
    assert run.model.is_file()
    return all_of(run, events.EpochEnded)


def notices(run: RunDirectory) -> str:
    return " ".join(notice.message for notice in all_of(run, events.Noticed))


LOAD = """
import sys
import keras
import numpy as np
model = keras.saving.load_model(sys.argv[1])
print(model.predict({part.name: np.zeros((2, *part.shape[1:]), "int32") for part in model.inputs}, verbose=0).shape)
assert "tpu_console" not in sys.modules
"""


def test_a_transformer_on_replicas_translates_while_it_learns(runs: dict[str, RunDirectory]) -> None:
    run = runs["translation"]
    assert finished(run)[-1].logs["val_accuracy"] > 0.9
    *_, last = all_of(run, events.Translated)
    wrong = [sample for sample in last.samples if sample.predicted != sample.expected.lower().strip(".¿?")]
    assert (last.epoch, len(last.samples)) == (3, 4)
    assert len(wrong) <= 1
    assert run_forked(LOAD, str(run.model), cwd=run.path).splitlines()[-1].startswith("(2, 10, ")


def test_ratings_are_learned_on_eight_replicas(runs: dict[str, RunDirectory]) -> None:
    # Always predicting the mean has an error of 0.8.
    errors = finished(runs["ratings"])[-1].logs
    assert errors["val_root_mean_squared_error"] < 0.5


def test_weighted_smoothed_mixed_leaves_train_step_by_step_and_are_scored_by_class(
    runs: dict[str, RunDirectory],
) -> None:
    run = runs["leaves"]
    first, last = (epoch.logs["loss"] for epoch in finished(run))
    assert last < first
    assert report_of(run).accuracy == pytest.approx(finished(run)[-1].logs["val_accuracy"], abs=1e-3)
    assert "32 is ignored" in the(run, events.FitStarted).execution_reason


def test_patience_and_the_best_weights_outlast_the_first_phase(runs: dict[str, RunDirectory]) -> None:
    run = runs["two phases"]
    epochs = finished(run)
    assert "Fine-tuning begins: " in notices(run)
    assert [epoch.epoch for epoch in epochs] == [1, 2, 3, 4]
    assert the(run, events.RunFinished).outcome == "early"
    assert report_of(run).accuracy == pytest.approx(epochs[0].logs["val_accuracy"], abs=1e-3)
    assert epochs[2].learning_rate == pytest.approx(1e-4)


def test_images_changed_in_the_model_train_in_sixteen_bits_and_are_predicted_by_tensorflow(
    runs: dict[str, RunDirectory], tmp_path: Path
) -> None:
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


def test_problems_are_reported_as_with_tensorflow(runs: dict[str, RunDirectory]) -> None:
    warned = runs["not a number"]
    assert len(finished(warned)) == 2
    assert the(warned, events.RunFinished).outcome == "completed"
    (alert,) = [alert for alert in all_of(warned, events.Alerted) if alert.kind == events.AlertKind.NAN]
    assert (alert.epoch, alert.stops) == (1, False)
    failed = the(runs["no memory"], events.RunFailed)
    assert "out of memory" in failed.what
    assert failed.why.startswith("Out of memory")
