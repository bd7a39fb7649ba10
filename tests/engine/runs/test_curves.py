import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.engine.runs.curves import Samples
from tpu_console.engine.runs.events import FitStarted, Progress, RunResumed
from tpu_console.engine.runs.metrics import metric_called
from tpu_console.engine.runs.state import RunState, reduce

values = st.lists(st.floats(), max_size=20)


@given(st.lists(values, max_size=8))
def test_extending_gives_the_same_column_as_all_values_at_once(parts: list[list[float]]) -> None:
    series = Samples()
    for part in parts:
        series = series.extended(part)
    together = [value for part in parts for value in part]
    assert series == Samples(together)
    assert len(series) == len(together)
    assert np.array_equal(series.values, np.array(together, dtype=float), equal_nan=True)


@given(values, st.lists(values, min_size=2, max_size=5))
def test_branches_of_one_column_do_not_see_each_other(trunk: list[float], branches: list[list[float]]) -> None:
    series = Samples(trunk)
    grown = [series.extended(branch) for branch in branches]
    assert series == Samples(trunk)
    for branch, result in zip(branches, grown, strict=True):
        assert result == Samples([*trunk, *branch])


def test_values_cannot_be_written_to_and_the_newest_is_known() -> None:
    series = Samples([1.0, 2.5])
    with pytest.raises(ValueError, match="read-only"):
        series.values[0] = 9.0
    assert series.extended([3.0]).values[0] == 1.0
    assert (Samples().last, series.last) == (None, 2.5)


STEPS = 20


def trained(name: str, batches: list[float], reports: list[int], epochs: int = 1) -> RunState:
    """A run in which Keras reports the mean of a metric since the epoch began, after some of its steps."""
    state = reduce(RunState(), FitStarted(epochs, len(batches), 8, 8, 1), 0.0)
    for epoch, done in itertools.product(range(1, epochs + 1), reports):
        step = (epoch - 1) * len(batches) + done
        mean = float(np.float32(np.mean(batches[:done])))
        state = reduce(state, Progress(epoch, done, step, step * 0.1, {name: mean}), float(step))
    return state


@given(
    batches=st.lists(st.floats(-100, 100, width=32), min_size=STEPS, max_size=STEPS),
    reports=st.sets(st.integers(1, STEPS), min_size=1).map(sorted),
)
def test_each_point_is_the_mean_of_the_steps_since_the_one_before(batches: list[float], reports: list[int]) -> None:
    state = trained("loss", batches, reports, epochs=2)
    means = [np.mean(batches[a:b]) for a, b in itertools.pairwise([0, *reports])]
    np.testing.assert_allclose(state.train.metrics["loss"].values, means * 2, atol=2e-3)
    assert state.train.running == frozenset()


@pytest.mark.parametrize(
    "name", ["auc", "f1_score", "precision", "recall_1", "root_mean_squared_error", "mean_io_u", "my"]
)
def test_metrics_that_are_no_means_stay_as_reported_and_are_called_running(name: str) -> None:
    assert not metric_called(name).is_mean
    state = trained(name, [1.0, 0.0, 0.0, 0.0], [2, 4])
    assert state.train.metrics[name].values.tolist() == [0.5, 0.25]
    assert state.train.running == {name}


@pytest.mark.parametrize(
    "name", ["loss", "head_loss", "accuracy", "SparseTopKAccuracy", "acc", "mae", "mse_1", "mean_absolute_error"]
)
def test_losses_errors_and_accuracies_are_means(name: str) -> None:
    assert metric_called(name).is_mean


@pytest.mark.parametrize(
    ("before", "after", "shown"), [(1.0 - 3e-7, 1.0, 1.0), (3e-7, 0.0, 0.0), (2.0, 2.5, 17.5), (-2.0, -2.5, -17.5)]
)
def test_rounding_in_a_long_epoch_takes_no_accuracy_out_of_its_bounds(
    before: float, after: float, shown: float
) -> None:
    state = reduce(RunState(), FitStarted(1, 100_000, 8, 8, 1), 0.0)
    steps = (59_999, 60_000) if 0.0 <= after <= 1.0 else (30, 31)  # what has other bounds is no rounding
    for step, mean in zip(steps, (before, after), strict=True):
        state = reduce(state, Progress(1, step, step, 1.0, {"accuracy": mean}), float(step))
    assert state.train.metrics["accuracy"].last == pytest.approx(shown, abs=1e-9)
    assert state.train.running == frozenset()


def test_nan_stays_nan_and_ends_with_the_epoch() -> None:
    state = reduce(RunState(), FitStarted(2, 4, 8, 8, 1), 0.0)
    for epoch, done, value in ((1, 2, 1.0), (1, 4, math.nan), (2, 2, 3.0)):
        state = reduce(state, Progress(epoch, done, 4 * (epoch - 1) + done, 1.0, {"loss": value}), 1.0)
    np.testing.assert_array_equal(state.train.metrics["loss"].values, [1.0, math.nan, 3.0])


def test_a_resumed_epoch_goes_on_with_the_means_that_keras_reports() -> None:
    state = trained("loss", [4.0, 4.0, 1.0, 1.0, 7.0, 7.0], [2, 4, 6])
    state = reduce(state, RunResumed(0, 4, 4, 0.4, 1, "here"), 9.0)
    for done, mean in ((5, 3.0), (6, 3.5)):
        state = reduce(state, Progress(1, done, done, done * 0.1, {"loss": mean}), 10.0)
    assert state.train.step.values.tolist() == [2, 4, 5, 6]
    assert state.train.metrics["loss"].values.tolist() == [4.0, 1.0, 5.0, 6.0]
