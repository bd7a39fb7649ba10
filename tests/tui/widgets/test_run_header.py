"""What stands above the charts; most of it is recorded in `tests/record/texts/header.txt`."""

import re
from pathlib import Path
from typing import Any

import pytest
from textual.content import Content

from tests.helpers import replace
from tests.record import of_each, same_text
from tpu_console.engine.runs import events
from tpu_console.engine.runs.follower import Snapshot
from tpu_console.engine.runs.heartbeat import Liveness
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.engine.runs.timing import Stall, pace
from tpu_console.tui.text.outcome import Ending
from tpu_console.tui.widgets.live_panes import waiting_rows
from tpu_console.tui.widgets.run_header import HeaderView, bar_text, header_rows, notices_of, outcome_content, status

Timed = tuple[float, events.Event]


def state_of(*timed: Timed) -> RunState:
    state = RunState()
    for at, event in timed:
        state = reduce(state, event, at)
    return state


STARTED = events.RunStarted("digits-cnn", "host", 1, "vm", {"dataset": "digits", "model": "cnn", "accelerator": "auto"})
FIT = events.FitStarted(10, 100, 32, 32, 1, "", "val_loss")
STEPS: list[Timed] = [
    (103.0, events.PhaseStarted("training")),
    *((104.0 + i, events.Progress(2, 10 * i, 100 + 10 * i, 1.0 + i, {"loss": 1.0})) for i in range(1, 6)),
]
COMPILING: list[Timed] = [(100.0, STARTED), (100.0, events.PhaseStarted("compiling"))]
TRAINING: list[Timed] = [*COMPILING, (101.0, FIT), *STEPS]


def view_of(state: RunState, now: float, *, is_stopping: bool = False, **changes: Any) -> HeaderView:
    snapshot = replace(Snapshot(state, Liveness.ALIVE), **changes)
    return HeaderView("20261120-run", snapshot, now=now, opened_at=90.0, is_stopping=is_stopping, pace=pace(state))


def trained(now: float, *more: Timed, **changes: Any) -> HeaderView:
    return view_of(state_of(*TRAINING, *more), now, **changes)


def started(*more: Timed, now: float = 0.0, source: str = "host", **changes: Any) -> HeaderView:
    state = state_of((10.0, replace(STARTED, source=source)), *more)
    return view_of(state, now or state.last_at, **changes)


def phase(at: float, name: str) -> Timed:
    return at, events.PhaseStarted(name)


def measured(limit: str) -> Timed:
    return 109.0, events.InputMeasured(2, 60, 6.0, 10, 0.38, 1.0, limit, "Cache it.")


def ended(outcome: str, loss: float = 1.0) -> list[Timed]:
    epoch = events.EpochEnded(2, 200, 100, 7.0, 3.0, 0.0, 1.5, 1.0, 1.0, 1e-3, {"loss": loss})
    return [(112.0, epoch), (120.0, events.RunFinished(outcome, "", {}))]


