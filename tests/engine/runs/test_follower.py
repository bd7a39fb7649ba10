import os
import shutil

import pytest

from tests.helpers import gone_process
from tpu_console.engine.runs.events import Noticed, RunFinished, RunResumed, RunStarted
from tpu_console.engine.runs.follower import LogTail, RunFollower
from tpu_console.engine.runs.heartbeat import Liveness, write_heartbeat
from tpu_console.engine.runs.journal import JournalWriter, encode
from tpu_console.engine.runs.run_directory import RunDirectory


def append(run: RunDirectory, raw: bytes) -> None:
    with run.log.open("ab") as file:
        file.write(raw)


def test_a_follower_sees_the_run_grow(run: RunDirectory) -> None:
    follower = RunFollower(run)
    assert not follower.advance()
    assert follower.snapshot.liveness is Liveness.STARTING
    journal = JournalWriter(run.journal)
    journal.write(RunStarted("a", "host", os.getpid(), "here"))
    write_heartbeat(run, os.getpid())
    follower.advance()
    assert follower.snapshot.state.started is not None
    snapshot = follower.snapshot
    assert (snapshot.liveness, snapshot.is_over, snapshot.crashed) == (Liveness.ALIVE, False, False)
    journal.write(RunFinished("completed", "all epochs are done", {}))
    snapshot = follower.catch_up()
    assert (snapshot.is_over, snapshot.crashed) == (True, False)
    assert not follower.advance()


def test_a_run_whose_process_is_gone_without_a_last_event_has_crashed(run: RunDirectory) -> None:
    journal, follower = JournalWriter(run.journal), RunFollower(run)
    journal.write(RunStarted("a", "host", 1, "here"))
    write_heartbeat(run, os.getpid())
    text = run.heartbeat.read_text(encoding="utf-8")
    run.heartbeat.write_text(text.replace(str(os.getpid()), str(gone_process())), encoding="utf-8")
    snapshot = follower.catch_up()
    assert (snapshot.is_over, snapshot.crashed, snapshot.is_removed) == (True, True, False)
    write_heartbeat(run, os.getpid())
    assert follower.catch_up().is_resuming  # nothing that the journal says is of the new process
    journal.write(RunResumed(1, 0, 0, 0.0, os.getpid(), "here"))
    assert not follower.catch_up().is_resuming
    shutil.rmtree(run.path)
    assert follower.catch_up().is_removed


def test_catching_up_reads_a_journal_of_many_parts_and_tells_a_newer_version(run: RunDirectory) -> None:
    lines = [encode(Noticed(f"{number} " + "x" * 1000), 1.0) for number in range(2000)]
    newer = b'{"v":9,"t":3.0,"type":"Teleported"}\n'
    run.journal.write_bytes(b"".join(lines) + newer)
    snapshot = RunFollower(run).catch_up()
    assert len(snapshot.state.notices) == 2000
    assert (snapshot.state.skipped, snapshot.newer_version) == (1, 9)


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"10%\r50%\r100%\n", ("100%",)),
        (b"windows\r\n", ("windows",)),
        (b"a\x1b[31mred\x07\n", ("ared\ufffd",)),
        (b"tab\there\n", ("tab    here",)),
        (b"\xff\xfe\n", ("��",)),
        ("é 日本\n".encode(), ("é 日本",)),
        (b"\n\n", ("", "")),
    ],
)
def test_log_lines_draw_as_text(run: RunDirectory, raw: bytes, lines: tuple[str, ...]) -> None:
    append(run, raw)
    assert LogTail(run).read() == lines


def test_a_progress_bar_cut_between_two_looks_leaves_its_last_state(run: RunDirectory) -> None:
    tail = LogTail(run)
    for raw in (b"10%\r", b"20%", b"\r30%\r", b"done\r", b"\n"):
        append(run, raw)
        tail.read()
    assert tail.read() == ("done",)


def test_of_a_long_log_the_end_is_kept(run: RunDirectory) -> None:
    append(run, b"".join(b"%07d %s\n" % (number, b"x" * 600) for number in range(5000)))
    lines = LogTail(run).read()
    assert 0 < len(lines) <= 2000
    assert lines[-1].startswith("0004999 ")
    numbers = [int(line[:7]) for line in lines[1:]]
    assert numbers == list(range(numbers[0], 5000))


def test_the_log_is_read_by_whole_lines_and_characters_and_again_when_it_was_cut(run: RunDirectory) -> None:
    tail, raw = LogTail(run), "first\nnaïve 日本\nand".encode()
    assert tail.read() == ()
    for cut in range(len(raw)):
        append(run, raw[cut : cut + 1])
        tail.read()
    assert tail.read() == ("first", "naïve 日本")
    run.log.write_bytes(b"after\n")
    assert tail.read() == ("first", "naïve 日本", "after")
