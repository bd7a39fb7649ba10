from __future__ import annotations

import re

import pytest

from tests.helpers import replace
from tpu_console.engine.runs import events
from tpu_console.engine.runs.follower import Snapshot
from tpu_console.engine.runs.heartbeat import Liveness
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.engine.runs.timing import pace
from tpu_console.tui.widgets.run_header import HeaderView, header_rows, status
from tpu_console.tui.widgets.side_panes import waiting_rows


def state_of(*timed: tuple[float, events.Event]) -> RunState:
    state = RunState()
    for at, event in timed:
        state = reduce(state, event, at)
    return state


STARTED = events.RunStarted("digits-cnn", "host", 1, "vm", {"dataset": "digits", "model": "cnn", "accelerator": "auto"})
TRAINING: list[tuple[float, events.Event]] = [
    (100.0, STARTED),
    (100.0, events.PhaseStarted("compiling")),
    (101.0, events.FitStarted(10, 100, 32, 32, 1, "", "val_loss")),
    (103.0, events.PhaseStarted("training")),
    *((104.0 + i, events.Progress(2, 10 * i, 100 + 10 * i, 1.0 + i, {"loss": 1.0})) for i in range(1, 6)),
]


def view_of(state: RunState, now: float, **changes: object) -> HeaderView:
    snapshot = Snapshot(state, Liveness.ALIVE)
    view = HeaderView("20261120-run", snapshot, now=now, opened_at=90.0, pace=pace(state))
    return replace(view, **changes)


def test_the_clock_counts_from_the_start_in_every_phase() -> None:
    timed = [
        *TRAINING,
        (110.0, events.PhaseStarted("validating")),
        (112.0, events.PhaseStarted("paused")),
        (130.0, events.PhaseStarted("training")),
    ]
    texts = [
        status(view_of(state_of(*timed[:count]), timed[count - 1][0])).plain
        for count in range(len(TRAINING), len(timed) + 1)
    ]
    assert [text.split()[1:] for text in texts] == [
        ["training", "0:09"],
        ["validating", "0:10"],
        ["paused", "0:12"],
        ["training", "0:30"],
    ]
    resumed = state_of(*TRAINING, (409.0, events.RunResumed(1, 0, 100, 1.0, 2, "vm")))
    assert "0:09" in status(view_of(resumed, 409.0)).plain


@pytest.mark.parametrize(
    ("source", "liveness", "connects"),
    [
        ("host", Liveness.ALIVE, True),
        ("in-process", Liveness.ALIVE, True),
        ("notebook", Liveness.ALIVE, False),
        ("imported", Liveness.ALIVE, False),
        ("host", Liveness.DEAD, False),
    ],
)
def test_only_a_run_that_connects_says_so(source: str, liveness: Liveness, *, connects: bool) -> None:
    state = state_of((100.0, replace(STARTED, source=source)))
    view = view_of(state, 101.0, snapshot=Snapshot(state, liveness))
    assert ("connecting" in "".join(row.plain for row in header_rows(view, 120))) is connects


def test_a_phase_shows_its_own_time_and_those_before_theirs() -> None:
    view = view_of(
        state_of((10.0, STARTED), (10.0, events.PhaseStarted("importing")), (13.5, events.PhaseStarted("building"))),
        75.6,
    )
    text = "\n".join(row.plain for row in waiting_rows(view, 100, 10))
    assert "building 1:05" in status(view).plain
    assert "✓ importing      3.50 s" in text
    assert "building       1m 02s  Building" in text
    assert text.splitlines()[0] == "1:05 elapsed"
    assert view.is_moving


@pytest.mark.parametrize("width", [80, 120])
def test_what_is_reached_of_the_bound_stands_before_what_the_run_trains_on(width: int) -> None:
    fit = events.FitStarted(10, 100, 32, 32, 1, "", "val_loss", best_step_ms=61.0)
    state = state_of(
        *TRAINING[:2], (101.0, fit), *TRAINING[3:], (109.0, events.InputMeasured(2, 9, 9.0, 1, 0.1, 1.0, "balanced"))
    )
    assert "61%" in header_rows(view_of(state, 110.0), width)[0].plain


def test_a_journal_that_cannot_be_read_is_not_a_run_that_starts() -> None:
    assert "starting 0:05" in status(view_of(RunState(), 95.2)).plain
    view = view_of(RunState(), 95.2, snapshot=Snapshot(trouble="It is damaged."))
    assert status(view).plain == "▲ cannot be read"
    assert not view.is_moving
    assert "starting" not in "".join(row.plain for row in waiting_rows(view, 80, 10))


def test_what_a_phase_found_is_cut_off_only_if_there_is_no_room() -> None:
    data = events.DataReady(1437, 360, (8, 8, 1), 10)
    loaded = ((10.0, events.PhaseStarted("loading data")), (11.0, data), (12.0, events.PhaseStarted("building")))
    view = view_of(state_of((10.0, STARTED), *loaded), 12.0)
    whole = " ".join(" ".join(row.plain for row in waiting_rows(view, 60, 20)).split())
    assert all(fact in whole for fact in ("1,437 training examples", "360 for validation", "8×8×1, 10 classes"))
    for width in range(50, 71):
        cut = [row.plain for row in waiting_rows(view, width, 6)]
        assert len(cut) == 6
        assert max(map(len, cut)) <= width
    assert max(map(len, whole)) <= 60


