"""How a run ended, read from the end of its journal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tpu_console.engine.runs.events import Noticed, RunFailed, RunFinished, RunResumed
from tpu_console.engine.runs.journal import encode
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.tui.following.last_event import how_it_ended

if TYPE_CHECKING:
    from pathlib import Path

    from tpu_console.engine.runs.events import Event

SUMMARY: dict[str, Any] = {"epochs": 3, "monitor": "val_loss", "best": {"epoch": 2, "val_loss": 0.25}}
FINISHED = RunFinished("completed", "all epochs are done", SUMMARY)


def ending(folder: Path, *events: Event) -> list[str]:
    run = RunDirectory(folder)
    long = Noticed("x" * 2_000_000)
    run.journal.write_bytes(b"".join(encode(event, time.time()) for event in (long, *events)))
    return how_it_ended(run)


@pytest.mark.parametrize(
    ("event", "lines"),
    [
        (FINISHED, ["Finished: 3 epochs.", "best val_loss 0.2500 in epoch 2"]),
        (RunFinished("stopped", "asked", SUMMARY | {"best": None}), ["Stopped after 3 epochs.", ""]),
        (
            RunFinished("early", "", SUMMARY | {"best": None, "epochs": 1}),
            ["Stopped early after 1 epoch.", ""],
        ),
        (RunFailed("The disk is \x1b[31mfull.", "", "", ""), ["The disk is full."]),
    ],
)
def test_the_end_of_a_run_is_told(event: Event, lines: list[str], tmp_path: Path) -> None:
    assert ending(tmp_path, event) == lines


@pytest.mark.parametrize(
    "event",
    [
        RunResumed(1, 0, 20, 4.0, 1, "host"),
        RunFinished("completed", "", {}),
        RunFinished("completed", "", SUMMARY | {"best": ["damaged"]}),
        RunFinished("completed", "", SUMMARY | {"epochs": None}),
    ],
)
def test_nothing_is_told_of_a_run_that_goes_on_or_is_damaged(event: Event, tmp_path: Path) -> None:
    assert ending(tmp_path, FINISHED, event) == []


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"{", b"[]\n", b"nothing\n", b'{"type":"RunFinished"}\n', b"9" * 9_000]
)
def test_a_damaged_journal_tells_nothing(content: bytes, tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert how_it_ended(run) == []
    run.journal.write_bytes(content)
    assert how_it_ended(run) == []
