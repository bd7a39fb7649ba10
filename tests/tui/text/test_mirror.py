"""How far a run's mirror is, in words."""

from __future__ import annotations

import pytest

from tpu_console.engine.runs.events import MirrorReported, Noticed, RunFinished
from tpu_console.engine.runs.state import RunState, reduce
from tpu_console.tui.text.steering import mirror_facts, mirror_text

PLACE = "gs://bucket/runs/20261120-133100-a"


def state_after(report: MirrorReported, seconds: float, *, ended: bool = False) -> RunState:
    state = reduce(reduce(RunState(), report, 1000.0), Noticed("later"), 1000.0 + seconds)
    return reduce(state, RunFinished("completed", "", {}), 1000.0 + seconds) if ended else state


@pytest.mark.parametrize(
    ("report", "seconds", "ended", "text"),
    [
        (MirrorReported(PLACE, 12), 3, False, "complete to epoch 12, 3 s ago"),
        (MirrorReported(PLACE, 12), 130, False, "complete to epoch 12, 2m 10s ago"),
        (MirrorReported(PLACE, 12), 0, False, "complete to epoch 12"),
        (MirrorReported(PLACE, 0), 5, False, "no checkpoint there, 5 s ago"),
        (MirrorReported(PLACE, 12), 3, True, "complete"),
        (MirrorReported(PLACE, 3, "gone"), 70, False, "not written for 1m 10s, retrying (gone); complete to epoch 3"),
        (MirrorReported(PLACE, 0, "not yours", is_given_up=True), 9, False, "off: not yours"),
        (
            MirrorReported(PLACE, 3, "gone", ("events.jsonl", "model.keras", "a", "b", "c"), is_given_up=True),
            *(0, True, "not copied: events.jsonl, model.keras, a, b and 1 more (gone); complete to epoch 3"),
        ),
    ],
)
def test_what_is_said(report: MirrorReported, seconds: float, ended: bool, text: str) -> None:
    assert mirror_text(state_after(report, seconds, ended=ended)) == text


def test_the_end_of_a_run_says_how_to_copy_the_rest() -> None:
    assert mirror_facts(RunState(), "a") == []
    whole = state_after(MirrorReported(PLACE, 3), 1, ended=True)
    assert mirror_facts(whole, "a") == [("mirror", f"{PLACE} (complete)")]
    torn = state_after(MirrorReported(PLACE, 3, "gone", ("model.keras",), is_given_up=True), 1, ended=True)
    assert mirror_facts(torn, "a")[1][1].endswith(" runs mirror a")


def test_a_run_that_waits_for_its_mirror_says_for_what() -> None:
    waiting = MirrorReported(PLACE, 3, left=("model.keras",))
    assert mirror_text(state_after(waiting, 0)) == "copying: model.keras; complete to epoch 3"
    assert mirror_facts(state_after(waiting, 0, ended=True), "a") == [
        ("mirror", "not copied: model.keras; complete to epoch 3"),
        ("to copy", "tpu-console runs mirror a"),
    ]