@pytest.mark.parametrize(("width", "shown"), [(80, r"  budget 2h 10m left, until (\w+ )?\d\d:\d\d "), (40, "")])
def test_the_time_budget_is_shown_if_there_is_room(width: int, shown: str) -> None:
    view = view_of(state_of(*TRAINING, (110.0, events.BudgetSet(30_600.0, 7911.0, "8h30m"))), 111.0)
    title = header_rows(view, width)[0].plain
    assert title.startswith("20261120-run")
    assert "training 0:11" in title
    assert len(title) <= width
    assert re.search(shown, title)
    assert shown or "budget" not in title


def test_progress_tells_time_left_without_compilation_and_counts_down() -> None:
    state = state_of(*TRAINING)
    row = header_rows(view_of(state, 109.0), 120)[-1].plain
    assert row.startswith("epoch 2/10 ━")
    for part in ("15%", "step 50/100", "1:35 left", "100 ms/step", "320 examples/s"):
        assert part in row
    assert "1:33 left" in header_rows(view_of(state, 111.0), 120)[-1].plain
    narrow = header_rows(view_of(state, 109.0), 60)[-1].plain
    assert "━" * 2 in narrow
    assert "left" in narrow


def test_the_time_left_stays_the_same_during_a_pause() -> None:
    paused = state_of(*TRAINING, (110.0, events.PhaseStarted("paused")))
    for now in (110.0, 190.0):
        assert "1:34 left" in header_rows(view_of(paused, now), 120)[-1].plain


def test_validation_has_a_bar_of_its_own() -> None:
    validating = [(110.0, events.PhaseStarted("validating")), (112.0, events.ValidationProgress(2, 30, 120))]
    row = header_rows(view_of(state_of(*TRAINING, *validating), 112.0), 120)[-1].plain
    assert row.startswith("val 2/10 ━")
    assert "batch 30/120" in row
    assert "1:32 left" in row  # of the run
    after = header_rows(view_of(state_of(*TRAINING, *validating, (118.0, events.PhaseStarted("training"))), 119.0), 120)
    assert after[-1].plain.startswith("epoch")


def test_the_first_validation_is_measured_by_the_number_of_examples() -> None:
    data = events.DataReady(3200, 3000, (8, 8, 1), 10)
    validating = [(109.5, data), (110.0, events.PhaseStarted("validating")), (112.0, events.ValidationProgress(2, 47))]
    row = header_rows(view_of(state_of(*TRAINING, *validating), 112.0), 120)[-1].plain
    assert "batch 47/94" in row


def test_why_the_accelerator_was_chosen_is_said() -> None:
    replicas = tuple(events.Replica(i, f"/device:GPU:{i}", "NVIDIA H200", "vm") for i in range(2))
    ready = events.AcceleratorReady("gpu", "auto: two GPUs were found.", "MirroredStrategy", replicas, {})
    view = view_of(state_of((1.0, STARTED), (2.0, ready)), 3.0)
    assert header_rows(view, 100)[1].plain.startswith("GPU, 2 replicas · ")
    assert header_rows(view, 100)[1].plain.endswith(" GPUs were found)")


@pytest.mark.parametrize(
    ("limit", "text"),
    [("input", "▲ input-bound (38% waiting for data)"), ("accelerator", "compute-bound (38% waiting for data)")],
)
def test_what_limits_is_said_before_facts_that_are_less_urgent(limit: str, text: str) -> None:
    replicas = (events.Replica(0, "/device:GPU:0", "NVIDIA H200", "vm"),)
    ready = events.AcceleratorReady("gpu", "auto: a GPU was found.", "one device", replicas, {})
    measured = events.InputMeasured(2, 60, 6.0, 10, 0.38, 1.0, limit, "Cache it.")
    view = view_of(state_of(*TRAINING, (110.0, ready), (111.0, measured)), 112.0)
    title, progress = header_rows(view, 130)
    assert text in title.plain
    assert "GPU, 1 replica" in title.plain
    assert progress.plain.startswith("epoch 2/10 ")
    epochs = [events.EpochEnded(n, 30 * n, 30, 3.0 * n, 3.0, 0.0, 1.5, 1.0, 1.0, 1e-3, {"loss": 1.0}) for n in (2, 3)]
    ended = [(111.0, epoch) for epoch in epochs]
    validated = view_of(state_of(*TRAINING, (110.0, ready), (111.0, measured), *ended), 112.0)
    assert "validation takes 50%" in header_rows(validated, 150)[0].plain
    over = replace(
        view, snapshot=Snapshot(state_of(*TRAINING, (112.0, measured), (113.0, events.RunFinished("early", "", {}))))
    )
    assert text in header_rows(over, 130)[0].plain


def test_status_while_the_journal_is_read_and_while_the_run_stops() -> None:
    view = view_of(state_of(*TRAINING), 109.0)
    assert "stopping" in status(replace(view, is_stopping=True)).plain
    assert "reading 5 events" in status(replace(view, snapshot=replace(view.snapshot, is_reading=True))).plain


def test_the_end_takes_the_progress_rows_away_and_a_dead_process_without_one_has_crashed() -> None:
    state = state_of(*TRAINING, (120.0, events.RunFinished("early", "No improvement.", {})))
    view = view_of(state, 130.0)
    assert "stopped early" in status(view).plain
    assert len(header_rows(view, 80)) == 1
    view = view_of(state_of(*TRAINING), 130.0, snapshot=Snapshot(state_of(*TRAINING), Liveness.DEAD))
    assert "crashed" in status(view).plain


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_rows_never_exceed_the_width(width: int) -> None:
    for state in (RunState(), state_of(*TRAINING), state_of(*TRAINING[:2])):
        rows = header_rows(view_of(state, 130.0), width)
        assert all(row.cell_length <= width for row in rows)
