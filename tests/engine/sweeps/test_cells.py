import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.engine.sweeps.drivers import fork_driver
from tests.helpers import LIMIT_S, epoch_ended, small_config, the
from tpu_console.engine.errors import ConfigError, ConsoleError
from tpu_console.engine.runs.events import RunFailed, RunFinished, StopRequested
from tpu_console.engine.runs.run_directory import list_runs
from tpu_console.engine.runs.state import RunState
from tpu_console.engine.sweeps.cells import (
    LR_FIND,
    Cell,
    SweptKey,
    Trials,
    cells_of,
    check_search,
    combination,
    parse_axes,
    parse_baseline,
)
from tpu_console.engine.sweeps.folder import Definition, create_sweep, find_sweep
from tpu_console.tui.following.sweep import SweepReader, conclusion


def axis(text: str) -> SweptKey:
    (found,) = parse_axes([text])
    return found


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("batch_size=32,128", "batch_size", (32, 128)),
        ("batch_size = 32, 32 ,128", "batch_size", (32, 128)),
        ("accelerator=cpu,sim:8", "accelerator", ("cpu", "sim:8")),
        ("learning_rate=1e-3,0.01", "optimizer.learning_rate", (1e-3, 0.01)),
        ("hidden=[8],[16, 16]", "model_options.hidden", ([8], [16, 16])),
        ("model_options.units=4", "model_options.units", (4,)),
        ("batch_size=8..32:4", "batch_size", (8, 16, 24, 32)),
        ("batch_size=08..032:4", "batch_size", (8, 16, 24, 32)),
        ("batch_size=1_000..2_000:2", "batch_size", (1000, 2000)),
        ("dropout=0...1.:3", "model_options.dropout", (0.0, 0.5, 1.0)),
        ("learning_rate=1e-4..1e-1:log:4", "optimizer.learning_rate", (1e-4, 1e-3, 1e-2, 1e-1)),
    ],
)
def test_values_are_toml_lists_or_ranges(text: str, key: str, values: tuple[Any, ...]) -> None:
    found = axis(text)
    assert (found.key, found.values) == (key, values)


def test_a_sweep_of_an_earlier_version_goes_through_a_key_that_is_an_option_now() -> None:
    cells = cells_of(small_config(), parse_axes(["clip_norm=0,5"]))
    assert [cell.config.optimizer.name for cell in cells if cell.config] == ["adam", "adam(clipnorm=5)"]


def test_a_range_without_a_number_of_values_is_for_a_search() -> None:
    found = axis("learning_rate=1e-4..1e-1:log")
    assert (found.values, found.low, found.high, found.is_log, found.is_whole) == ((), 1e-4, 0.1, True, False)
    assert axis("batch_size=8..64").is_whole
    with pytest.raises(ConfigError, match="a range needs --search"):
        cells_of(small_config(), [found])


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ([], "--over: is missing"),
        (["batchsize=3"], "batchsize: unknown key; did you mean 'batch_size'?"),
        (["name=a,b"], "name: unknown key"),
        (["batch_size"], "batch_size: is not KEY=VALUE,VALUE"),
        (["batch_size=3", "batch_size=4"], "batch_size is given twice"),
        (["learning_rate=0..1:log:3"], "is not a range"),
        (["seed=1..300:201"], "is not a range"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(texts: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence.replace("?", r"\?")):
        parse_axes(texts)


def test_every_combination_comes_once_before_any_is_repeated_with_another_seed() -> None:
    axes = parse_axes(["accelerator=cpu,sim:2", "batch_size=16,32"])
    cells = cells_of(small_config(seed=5), axes, 2)
    assert [cell.number for cell in cells] == [*range(1, 9)]
    assert [cell.values for cell in cells[:4]] == [("cpu", 16), ("cpu", 32), ("sim:2", 16), ("sim:2", 32)]
    assert [(cell.repeat, cell.config.seed) for cell in cells if cell.config] == [(1, 5)] * 4 + [(2, 6)] * 4
    assert combination(axes, cells[0].values) == "accelerator=cpu batch_size=16"


def test_values_that_do_not_fit_together_are_refused_and_wrong_ones_are_an_error() -> None:
    axes = parse_axes(["backend=tensorflow,jax", "accelerator=cpu,tpu:host"])
    cells = cells_of(small_config(), axes)
    assert [bool(cell.refused) for cell in cells] == [False, False, False, True]
    assert "backend" in cells[3].refused
    with pytest.raises(ConfigError, match="batch_size: "):
        cells_of(small_config(), parse_axes(["batch_size=abc,32", "epochs=1,2"]))
    with pytest.raises(ConfigError, match=r"'v5e-8'.*preflight --on"):
        cells_of(small_config(), parse_axes(["accelerator=cpu,v5e-8"]))
    with pytest.raises(ConfigError, match="300 runs"):
        cells_of(small_config(), parse_axes(["seed=1..150:150", "epochs=1,2"]))


def test_finding_a_learning_rate_tries_eleven() -> None:
    values = [cell.values[0] for cell in cells_of(small_config(), parse_axes([LR_FIND]))]
    assert (len(values), values[0], values[-1]) == (11, 1e-5, 1.0)


def test_the_baseline_names_values_of_the_sweep() -> None:
    axes = parse_axes(["accelerator=cpu,sim:2", "batch_size=16,32"])
    assert parse_baseline("", axes) == {"accelerator": "cpu"}
    assert parse_baseline("batch_size=32,accelerator=sim:2", axes) == {"batch_size": 32, "accelerator": "sim:2"}
    with pytest.raises(ConfigError, match=r"batch_size=64 is .*16,32"):
        parse_baseline("batch_size=64", axes)
    with pytest.raises(ConfigError, match="seed=1 is not in the table"):
        parse_baseline("seed=1", axes)


searches = pytest.mark.skipif(find_spec("optuna") is None, reason="the extra [search] is not installed")


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
    import optuna

    sweep = find_sweep()
    return optuna.load_study(study_name=sweep.name, storage=f"sqlite:///{sweep.path / 'study.db'}")


def states() -> list[str]:
    return [trial.state.name for trial in study().trials]


@searches
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


@searches
def test_a_grid_ends_when_all_of_its_points_were_tried() -> None:
    trials = made("grid", trials=20)
    seen = []
    while (cell := trials.next()) is not None:
        seen.append(cell.values[0])
        trials.ended(cell, ended("completed", 0.5))
    assert sorted(seen) == [[8], [16]]
    assert states() == ["COMPLETE"] * 2


@searches
def test_what_a_search_cannot_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"a grid needs a number of values, as in 8\.\.64:5"):
        check_search(parse_axes(["batch_size=8..64"]), search="grid")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConsoleError, match="needs Optuna, which is not installed"):
        check_search(parse_axes(["batch_size=8,16"]), search="tpe")


@searches
@pytest.mark.slow
def test_a_run_worse_than_one_of_another_machine_is_pruned_whoever_killed_the_search(tmp_path: Path) -> None:
    import optuna

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