def views() -> dict[str, HeaderView]:
    data = events.DataReady(1437, 360, (8, 8, 1), 10)
    gpus = tuple(events.Replica(i, f"/device:GPU:{i}", "NVIDIA H200", "vm") for i in range(2))
    ready = events.AcceleratorReady("gpu", "auto: two GPUs were found.", "MirroredStrategy", gpus, {})
    model, bound = events.ModelBuilt("cnn", 52_234, 52_234, 208_936, 7), replace(FIT, best_step_ms=61.0)
    validating = phase(110.0, "validating")
    stop = 110.0, events.StopRequested("me")
    epochs = [events.EpochEnded(n, 30 * n, 30, 3.0 * n, 3.0, 0.0, 1.5, 1.0, 1.0, 1e-3, {"loss": 1.0}) for n in (2, 3)]
    silent = {"liveness": Liveness.SILENT, "silent_s": 9}
    return {
        "nothing is written": view_of(RunState(), 95.2),
        "nothing can be read": view_of(RunState(), 95.2, trouble="It is damaged."),
        "connects": started(now=101.0),
        "connects inside the console": started(now=101.0, source="in-process"),
        "from a notebook": started(now=101.0, source="notebook"),
        "imported": started(now=101.0, source="imported"),
        "died before it connected": started(now=101.0, liveness=Liveness.DEAD),
        "builds": started(phase(10.0, "importing"), phase(13.5, "building"), now=75.6),
        "loaded": started(phase(10.0, "loading data"), (11.0, data), phase(12.0, "building")),
        "compiles": started((2.0, ready), (11.0, data), (11.5, model), (12.0, FIT), phase(12.0, "compiling"), now=20.0),
        "trains": trained(109.0),
        "trains for two more seconds": trained(111.0),
        "trains on two GPUs": trained(
            112.0, (110.0, data), (110.0, model), (110.0, replace(FIT, global_batch=64)), (110.0, ready)
        ),
        "is input-bound": trained(112.0, (110.0, ready), measured("input")),
        "is compute-bound": trained(112.0, (110.0, ready), measured("accelerator")),
        "validation takes long": trained(112.0, measured("input"), *((111.0, epoch) for epoch in epochs)),
        "reaches a part of the bound": view_of(
            state_of(*COMPILING, (101.0, bound), *STEPS, measured("balanced")), 110.0
        ),
        "validates": trained(112.0, validating, (112.0, events.ValidationProgress(2, 30, 120))),
        "validates for the first time": trained(
            112.0,
            (109.5, replace(data, validation_examples=3000)),
            validating,
            (112.0, events.ValidationProgress(2, 47)),
        ),
        "validates for longer than expected": trained(112.0, validating, (112.0, events.ValidationProgress(2, 13, 12))),
        "has validated": trained(
            119.0, validating, (112.0, events.ValidationProgress(2, 30, 120)), phase(118.0, "training")
        ),
        "pauses": trained(110.0, phase(110.0, "paused")),
        "pauses for long": trained(190.0, phase(110.0, "paused")),
        "trains after a pause": trained(130.0, phase(110.0, "paused"), phase(130.0, "training")),
        "was resumed": trained(409.0, (409.0, events.RunResumed(1, 0, 100, 1.0, 2, "vm"))),
        "is being resumed": trained(409.0, is_resuming=True),
        "is read": trained(109.0, is_reading=True),
        "stops by this console": trained(109.0, is_stopping=True),
        "stops": trained(111.0, stop),
        "stops after compiling": trained(112.0, phase(110.0, "compiling"), stop),
        "stops after the epoch": trained(111.0, (110.0, events.StopRequested("me", "epoch"))),
        "does not respond": trained(120.0, **silent),
        "does not respond to a stop": trained(120.0, stop, **silent),
        "has stalled": trained(190.0, stall=Stall(80, 0.5)),
        "waits for the disk": trained(112.0, waiting=7, newer_version=9, damaged=2),
        "is mirrored in vain": trained(112.0, (110.0, events.MirrorReported("gs://b/r", 1, "No space left on device"))),
        "alerts": trained(112.0, (110.0, events.Alerted("disk", "The disk is nearly full.", 1, 4))),
        "ended after an alert": trained(130.0, (110.0, events.Alerted("disk", "Full.", 1, 4)), *ended("completed")),
        "finished": trained(130.0, *ended("completed")),
        "stopped early": trained(130.0, measured("input"), *ended("early")),
        "was stopped": trained(130.0, *ended("stopped")),
        "became NaN": trained(130.0, *ended("completed", float("nan"))),
        "became NaN and was stopped": trained(130.0, *ended("stopped", float("nan"))),
        "failed": trained(130.0, (120.0, events.RunFailed("what", "why", "remedy", "console.log"))),
        "crashed": trained(130.0, liveness=Liveness.DEAD),
        "was removed": trained(130.0, liveness=Liveness.DEAD, is_removed=True),
    }


def texts(_folder: Path) -> str:
    """Return for each view the look of its status, its rows at four widths, its phases and its notices."""
    written = {}
    for name, view in views().items():
        looks = f"{status(view).spans[0].style}{', moves' if view.is_moving else ''}"
        rows = [row.plain.rstrip() for width in (30, 60, 100, 150) for row in header_rows(view, width)]
        rows += [row.plain.rstrip() for row in waiting_rows(view, 80, 12)] if view.state.progress is None else []
        written[name] = [looks, *rows, *notices_of(view.snapshot, is_stopping=view.is_stopping)]
    return of_each(written)


