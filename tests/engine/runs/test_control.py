import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.helpers import all_of, private_mode
from tests.hostile_runs import large, loop, nested, zeros
from tpu_console.engine.runs.control import STOP, Control, Request, ask, is_waiting, take_requests
from tpu_console.engine.runs.events import Steering, StopAfter, StopRequested
from tpu_console.engine.runs.heartbeat import Heartbeat
from tpu_console.engine.runs.journal import JournalWriter
from tpu_console.engine.runs.run_directory import RunDirectory

NAME = "00000000000000000001-0123abcd.json"


def test_requests_are_private_files_and_are_taken_once_in_their_order(run: RunDirectory) -> None:
    run.control.rmdir()
    numbers = [ask(run, Steering.EPOCHS, "asked here", f"+{n}") for n in (1, 2)] + [ask(run, Steering.PAUSE, "there")]
    assert ({private_mode(path) for path in run.control.iterdir()}, private_mode(run.control)) == ({0o600}, 0o700)
    assert is_waiting(run, numbers[0])
    taken = take_requests(run)
    assert [(one.action, one.by, one.value) for one in taken] == [
        ("epochs", "asked here", "+1"),
        ("epochs", "asked here", "+2"),
        ("pause", "there", ""),
    ]
    assert [one.number for one in taken] == numbers
    assert take_requests(run) == []
    assert not is_waiting(run, numbers[0])


def test_no_request_of_many_terminals_is_lost_or_doubled(run: RunDirectory) -> None:
    with ThreadPoolExecutor(8) as pool:
        written = [pool.submit(ask, run, Steering.EPOCHS, "asked", "+1") for _ in range(64)]
        taken = [pool.submit(take_requests, run) for _ in range(16)]
    found = [one.number for future in taken for one in future.result()] + [one.number for one in take_requests(run)]
    assert sorted(found) == sorted(future.result() for future in written)


@pytest.mark.parametrize(
    "request_",
    [
        *(b"", b"pause", b'{"action":"pause","by":"\xff"}', b"[]", nested(100_000).encode(), b'{"by":"me"}'),
        *(b'{"action":"format","by":"me"}', b'{"action":["pause"],"by":"me"}'),
        *(b'{"action":"epochs","by":"me","value":3}', large, zeros, os.mkfifo, loop),
    ],
)
def test_a_hostile_request_is_removed_and_the_others_are_read(
    run: RunDirectory, request_: bytes | Callable[[Path], object]
) -> None:
    request_(run.control / NAME) if callable(request_) else (run.control / NAME).write_bytes(request_)
    ask(run, Steering.PAUSE, "asked")
    assert [one.action for one in take_requests(run)] == ["pause"]
    assert not list(run.control.iterdir())


def test_control_characters_are_removed_and_other_files_stay(run: RunDirectory) -> None:
    (run.control / NAME).write_text(
        json.dumps({"action": "pause", "by": "\x1b]0;me\x07" * 99, "value": "\x1b[2J" * 99})
    )
    (run.control / "notes.txt").write_text("mine")
    (request,) = take_requests(run)
    assert request.by.isprintable()
    assert request.value.isprintable()
    assert (len(request.by), len(request.value)) == (200, 100)
    assert [path.name for path in run.control.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "\x00", '{"reason": "asked here", "at": 1.0}'])
def test_a_stop_file_is_a_request_whatever_it_contains(run: RunDirectory, content: str) -> None:
    (run.control / "stop.json").write_text(content)
    assert is_waiting(run, STOP)
    (request,) = take_requests(run)
    assert (request.action, request.number, "control file" in request.by) == (Steering.STOP, STOP, True)
    assert not is_waiting(run, STOP)


def test_of_many_requests_a_stop_is_read_first(run: RunDirectory) -> None:
    for number in range(1100):
        (run.control / f"{number:020}-0123abcd.json").write_text(json.dumps({"action": "pause", "by": "many"}))
    for by in ("first", "second"):  # of two consoles
        ask(run, Steering.STOP, by)
    first, *others = take_requests(run)
    assert (first.action, first.by) == ("stop", "second")
    assert {one.action for one in [*others, *take_requests(run)]} == {"pause"}


def test_the_heartbeat_announces_a_stop_when_it_is_heard_and_passes_on_the_rest(run: RunDirectory) -> None:
    journal, control = JournalWriter(run.journal), Control()
    heartbeat = Heartbeat(run, journal, control)
    ask(run, Steering.STOP_AFTER_EPOCH, "asked first")
    heartbeat.tick()
    assert (control.reason, control.after_epoch) == (None, "asked first")
    ask(run, Steering.PAUSE, "asked next")
    ask(run, Steering.END_NOW, "asked at once")
    ask(run, Steering.STOP, "asked last")
    heartbeat.tick()
    assert [one.by for one in control.take()] == ["asked next"]
    assert (control.reason, control.end_now) == ("asked last", "asked at once")
    heartbeat.tick()
    journal.flush()
    assert all_of(run, StopRequested) == [
        StopRequested("asked first", StopAfter.EPOCH),
        StopRequested("asked last", StopAfter.STEP),
    ]
    journal.close()


def test_a_stop_after_the_epoch_takes_effect_at_its_end(run: RunDirectory) -> None:
    control, reasons = Control(), list[str | None]()
    control.end_epoch()
    reasons.append(control.reason)
    control.ask(Request(Steering.STOP_AFTER_EPOCH, "asked"))
    control.ask(Request(Steering.STOP_AFTER_EPOCH, "again"))
    reasons.append(control.reason)
    control.end_epoch()
    control.stop("again")
    assert [*reasons, control.reason] == [None, None, "asked"]
    assert control.news() == [StopRequested("asked", StopAfter.EPOCH)]


def test_several_hosts_agree_on_a_stop_before_it_is_announced() -> None:
    control, heard = Control(), list[str]()
    is_shared = [control.is_shared]
    control.agree_by(heard.append)
    assert [*is_shared, control.is_shared] == [False, True]
    control.ask(Request(Steering.STOP_AFTER_EPOCH, "asked by one"))
    control.stop("asked")
    control.stop("again")
    assert (heard, control.reason, control.news()) == (["asked"], None, [])
    assert [one.by for one in control.take()] == ["asked by one"], "only a stop is agreed on"
    control.agreed("asked, at host 1")
    assert (control.reason, control.news()) == ("asked, at host 1", [StopRequested("asked, at host 1")])


def test_what_was_asked_before_the_hosts_joined_is_agreed_on_or_refused() -> None:
    control, heard = Control(), list[str]()
    control.ask(Request(Steering.STOP_AFTER_EPOCH, "asked early"))
    control.stop("asked")
    control.agree_by(heard.append)
    assert (heard, control.reason) == (["asked"], None)
    control.end_epoch()
    assert (control.reason, [one.by for one in control.take()]) == (None, ["asked early"])
