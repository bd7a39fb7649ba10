"""Steering a run that trains from the command line."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import helpers
from tests.helpers import Host, all_of, has, run_host, small_config, the, wait_until
from tests.tui.calling import Call
from tests.tui.made_runs import DONE, made_run
from tpu_console.engine.runs import events
from tpu_console.engine.runs.checkpoint import newest_checkpoint
from tpu_console.engine.runs.control import ask
from tpu_console.engine.runs.heartbeat import write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.engine.storage.paths import runs_folder

STEPS, EPOCHS = 100, 2


# The first step waits for what was asked before.
GATE = """
import pathlib, time
import keras

class Gate(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        while not pathlib.Path(__file__).with_name("open").exists():
            time.sleep(0.02)
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """A host process that trains two epochs; batches are so small that an epoch takes a moment."""
    gate = tmp_path / "gate.py"
    gate.write_text(GATE, encoding="utf-8")
    config = small_config(
        batch_size=1,
        steps_per_epoch=STEPS,
        epochs=EPOCHS,
        optimizer={"learning_rate": 0.001},
        callbacks=[f"{gate}:Gate"],
        data={"validation_fraction": 0.05},
    )
    host = Host(config, runs_folder(), forked=True)
    yield host
    host.kill()


FIT = events.FitStarted(2, 4, 32, 32, 4)


def make_run(*written: events.Event) -> RunDirectory:
    run = create_run("mine")
    journal = JournalWriter(run.journal)
    for event in written:
        journal.write(event)
    journal.close()
    return run


def answered(run: RunDirectory, action: str) -> list[events.Steered]:
    return [event for event in all_of(run, events.Steered) if event.action == action]


@pytest.mark.slow
def test_a_run_is_paused_changed_continued_and_stopped_after_an_epoch(host: Host, call: Call, tmp_path: Path) -> None:
    run = host.run
    wait_until(lambda: has(run, events.RunStarted), "the run to start")
    # Asked before training begins, so that the run is paused before its first step. The command would wait for it.
    ask(run, events.Steering.PAUSE, "requested with tpu-console pause")
    (tmp_path / "open").touch()
    wait_until(lambda: answered(run, "pause"), "a pause")
    assert "already paused" in call.refused("pause", run.run_id, code=1)
    for assignment, change in {"epochs=+403": "epochs 2 → 405", "learning_rate=1e-4": "rate 0.001 → 1e-4"}.items():
        assert change in call.out("set", run.run_id, assignment)
    for assignment, why in {"epochs=0": "0 epochs", "epochs=many": "'many'", "learning_rate=-1": "'-1'"}.items():
        assert why in call.refused("set", run.run_id, assignment, code=1)
    assert [call(command, run.run_id)[0] for command in ("checkpoint", "profile")] == [1, 1]  # no step has been done
    assert not has(run, events.Progress)
    assert call("continue", run.run_id)[0] == 0
    # Two epochs were asked for; the third shows that `fit` went on.
    wait_until(lambda: len(all_of(run, events.EpochEnded)) >= EPOCHS + 1, "an added epoch")

    def is_saved() -> bool:
        """Save within an epoch: while it validates, that is refused."""
        codes = [call(command, run.run_id)[0] for command in ("pause", "checkpoint", "continue")]
        return codes == [0, 0, 0]

    out = call.out("profile", run.run_id, "--steps", "3")
    assert all(part in out for part in ("Tracing 3 steps", "a step", "dense", "xprof"))
    wait_until(is_saved, "a checkpoint")
    assert newest_checkpoint(run) is not None
    assert "after this epoch" in call.out("stop", run.run_id, "--after", "epoch")
    assert host.wait() == 0

    epochs = all_of(run, events.EpochEnded)
    assert [event.epoch for event in epochs] == [*range(1, len(epochs) + 1)]
    assert [event.step for event in epochs] == [STEPS * event.epoch for event in epochs]
    assert [event.learning_rate for event in epochs] == pytest.approx([1e-4] * len(epochs))
    assert "val_loss" in epochs[-1].logs
    assert EPOCHS < len(epochs) < 405
    end = the(run, events.RunFinished)
    assert (end.outcome, end.reason) == ("stopped", the(run, events.StopRequested).reason)
    assert the(run, events.StopRequested).after == "epoch"
    assert all_of(run, events.FitStarted)[-1].epochs == 405
    assert not list(run.control.iterdir())

    # The pause is a phase, and in no time of training.
    steered = [(at, event) for at, event in helpers.timed_events_of(run) if isinstance(event, events.Steered)]
    began, ended, *_ = (at for at, event in steered if event.action in {"pause", "continue"} and not event.refused)
    phases = [event.phase for event in all_of(run, events.PhaseStarted)]
    assert phases.index(events.Phase.PAUSED) < phases.index(events.Phase.TRAINING)
    written = next(at for at, event in helpers.timed_events_of(run) if isinstance(event, events.EpochEnded))
    first = epochs[0]
    fit_began = next(at for at, event in helpers.timed_events_of(run) if isinstance(event, events.FitStarted))
    assert first.elapsed_s <= written - fit_began - (ended - began) + 0.5

    out = call.out("attach", run.run_id)
    assert "epochs 2 → 405 at step 0" in out
    assert "; after this epoch\n" in out
    assert "paused at step 0" in call.out("show", run.run_id)
    assert call.json("show", run.run_id)["steered"][0]["action"] == "pause"
    assert "not training: stopped" in call.out("pause", run.run_id)


@pytest.mark.slow
def test_a_run_is_killed_at_once(host: Host, call: Call) -> None:
    run = host.run
    wait_until(lambda: has(run, events.RunStarted), "the run to start")
    assert "add --yes" in call.refused("stop", run.run_id, "--now")
    call.out("stop", run.run_id, "--now", "--yes")
    assert host.wait() == 1
    end = the(run, events.RunFinished)
    assert (end.outcome, helpers.events_of(run)[-1]) == ("stopped", end)
    assert {"killed", "--now"} <= {*re.findall(r"[\w-]+", end.reason)}
    assert len(run.history.read_text().splitlines()) == 1 + len(all_of(run, events.EpochEnded))
    assert run.summary.exists()


@pytest.mark.parametrize("words", ["epochs", "batch_size=3", "a b epochs=3", "epochs=", ""])
def test_set_says_what_it_takes(call: Call, words: str) -> None:
    err = call.refused("set", *words.split())
    assert ("[RUN] KEY=VALUE" if not words else "[RUN] epochs=N") in err


def test_a_notebooks_run_can_only_be_stopped_and_one_that_has_ended_is_not_asked(call: Call) -> None:
    run = make_run(events.RunStarted("mine", "notebook", 1, "here"), FIT)
    write_heartbeat(run, os.getpid())
    for args in (("pause",), ("set", "epochs=+1"), ("stop", "--after", "epoch")):
        assert "trains in a notebook" in call.refused(*args, code=1)
    assert not list(run.control.iterdir())
    run = made_run()
    assert "not training: finished" in call.out("set", run.run_id, "epochs=+1")
    assert not list(run.control.iterdir())


def test_traced_steps_are_compared_with_those_of_another_run(call: Call) -> None:
    def traced(step_s: float, **config: Any) -> RunDirectory:
        parts = {"computing": step_s}, {"dense": step_s}, {"dot": step_s}
        trace = events.Profiled(1, 20, 1.0, 5, step_s, *parts, callbacks={}, optimizer="adam", weights={}, trace="")
        return make_run(events.RunStarted("digits-cnn", "host", 1, "here", config), FIT, trace, DONE)

    slow = traced(0.010)
    fast, other = traced(0.008, profile={"before": slow.run_id}), traced(0.008)
    for run, args in ((fast, ()), (other, ("--before", slow.run_id))):
        out = call.out("profile", run.run_id, *args)
        assert f"in {slow.run_id}: 20% less" in out
    assert call.json("profile", fast.run_id)["before"]["step_s"] == 0.010
    for named in ("x", {"before": f"../runs/{slow.run_id}"}, {"before": ["x"]}):
        code, out, _ = call("profile", traced(0.008, profile=named).run_id)
        assert (code, "20% less" in out) == (0, False)
    assert call("profile", fast.run_id, "--before", made_run().run_id)[0] == 1


@pytest.mark.slow
def test_a_run_stops_in_time_for_its_budget_and_is_saved(private_home: Any, call: Call) -> None:
    # Starting takes longer than this budget, so the run stops after its first execution.
    run = run_host(small_config(batch_size=1, epochs=50, budget="1s"), runs_folder())
    end, budget = the(run, events.RunFinished), the(run, events.BudgetSet)
    assert end.outcome == "stopped"
    assert the(run, events.StopRequested).reason == end.reason
    assert (budget.seconds, budget.limit) == (1.0, "1s")
    assert (len(all_of(run, events.EpochEnded)), run.model.exists()) == (1, True)
    out = call.out("attach", run.run_id)
    assert "\nbudget       1.00 s, " in out
    assert f"\nstopped      {end.reason} (total " in out


def test_a_process_that_does_not_respond_is_killed(private_home: Any, call: Call) -> None:
    beating = helpers.BeatingProcess(create_run("frozen"))
    try:
        beating.freeze(30)
        call.out("stop", "--now", "--yes")
        assert beating.process.wait(helpers.LIMIT_S) == -signal.SIGKILL
    finally:
        beating.kill()


def test_a_process_that_cannot_be_seen_is_not_killed(call: Call) -> None:
    run = make_run(events.RunStarted("far", "host", 1, "elsewhere"), FIT)
    run.heartbeat.write_text(json.dumps({"pid": os.getpid(), "host": "elsewhere"}))
    at = time.time() - 12  # silent, and not yet given up
    os.utime(run.heartbeat, (at, at))
    assert "cannot be seen" in call.refused("stop", "--now", "--yes", code=1)


@pytest.mark.usefixtures("unheard")
def test_a_stop_says_what_the_run_does_first(call: Call) -> None:
    run = make_run(events.RunStarted("busy", "host", 1, "here"), events.PhaseStarted(events.Phase.COMPILING))
    write_heartbeat(run, os.getpid())
    out = call.out("stop")
    assert events.Phase.COMPILING in out
    assert f"tpu-console stop {run.run_id} --now" in out