def test_what_a_run_does_is_written_as_recorded(tmp_path: Path) -> None:
    same_text("header.txt", texts(tmp_path))


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_rows_never_exceed_the_width(width: int) -> None:
    for view in views().values():
        assert all(row.cell_length <= width for row in header_rows(view, width))


@pytest.mark.parametrize(("width", "shown"), [(80, r"  budget 2h 10m left, until (\w+ )?\d\d:\d\d "), (40, "")])
def test_the_time_budget_is_shown_if_there_is_room(width: int, shown: str) -> None:
    title = header_rows(trained(111.0, (110.0, events.BudgetSet(30_600.0, 7911.0, "8h30m"))), width)[0].plain
    assert title.startswith("20261120-run")
    assert "training 0:11" in title
    assert re.search(shown, title)
    assert shown or "budget" not in title


def test_what_a_phase_found_is_cut_off_only_if_there_is_no_room() -> None:
    view = views()["loaded"]
    whole = " ".join(" ".join(row.plain for row in waiting_rows(view, 60, 20)).split())
    assert all(fact in whole for fact in ("1,437 training examples", "360 for validation", "8×8×1, 10 classes"))
    for width in range(50, 71):
        cut = [row.plain for row in waiting_rows(view, width, 6)]
        assert len(cut) == 6
        assert max(map(len, cut)) <= width


SHORT = "The loss jumped to 9."
LONG = " ".join(f"word{number}" for number in range(60))


@pytest.mark.parametrize("width", [118, 78, 40])
@pytest.mark.parametrize(("notices", "end"), [((LONG,), "…  (i: all of it)"), ((LONG, SHORT, SHORT), "…  (i: 2 more)")])
def test_a_long_notice_ends_with_the_key_that_shows_the_rest(notices: tuple[str, ...], end: str, width: int) -> None:
    shown = bar_text(notices, width)
    assert shown.endswith(end)
    assert len(Content(shown).wrap(width)) == 1


def test_a_notice_that_fits_is_whole() -> None:
    assert bar_text((SHORT,), 78) == f"▲ {SHORT}"
    assert bar_text((SHORT, LONG), 78) == f"▲ {SHORT}  (i: 1 more)"


PATH = "~/.local/share/tpu-console/runs/20261122-085334-digits-cnn/model.keras"
OUTCOME = Ending("stopped", "Stopped after 60 epochs.", (("why", "long " * 30), ("model", PATH)))


@pytest.mark.parametrize("width", [120, 78, 77, 76, 50, 30])
def test_a_path_keeps_its_end_in_one_line(width: int) -> None:
    line = outcome_content(OUTCOME, width).plain.splitlines()[-1]
    assert len(line) <= width
    assert line.endswith("cnn/model.keras")
    assert (PATH in line) == (width >= len("model: ") + len(PATH))


def test_a_sentence_is_never_cut() -> None:
    assert "long " * 29 in outcome_content(OUTCOME, 30).plain


def test_a_good_end_takes_two_rows_at_most_and_breaks_no_fact() -> None:
    classes = "balanced accuracy 0.9846 · most confused: 8 as 1 (2 of 35)"
    facts = (("best", "val_accuracy 0.9 in epoch 3"), ("classes", classes), ("model", PATH))
    good = Ending("good", "Finished: 3 epochs in 9.36 s.", facts)
    wide = outcome_content(good, 240).plain
    assert "\n" not in wide
    assert PATH in wide
    for width in range(32, 240):
        lines = outcome_content(good, width).plain.splitlines()
        assert len(lines) <= 2
        assert max(map(len, lines)) <= width
        said = "\n".join(lines)
        assert ("classes" in said) == (f"classes: {classes}" in said)
        assert ("model" in said) == any(line.endswith("model.keras") for line in lines)
    assert f"classes: {classes}" in outcome_content(good, 77).plain
    assert [label for label, _ in facts if label in outcome_content(good, 118).plain] == ["best", "classes", "model"]


def test_why_a_run_ended_comes_first() -> None:
    good = Ending("good", "Stopped early.", (("best", "val_loss 0.1"), ("why", "It no longer improved.")))
    assert outcome_content(good, 120).plain.endswith("Stopped early.  why: It no longer improved.  best: val_loss 0.1")
