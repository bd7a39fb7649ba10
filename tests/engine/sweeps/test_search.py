import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.sweeps.drivers import fork_driver
from tests.helpers import LIMIT_S, epoch_ended, small_config, the
from tpu_console.engine.errors import ConfigError, ConsoleError
from tpu_console.engine.runs.events import RunFailed, RunFinished, StopRequested
from tpu_console.engine.runs.run_directory import list_runs
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.sweeps.axes import Cell, parse_axes
from tpu_console.engine.sweeps.folder import Definition, create_sweep, find_sweep
from tpu_console.engine.sweeps.search import Trials, check_search
from tpu_console.tui.following.sweep import SweepReader, conclusion

optuna = pytest.importorskip("optuna", reason="the extra [search] is not installed")


def made(search: Any = "tpe", **options: Any) -> Trials:
    over = ("learning_rate=1e-4..1e-1:log", "hidden=[8],[16]") if search != "grid" else ("hidden=[8],[16]",)
    definition = Definition(config=small_config(), over=over, search=search, metric="val_accuracy", **options)
    return Trials(create_sweep(definition), definition, parse_axes(over))


def ended(outcome: str, *values: float, reason: str = "") -> RunState:
    epochs = [epoch_ended(number, {"val_accuracy": value}) for number, value in enumerate(values, 1)]
    return RunState(epochs=epochs, stop=StopRequested(reason) if reason else None, end=RunFinished(outcome, reason, {}))


def following(trials: Trials) -> Cell:
    cell = trials.next()
    assert cell is not None
    return cell


def study() -> Any:
    """The study of the newest sweep, as anybody can load it."""
    sweep = find_sweep()
    return optuna.load_study(study_name=sweep.name, storage=f"sqlite:///{sweep.path / 'study.db'}")


def states() -> list[str]:
    return [trial.state.name for trial in study().trials]


def test_optuna_is_told_the_best_value_and_never_of_a_run_that_was_only_stopped() -> None:
    trials = made(trials=4)
    for state in (ended("completed", 0.5, 0.9, 0.7), ended("stopped", 0.5), RunState(end=RunFailed("x", "", "", ""))):
        cell = following(trials)
        assert cell.config is not None
        assert cell.values == (cell.config.optimizer.learning_rate, cell.config.model_options["hidden"])
        trials.ended(cell, state)
    assert states() == ["COMPLETE", "RUNNING", "FAIL"]
    assert study().best_value == 0.9
    definition = find_sweep().read()
    again = Trials(find_sweep(), definition, parse_axes(definition.over))
    cell = following(again)
    assert cell.number == 1  # the one that was stopped goes on
    again.ended(cell, ended("stopped", 0.5, reason="pruned by the search"))
    assert again.next() is not None
    assert again.next() is None
    assert states()[1] == "PRUNED"


def test_a_grid_ends_when_all_of_its_points_were_tried() -> None:
    trials = made("grid", trials=20)
    seen = []
    while (cell := trials.next()) is not None:
        seen.append(cell.values[0])
        trials.ended(cell, ended("completed", 0.5))
    assert sorted(seen) == [[8], [16]]
    assert states() == ["COMPLETE"] * 2


def test_what_a_search_cannot_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"a grid needs a number of values, as in 8\.\.64:5"):
        check_search(parse_axes(["batch_size=8..64"]), search="grid")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConsoleError, match="needs Optuna, which is not installed"):
        check_search(parse_axes(["batch_size=8,16"]), search="tpe")


@pytest.mark.slow
def test_a_run_worse_than_one_of_another_machine_is_pruned_whoever_killed_the_search(tmp_path: Path) -> None:
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / "shared")))
    shared = optuna.create_study(storage=storage, study_name="shared", direction="maximize")
    good = dict.fromkeys(range(1, 100), 1.0)
    shared.add_trial(optuna.trial.create_trial(value=1.0, intermediate_values=good))
    definition = Definition(
        config=small_config(epochs=100_000), over=("learning_rate=1e-9..1e-8:log",), search="random",
        trials=3, prune=True, metric="val_accuracy", study="shared", storage=str(tmp_path / "shared"),
    )  # fmt: skip
    sweep = create_sweep(definition)
    assert fork_driver(sweep, "start").wait(4 * LIMIT_S) == 9
    assert fork_driver(sweep).wait(8 * LIMIT_S) == 0, sweep.log.read_text()
    assert [trial.state.name for trial in shared.trials] == ["COMPLETE", "PRUNED", "PRUNED"]
    assert sorted(sweep.runs()) == [1, 2]
    assert len(list_runs()) == 2
    assert "pruned" in the(sweep.runs()[1], RunFinished).reason
    view = SweepReader(sweep).read()
    assert [cell.status for cell in view.cells] == ["pruned", "pruned"]
    assert [cell.cell.values for cell in view.cells] == [
        (trial.params["optimizer.learning_rate"],) for trial in shared.trials[1:]
    ]
    assert conclusion(view).endswith("2 of 2 were pruned.")
