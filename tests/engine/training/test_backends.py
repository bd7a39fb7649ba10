"""The same configuration on one device and on several, with both of Keras's backends: the curves agree."""

import pytest

from tests.helpers import all_of, report_of, run_host, small_config, the
from tpu_console.engine.runs import events
from tpu_console.engine.runs.run_directory import RunDirectory

pytestmark = pytest.mark.slow

TOLERANCE = 1e-3
"""Largest difference of an epoch's loss, relative: the order of float32 sums differs, and differences grow."""

_GLOBAL_BATCH = 64


def train(folder: pytest.TempPathFactory, backend: str, accelerator: str, replicas: int) -> RunDirectory:
    config = small_config(
        model="cnn",
        model_options={"filters": [8], "padding": "same", "hidden": [32], "dropout": 0.0, "batch_norm": False},
        batch_size=_GLOBAL_BATCH // replicas,
        epochs=4,
        accelerator=accelerator,
        backend=backend,
        # Not Adam, which learns the same from gradients of the wrong size.
        optimizer={"name": "sgd(momentum=0.9)", "learning_rate": 0.05},
        steps_per_execution=2,
        # TensorFlow validates examples that do not divide among the replicas; JAX would skip some.
        data={"validation_fraction": 0.203 if backend == "tensorflow" else 0.2},
        checkpoint={"monitor": "auto"},
        sinks=["tensorboard"],
    )
    run = run_host(config, folder.mktemp(f"{backend}-{replicas}"))
    assert all_of(run, events.RunFinished), run.log.read_text(errors="replace")[-3000:]
    return run


# TensorFlow traces the model again for every replica.
@pytest.fixture(scope="module", params=[("tensorflow", 2), ("jax", 8)], ids=lambda param: str(param[0]))
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDirectory, RunDirectory]:
    backend, replicas = request.param
    return train(tmp_path_factory, backend, "cpu", 1), train(tmp_path_factory, backend, f"sim:{replicas}", replicas)


def test_the_curves_of_one_device_and_of_several_agree(runs: tuple[RunDirectory, RunDirectory]) -> None:
    one, several = (all_of(run, events.EpochEnded) for run in runs)
    assert len(one) == len(several) == 4
    for name in ("loss", "val_loss"):
        losses = [epoch.logs[name] for epoch in one]
        assert [epoch.logs[name] for epoch in several] == pytest.approx(losses, rel=TOLERANCE)
        assert losses[-1] < 0.5 * losses[0], "it has to learn, or agreeing would prove little"
    assert one[-1].logs["val_accuracy"] > 0.7


def test_the_run_says_which_backend_and_which_devices(runs: tuple[RunDirectory, RunDirectory]) -> None:
    one, several = (the(run, events.AcceleratorReady) for run in runs)
    backend = one.backend
    assert (several.backend, several.backend_reason) == (backend, "asked for")
    assert ("jax" in one.versions) is (backend == "jax")
    assert (len(one.replicas), one.strategy) == (1, "one device")
    assert several.strategy == {"tensorflow": "MirroredStrategy", "jax": "DataParallel"}[backend]
    replicas = {"tensorflow": 2, "jax": 8}[backend]
    assert [replica.index for replica in several.replicas] == list(range(replicas))
    assert len({replica.device for replica in several.replicas}) == replicas
    fit = the(runs[1], events.FitStarted)
    assert (fit.global_batch, fit.replica_batch) == (_GLOBAL_BATCH, _GLOBAL_BATCH // replicas)
    assert (fit.steps_per_execution, "so 2 is ignored" in fit.execution_reason) == (1, True)
    memory = all_of(runs[1], events.MemorySampled)[0].replicas
    assert [(one.index, one.used_bytes, bool(one.why_not)) for one in memory] == [
        (n, None, True) for n in range(replicas)
    ]


def test_validation_data_that_does_not_divide_is_validated_whole(runs: tuple[RunDirectory, RunDirectory]) -> None:
    run = runs[1]
    examples = the(run, events.DataReady).validation_examples
    assert examples is not None
    assert (examples % 2 > 0) == (the(run, events.AcceleratorReady).backend == "tensorflow")
    accuracy = all_of(run, events.EpochEnded)[-1].logs["val_accuracy"]
    report = report_of(run)
    assert sum(map(sum, report.matrix)) == report.examples == examples
    assert report.accuracy == pytest.approx(accuracy, abs=1e-6)
    # A mean over exactly so many examples.
    assert accuracy * examples == pytest.approx(round(accuracy * examples), abs=1e-2)
    assert the(run, events.RunFinished).summary["replicas"] == len(the(run, events.AcceleratorReady).replicas)
