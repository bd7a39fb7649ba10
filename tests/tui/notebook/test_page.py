"""The words around the picture in a notebook's cell."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.tui.live_fakes import FakeEngine
from tpu_console.engine.runs.events import EpochEnded, Noticed, Progress
from tpu_console.engine.runs.follower import RunFollower, Snapshot
from tpu_console.engine.runs.state import reduce
from tpu_console.engine.runs.timing import pace
from tpu_console.tui.notebook.picture import head, tables
from tpu_console.tui.widgets.run_header import HeaderView

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    engine = FakeEngine(tmp_path, replicas=2)
    engine.begin()
    for epoch in range(1, 5):
        engine.train(epoch)
    return engine


def shown(engine: FakeEngine, snapshot: Snapshot | None = None) -> dict[str, str]:
    snapshot = snapshot or RunFollower(engine.run).catch_up()
    view = HeaderView(engine.run.run_id, snapshot, engine.clock, pace=pace(snapshot.state))
    return head(engine.run, view, "")


def test_a_run_that_trains_shows_its_phase_replicas_progress_and_best_epoch(engine: FakeEngine) -> None:
    engine.train(5, ends=False)
    page = shown(engine)
    for part in ("training", "CPU, 2 replicas", "digits 1,437 + 360", "epoch 5/10 · step 8/20", "ms/step"):
        assert part in page["text/html"], page
        assert part in page["text/plain"], page
    assert "★ best val_accuracy 0.8800 in epoch 3" in page["text/plain"]
    assert '<progress value="88" max="200">' in page["text/html"]


def test_a_run_that_ended_says_how_and_that_it_overfits(engine: FakeEngine) -> None:
    engine.finish("stopped", "asked in a test")
    snapshot = RunFollower(engine.run).catch_up()
    assert "Stopped on request after 4 epochs" in shown(engine)["text/plain"]
    assert "overfitting" not in shown(engine)["text/plain"]
    state = snapshot.state
    for epoch in range(5, 13):
        logs = {"loss": 0.5 / epoch, "val_loss": float(epoch)}
        state = reduce(state, EpochEnded(epoch, epoch * 20, 20, 1.0, 0.2, 0, 0, 1, 1, 0.1, logs), 0.0)
    assert "The model is overfitting" in shown(engine, replace(snapshot, state=state))["text/plain"]
    state = reduce(state, Progress(13, 4, 244, 1.3, {"loss": 0.1}), 0.0)
    assert "The model is overfitting" in shown(engine, replace(snapshot, state=state))["text/plain"]


def test_the_tables_have_the_newest_epochs_the_best_one_and_every_replica(engine: FakeEngine) -> None:
    for epoch in range(5, 17):
        engine.train(epoch)
    page = tables(RunFollower(engine.run).catch_up().state)
    rows = re.findall(r"<tr>(.*?)(?=<tr>|</table>)", page["text/html"])
    assert "★ 3" in rows[1]
    assert "font-weight:bold" in rows[1]
    assert [re.findall(r">([\d★ ]+)", row)[0].split()[-1] for row in rows[2:12]] == [str(n) for n in range(7, 17)]
    assert "CPU, simulated" in rows[-1]
    assert "CPU:1" in rows[-1]
    assert "★ 3" in page["text/plain"]
    assert "val_loss" in page["text/plain"]


def test_nothing_of_a_run_becomes_markup(engine: FakeEngine) -> None:
    bad = "<img src=x onerror=alert(1)>"
    state = RunFollower(engine.run).catch_up().state
    assert state.accelerator is not None
    assert state.started is not None
    started = replace(state.started, config={"dataset": bad, "model": bad})
    replicas = tuple(replace(replica, device=bad, kind=bad) for replica in state.accelerator.replicas)
    state = replace(state, accelerator=replace(state.accelerator, accelerator=bad, reason=bad, replicas=replicas))
    state = replace(state, started=started, phase=bad)
    state = reduce(state, Noticed(bad), 0.0)
    state = reduce(state, EpochEnded(5, 100, 20, 1.0, 0.2, 0, 0, 1, 1, 0.1, {bad: 1.0}), 0.0)
    html = shown(engine, Snapshot(state))["text/html"] + tables(state)["text/html"]
    assert "&lt;img" in html
    assert {*re.findall(r"</?([a-z]+)", html)} <= {"div", "b", "br", "progress", "table", "tr", "th", "td"}
