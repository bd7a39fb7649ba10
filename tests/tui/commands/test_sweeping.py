"""`tpu-console sweep` and `tpu-console runs sweeps` in this process; the runs are made, not trained."""

import os
import subprocess
import sys

import pytest

from tests.tui.calling import Call
from tests.tui.made_runs import made_run, made_sweep
from tpu_console.engine.sweeps.cells import cells_of, parse_axes
from tpu_console.engine.sweeps.folder import Sweep, list_sweeps

SPEEDS = {1: 1000.0, 2: 2000.0, 3: 3000.0, 4: 5000.0}


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch) -> list[Sweep]:
    """Sweeps whose driver was started; it makes a run of every cell that has none, and ends."""
    started: list[Sweep] = []

    def start(sweep: Sweep) -> subprocess.Popen[bytes]:
        started.append(sweep)
        definition, noted = sweep.read(), sweep.runs()
        cells = [] if definition.search else cells_of(definition.config, parse_axes(definition.over), definition.repeat)
        for cell in cells:
            if cell.number not in noted and cell.config is not None and cell.config.batch_size < 1000:
                sweep.note(cell.number, made_run(speed=1000.0 * cell.number, batch_size=cell.config.batch_size))
        return subprocess.Popen([sys.executable, "-S", "-c", ""])

    monkeypatch.setattr("tpu_console.engine.sweeps.folder.start_driver", start)
    return started


def test_what_cannot_be_swept_is_refused_in_one_sentence_and_leaves_nothing(call: Call, drivers: list[Sweep]) -> None:
    two = "digits-cnn --over batch_size=16,32"
    for line, sentence in {
        "digits-cnn": "--over: is missing; for example --over batch_size=32,128",
        "": "PRESET: is missing",
        "nonsense --over batch_size=16": "nonsense",
        f"{two} --baseline batch_size=64": "is not in the table",
        "digits-cnn --over batch_size=9999": "no combination can be trained: A global batch of 9,999",
        f"{two} --prune": "--prune: is for a search",
        f"{two} --search tpe --repeat 2": "takes neither --repeat",
        f"{two} --search tpe --study x": "--study: needs --storage",
        "--resume nonsense": "There is no sweep",
        "digits-cnn --resume x": "--resume: takes no preset",
    }.items():
        err = call.refused("sweep", *line.split())
        assert (sentence in err, err.count("Error:")) == (True, 1), err
    assert (list_sweeps(), drivers) == ([], [])


def test_the_plan_comes_first_then_each_run_then_the_results(call: Call, drivers: list[Sweep]) -> None:
    code, out, err = call("sweep", "digits-cnn", "--over", "batch_size=16,32,2048", "--epochs", "2")
    assert (code, err) == (0, "")
    assert out.index("runs         2, of 3") < out.index("refused      batch_size=2048: ")
    assert out.index("time         unknown") < out.index("sweep        ")
    assert out.index("1/3    batch_size=16  finished") < out.index("batch_size  state")
    assert "fastest measured" in out
    assert drivers[0].read().config.epochs == 2


def test_a_form_has_standard_output_for_itself_and_resuming_trains_what_is_missing(
    call: Call, drivers: list[Sweep]
) -> None:
    sweep = made_sweep(["batch_size=16,32"], {1: 1000.0})
    assert [*sweep.runs()] == [1]
    code, out, err = call("sweep", "--resume", sweep.name, "--csv")
    assert (code, drivers, [*sweep.runs()]) == (0, [sweep], [1, 2])
    assert out.startswith("batch_size,state,")
    assert len(out.splitlines()) == 3
    assert "2/2    batch_size=32  finished" in err


def test_a_detached_sweep_returns_at_once_and_a_search_says_what_it_improves(call: Call, drivers: list[Sweep]) -> None:
    pytest.importorskip("optuna", reason="the extra [search] is not installed")
    args = ("--search", "tpe", "--over", "learning_rate=1e-4..1e-1:log", "--trials", "4", "--prune", "--detach")
    out = call.out("sweep", "digits-cnn", *args)
    assert "(tpe)" in out
    assert "improves     val_accuracy" in out
    definition = drivers[0].read()
    assert (definition.search, definition.trials, definition.prune) == ("tpe", 4, True)


def test_finding_a_learning_rate_is_a_sweep_of_short_runs(call: Call, drivers: list[Sweep]) -> None:
    call.out("sweep", "digits-cnn", "--lr-find", "--detach")
    config = drivers[0].read().config
    assert (config.epochs, config.optimizer.schedule) == (1, "constant")
    assert len(drivers[0].runs()) == 11


def test_sweeps_are_listed_printed_and_stopped(call: Call) -> None:
    assert "tpu-console sweep" in call("sweeps")[1]
    sweep = made_sweep(["accelerator=cpu,sim:8", "batch_size=16,32"], SPEEDS)
    out = call.out("sweeps")
    assert out.splitlines()[1].split()[:3] == [sweep.name, "complete", "4/4"]
    assert out.splitlines()[1].endswith("4 finished")
    assert "█" in call.out("sweeps", sweep.name)
    assert call.out("sweeps", "--markdown").startswith("| accelerator | batch_size |")
    assert call.out("sweeps", sweep.name, "--svg").startswith("<svg")
    assert call("sweeps", sweep.name, "--stop")[0] == 1
    lock = sweep.lock()
    assert "Asked" in call("sweeps", sweep.name, "--stop")[1]
    assert sweep.requested("stop-run")
    os.close(lock)
    assert "'other'" in call("sweeps", "other")[2]
