"""What was asked of a run, its budget and its mirror, in words."""

import re

import pytest

from tpu_console.engine.runs import events
from tpu_console.engine.runs.events import MirrorReported, Steered
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.tui.text import run_lines
from tpu_console.tui.text.run_lines import mirror_facts, mirror_text, steered_text

COSINE = [("cosine", warmup, "cosine") for warmup in (0, 2.0)]
PLACE = "gs://bucket/runs/20261120-133100-a"


def test_an_answer_says_what_changed_where_and_by_whom() -> None:
    texts = {
        Steered("pause", "by me", 3, 1200, 9.0): "paused at step 1,200, by me",
        Steered("epochs", "by me", 3, 1200, 9.0, 10.0, 1500.0): "epochs 10 → 1,500 at step 1,200, by me",
        Steered("learning_rate", "by me", 3, 5, 9.0, 1e-3, 1e-4): "learning rate 0.001 → 1e-4 at step 5, by me",
        Steered("stop_after_epoch", "by me", 0, 0, 0.0, refused="no"): "stop after epoch refused: no, by me",
    }
    assert {event: steered_text(event) for event in texts} == texts


def test_a_resumed_run_says_where_it_goes_on() -> None:
    texts = {
        (0, 0, 0, ""): "from the beginning: it had no checkpoint",
        (1, 0, 4, ""): "after epoch 1 (1m 05s of training so far)",
        (1, 2, 6, ""): "in epoch 2 at step 2 (1m 05s of training so far)",
        (1, 0, 4, "the loss became NaN"): "from step 4: the loss became NaN",
    }
    for (epoch, epoch_step, step, why), text in texts.items():
        resumed = events.RunResumed(epoch, epoch_step, step, 65.0, 1, "here", why=why)
        assert run_lines.resumed_text(resumed) == text


def test_a_stop_says_when_and_a_busy_run_what_it_does() -> None:
    assert run_lines.stop_text(events.StopRequested("by me")) == "by me"
    assert run_lines.stop_text(events.StopRequested("by me", "epoch")).startswith("by me; after")
    for phase, text in (("compiling", "it is compiling (1m 20s so far)"), ("training", ""), ("paused", "")):
        assert run_lines.busy_text(reduce(RunState(), events.PhaseStarted(phase), 100.0), 180.0) == text
    for source, hosts, is_busy in (("host", 1, False), ("notebook", 1, True), ("host", 2, True)):
        replicas = tuple(events.Replica(index, f"cpu:{index}", "CPU", "here", process=index) for index in range(hosts))
        state = RunState(started=events.RunStarted("a", source, 1, "here"), phase="validating")
        state = reduce(state, events.AcceleratorReady("cpu", "", "", replicas, {}), 1.0)
        assert run_lines.is_busy(state) is is_busy  # a validation is left between two batches


def test_a_schedule_is_named_unless_the_rate_is_constant() -> None:
    assert run_lines.schedule_of(RunState()) == ""
    for schedule, warmup, name in ((None, 0, ""), ("constant", 2.0, "warm-up"), (None, 2.0, "warm-up"), *COSINE):
        options = {"schedule": schedule, "warmup_epochs": warmup}
        started = events.RunStarted("a", "host", 1, "here", {"optimizer": options})
        assert run_lines.schedule_of(RunState(started=started)) == name


def test_what_is_typed_is_checked() -> None:
    rates = ["0.001", "1e-3", "0", "-1", "inf", "nan", "fast"]
    assert [bool(run_lines.rate_problem(text)) for text in rates] == [False] * 2 + [True] * 5
    epochs = ["20", "+5", "-5", "007", "0", "+0", "1e3", "1234567890", ""]
    assert [bool(run_lines.epochs_problem(text)) for text in epochs] == [False] * 4 + [True] * 5


def test_a_budget_counts_down_also_that_of_a_damaged_journal() -> None:
    for ends_at in (-1e15, 1e15):
        assert run_lines.budget_text(events.BudgetSet(30_600.0, ends_at, "8h30m"), 0.0).startswith("8h 30m, ")
    budget = events.BudgetSet(30_600.0, 100_000.0, "8h30m")
    assert re.fullmatch(r"8h 30m, 2h 10m left, until \w+ \d\d:\d\d", run_lines.budget_text(budget, 92_200.0))
    assert run_lines.budget_clock(budget, 100_000.0) == "budget used up"


def state_after(report: MirrorReported, seconds: float, *, ended: bool = False) -> RunState:
    state = reduce(reduce(RunState(), report, 1000.0), events.Noticed("later"), 1000.0 + seconds)
    return reduce(state, events.RunFinished("completed", "", {}), 1000.0 + seconds) if ended else state


@pytest.mark.parametrize(
    ("report", "seconds", "ended", "text"),
    [
        (MirrorReported(PLACE, 12), 130, False, "complete to epoch 12, 2m 10s ago"),
        (MirrorReported(PLACE, 0), 5, False, "no checkpoint there, 5 s ago"),
        (MirrorReported(PLACE, 12), 3, True, "complete"),
        (MirrorReported(PLACE, 3, "gone"), 70, False, "not written for 1m 10s, retrying (gone); complete to epoch 3"),
        (MirrorReported(PLACE, 0, "not yours", is_given_up=True), 9, False, "off: not yours"),
        (MirrorReported(PLACE, 3, left=("a",)), 0, False, "copying: a; complete to epoch 3"),
        (
            MirrorReported(PLACE, 3, "gone", ("events.jsonl", "model.keras", "a", "b", "c"), is_given_up=True),
            *(0, True, "not copied: events.jsonl, model.keras, a, b and 1 more (gone); complete to epoch 3"),
        ),
    ],
)
def test_a_mirror_says_how_far_it_is(report: MirrorReported, seconds: float, ended: bool, text: str) -> None:
    assert mirror_text(state_after(report, seconds, ended=ended)) == text


def test_the_end_of_a_run_says_how_to_copy_the_rest() -> None:
    assert mirror_facts(RunState(), "a") == []
    whole = mirror_facts(state_after(MirrorReported(PLACE, 3), 1, ended=True), "a")
    assert whole == [("mirror", f"{PLACE} (complete)")]
    torn = state_after(MirrorReported(PLACE, 3, "gone", ("model.keras",), is_given_up=True), 1, ended=True)
    label, command = mirror_facts(torn, "a")[1]
    assert (label, command.endswith(" mirror a")) == ("to copy", True)
