import os
from pathlib import Path

import pytest

from tests.engine.sweeps.drivers import fork_driver
from tests.helpers import LIMIT_S, all_of, has, small_config, wait_until
from tpu_console.engine.runs.events import RunFinished, RunResumed, RunStarted
from tpu_console.engine.runs.run_directory import list_runs
from tpu_console.engine.sweeps.driver import Grid
from tpu_console.engine.sweeps.folder import Definition, Sweep, SweepRunningError, create_sweep
from tpu_console.tui.following.sweep import SweepReader, SweepView

pytestmark = pytest.mark.slow
LONG_S = 4 * LIMIT_S


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """A sweep whose driver was killed at each step before a run started, and during one, and then stopped."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TPU_CONSOLE_HOME", str(tmp_path_factory.mktemp("swept")))
        sweep = create_sweep(Definition(config=small_config(epochs=2), over=("batch_size=32,64",)))
        for place in ("note", "config", "start"):
            assert fork_driver(sweep, place).wait(LONG_S) == 9
            assert [*sweep.runs().values()] == list_runs()
        driver = fork_driver(sweep)
        wait_until(lambda: has(sweep.runs()[1], RunStarted), "the first run", LONG_S)
        assert sweep.is_driven
        with pytest.raises(SweepRunningError, match="is running"):
            sweep.lock()
        driver.kill()
        driver.wait(LIMIT_S)
        driver = fork_driver(sweep)
        wait_until(lambda: 2 in sweep.runs(), "the second run", LONG_S)
        sweep.request("stop-run")
        assert driver.wait(LONG_S) == 0, sweep.log.read_text()
        assert sorted(sweep.runs()) == [1, 2]
        sweep.requested("stop-run", taken=True)
        assert fork_driver(sweep).wait(LONG_S) == 0, sweep.log.read_text()
        os.close(sweep.lock())
    return sweep


@pytest.fixture
def view(swept: Sweep, monkeypatch: pytest.MonkeyPatch) -> SweepView:
    monkeypatch.setenv("TPU_CONSOLE_HOME", str(swept.path.parent.parent))
    return SweepReader(swept).read()


def test_each_combination_was_trained_once_and_only_the_stopped_one_was_resumed(view: SweepView) -> None:
    runs = view.sweep.runs()
    assert sorted(runs) == [1, 2]
    assert {run.run_id for run in runs.values()} == {run.run_id for run in list_runs()}
    for number, run in runs.items():
        assert all_of(run, RunFinished)[-1].outcome == "completed"
        assert number == 2 or not all_of(run, RunResumed)
    assert [len(cell.run.state.epochs) for cell in view.cells if cell.run is not None] == [2, 2]
    assert [cell.run.settings["batch_size"] for cell in view.cells if cell.run is not None] == [32, 64]


def test_a_deleted_run_is_trained_again(view: SweepView, tmp_path: Path) -> None:
    cells = [cell.cell for cell in view.cells]
    assert Grid(view.sweep, cells).next() is None
    run = view.sweep.runs()[2]
    deleted = run.path.rename(tmp_path / "deleted")
    source = Grid(view.sweep, cells)
    assert source.next() == cells[1]
    assert source.next() is None
    view.sweep.request("retry-0002")
    assert source.next() == cells[1]
    deleted.rename(run.path)
