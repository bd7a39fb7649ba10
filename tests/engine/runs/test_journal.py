"""The journal: what is written is read back, whatever happens to the file in between."""

from __future__ import annotations

import errno
import json
import math
import os
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.strategies import EVENT_CLASSES, events, of_type
from tests.helpers import LIMIT_S, private_mode, wait_until
from tests.small_disk import SmallDisk, files_no_larger_than, fill_up
from tpu_console.engine.runs.events import (
    Bottleneck,
    EpochEnded,
    Event,
    HostSampled,
    InputMeasured,
    Noticed,
    PhaseStarted,
    Progress,
    RunFailed,
    RunFinished,
    RunOutcome,
    RunSource,
    RunStarted,
)
from tpu_console.engine.runs.journal import (
    LONGEST_LINE,
    VERSION,
    JournalReader,
    JournalWriter,
    decode,
    encode,
    parse_line,
)
from tpu_console.engine.storage.disk_space import RESERVE_BYTES, RESERVE_NAME

if TYPE_CHECKING:
    from pathlib import Path


EPOCH = EpochEnded(1, 4, 4, 1.0, 1.0, 0.5, 0.0, None, None, None, {"loss": 1.0})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def read_all(path: Path) -> list[dict[str, Any]]:
    """Every record that a new reader finds."""
    reader = JournalReader(path)
    records = []
    while more := reader.read():
        records += more
    return records


def messages(path: Path) -> list[str]:
    """The messages of all notices, in order."""
    return [record["message"] for record in read_all(path) if record["type"] == "Noticed"]


def write(path: Path, *written: Event) -> None:
    writer = JournalWriter(path, clock=lambda: 1.0)
    for event in written:
        writer.write(event)
    writer.close()


@pytest.mark.parametrize("cls", EVENT_CLASSES, ids=lambda cls: str(cls.__name__))
def test_every_event_is_read_back_as_it_was_written(cls: type[Any]) -> None:
    @given(of_type(cls), st.floats(0, 2e9))
    def check(event: Event, at: float) -> None:
        line = encode(event, at)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        record = orjson.loads(line)
        assert (record["v"], record["t"]) == (VERSION, at)
        again = decode(record)
        assert again is not None
        assert type(again) is cls
        # Lines and not events are compared: a NaN is not equal to itself.
        assert encode(again, at) == line

    check()


def test_a_line_is_what_older_programs_read() -> None:
    assert encode(Noticed("a"), 1.5) == b'{"v":1,"t":1.5,"type":"Noticed","message":"a"}\n'


def test_numbers_that_json_does_not_know_are_spelled_out_and_come_back() -> None:
    event = Progress(1, 2, 3, 0.5, {"nan": math.nan, "up": math.inf, "down": -math.inf, "é": 1e300})
    line = encode(event, 1.0)
    assert json.loads(line)["logs"] == {"nan": "NaN", "up": "Infinity", "down": "-Infinity", "é": 1e300}
    again = decode(orjson.loads(line))
    assert isinstance(again, Progress)
    assert math.isnan(again.logs["nan"])
    assert (again.logs["up"], again.logs["down"], again.logs["é"]) == (math.inf, -math.inf, 1e300)


@pytest.mark.parametrize(
    "event",
    [
        replace(EPOCH, examples_per_s=320.0),
        HostSampled(0, "a", 1.0, 2.0, 3, 4, 5.0, 6.0),
        HostSampled(0, "a", 1.0, 2.0, 3, 4, 5.0, None, {"examples_per_s": "not yet", "cpu_percent": "not here"}),
    ],
)
def test_a_rate_in_images_from_an_older_journal_is_one_in_examples(event: Event) -> None:
    line = encode(event, 1.0)
    assert b"examples_per_s" in line
    assert b"images_per_s" not in line
    assert decode(orjson.loads(line.replace(b"examples_per_s", b"images_per_s"))) == event


def test_closed_sets_of_words_are_written_as_before() -> None:
    written = [encode(RunStarted("a", source, 1, "b"), 1.0) for source in RunSource]
    assert [orjson.loads(line)["source"] for line in written] == ["host", "in-process", "notebook", "imported"]
    written = [encode(RunFinished(outcome, "", {}), 1.0) for outcome in RunOutcome]
    assert [orjson.loads(line)["outcome"] for line in written] == ["completed", "early", "stopped"]
    written = [encode(InputMeasured(1, 1, 1.0, 1, 0.0, 1.0, limit), 1.0) for limit in Bottleneck]
    assert [orjson.loads(line)["limit"] for line in written] == ["input", "accelerator", "balanced"]


def test_text_that_is_not_unicode_is_written_all_the_same(path: Path) -> None:
    # A path with bytes that are no UTF-8 reaches an error message as lone surrogates.
    name = os.fsdecode(b"/data/\xff.npz")
    write(path, RunFailed(f"{name} is damaged.", "", "", "console.log"))
    (record,) = read_all(path)
    assert record["what"].startswith("/data/")
    assert record["what"].endswith(".npz is damaged.")


def test_a_reader_gets_only_what_was_appended_since_its_last_look(path: Path) -> None:
    reader = JournalReader(path)
    assert reader.read() == []  # not even there
    writer = JournalWriter(path)
    for number in range(3):
        writer.write(Noticed(str(number)))
        assert [record["message"] for record in reader.read()] == [str(number)]
        assert reader.read() == []


def test_a_torn_last_line_is_not_there_yet(path: Path) -> None:
    line = encode(Noticed("whole"), 1.0)
    reader = JournalReader(path)
    path.write_bytes(line + line[:20])
    assert len(reader.read()) == 1
    assert reader.read() == []
    with path.open("ab") as file:
        file.write(line[20:])
    assert [record["message"] for record in reader.read()] == ["whole"]
    assert reader.skipped == 0


@given(st.lists(events, min_size=1, max_size=6), st.data())
def test_a_journal_cut_at_any_byte_gives_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, written: list[Event], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "events.jsonl"
    lines = [encode(event, 1.0) for event in written]
    content = b"".join(lines)
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    reader = JournalReader(path)
    assert reader.read() == [orjson.loads(line) for line in content[:cut].split(b"\n")[:-1]]
    assert reader.skipped == 0
    with path.open("ab") as file:
        file.write(content[cut:])
    reader.read()
    assert (read_all(path), reader.skipped) == ([orjson.loads(line) for line in lines], 0)


garbage = st.one_of(
    st.binary(max_size=30).filter(lambda raw: b"\n" not in raw),
    st.sampled_from([b"", b"null", b"[1, 2]", b"{", b'{"t": "late"}', b"1,2", b"\x00" * 50, b'{"v": 1}', b"}{"]),
)


@given(st.lists(garbage | st.integers(0, 10**6), max_size=12))
def test_garbage_lines_are_counted_and_lose_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes | int]
) -> None:
    path = tmp_path_factory.mktemp("garbage") / "events.jsonl"
    good = [Noticed(str(part)) for part in parts if isinstance(part, int)]
    path.write_bytes(
        b"".join(part + b"\n" if isinstance(part, bytes) else encode(Noticed(str(part)), 1.0) for part in parts)
    )
    reader = JournalReader(path)
    assert [decode(record) for record in reader.read()] == good
    assert reader.skipped == len(parts) - len(good)


@pytest.mark.parametrize(
    "nothing", [b"\x00" * 1_000_000 + b"\n", b"garbage\n" * 100_000], ids=["one line", "many lines"]
)
def test_a_megabyte_of_garbage_hides_nothing_behind_it(path: Path, nothing: bytes) -> None:
    path.write_bytes(encode(Noticed("before"), 1.0) + nothing + encode(Noticed("after"), 2.0))
    assert messages(path) == ["before", "after"]


def test_several_values_in_a_line_and_one_in_several_lines_hide_no_control_character(path: Path) -> None:
    one = '{"v":1,"t":1.0,"type":"Noticed","message":"%s"}'
    escape = one % r"\u001b[2J"
    path.write_text("\n".join([f"{one % 'a'},{escape}", '{"v":1,"t":1.0', '"type":"Noticed","message":"b"}', ""]))
    assert "\x1b" not in "".join(record["message"] for record in JournalReader(path).read())


def test_a_line_of_a_megabyte_is_read_whole(path: Path) -> None:
    write(path, Noticed("x" * 1_000_000), Noticed("after"))
    assert [len(message) for message in messages(path)] == [1_000_000, 5]


def test_what_a_newer_version_wrote_is_skipped_and_its_version_told(path: Path) -> None:
    newer = {"v": VERSION + 3, "t": 2.0, "type": "Teleported", "where": "Mars"}
    extended = {"v": VERSION + 3, "t": 2.0, "type": "Noticed", "message": "known", "colour": "red"}
    path.write_text(f"{json.dumps(newer)}\n{json.dumps(extended)}\n", encoding="utf-8")
    reader = JournalReader(path)
    assert [decode(record) for record in reader.read()] == [None, Noticed("known")]
    assert reader.newer == VERSION + 3


@pytest.mark.parametrize(
    "record",
    [{}, {"type": "Noticed"}, {"type": "Noticed", "message": 3}, {"type": "Progress", "logs": [1]}, {"type": "object"}],
)
def test_a_damaged_record_is_no_event(record: dict[str, Any]) -> None:
    assert decode(record) is None


def test_a_journal_replaced_by_a_shorter_one_is_read_from_its_beginning(path: Path) -> None:
    write(path, Noticed("first"), Noticed("second"))
    reader = JournalReader(path)
    reader.read()
    path.write_bytes(encode(Noticed("new"), 1.0))
    assert [record["message"] for record in reader.read()] == ["new"]


def test_the_journal_is_private(path: Path) -> None:
    before = os.umask(0)
    try:
        write(path, Noticed("secret"))
    finally:
        os.umask(before)
    assert private_mode(path) == 0o600


def test_events_carry_the_clock_s_time(path: Path) -> None:
    times = iter([10.5, 11.25])
    writer = JournalWriter(path, clock=lambda: next(times))
    writer.write(Noticed("a"))
    writer.write(Noticed("b"))
    assert [record["t"] for record in read_all(path)] == [10.5, 11.25]


WRITER = """
import sys
from pathlib import Path
from tpu_console.engine.runs.events import Noticed
from tpu_console.engine.runs.journal import JournalWriter
writer = JournalWriter(Path(sys.argv[1]))
for line in sys.stdin:
    for number in range(int(line)):
        writer.write(Noticed(f"{sys.argv[2]} {number} " + "x" * 2000))
    print("written", flush=True)
input()
"""


def start_writer(path: Path, name: str) -> subprocess.Popen[str]:
    """A process that writes so many notices as it is told to on its standard input."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def tell(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text)
    process.stdin.flush()


def test_a_reader_sees_what_another_process_wrote_while_that_still_runs(path: Path) -> None:
    writer = start_writer(path, "other")
    reader = JournalReader(path)
    try:
        assert reader.read() == []
        tell(writer, "1\n")
        wait_until(reader.read, "the event of the other process")
        tell(writer, "1\n")
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        assert writer.stdout.readline() == "written\n"
        # No waiting here: what `write` returned from is there.
        assert len(read_all(path)) == 2
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()


def test_two_processes_that_write_at_once_keep_their_lines_whole(path: Path) -> None:
    writers = [start_writer(path, name) for name in ("a", "b")]
    for writer in writers:
        tell(writer, "400\n")
    for writer in writers:
        writer.communicate(timeout=LIMIT_S)
    written = [message.split()[:2] for message in messages(path)]
    for name in ("a", "b"):
        assert [int(number) for who, number in written if who == name] == list(range(400))


def test_two_threads_that_share_a_writer_keep_their_lines_whole(path: Path) -> None:
    writer = JournalWriter(path)

    def work(name: str) -> None:
        for number in range(500):
            writer.write(Noticed(f"{name} {number}"))

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(messages(path)) == sorted(f"{name} {number}" for name in "ab" for number in range(500))


def progress(number: int) -> Progress:
    return Progress(1, number, number, 0.1 * number, {"loss": 1.0, "accuracy": 0.5})


def test_everything_waits_on_a_full_disk_and_is_written_once_there_is_room(disk: SmallDisk) -> None:
    path, reserved = disk.path / "events.jsonl", disk.path / RESERVE_NAME
    journal = JournalWriter(path)
    assert reserved.stat().st_size == RESERVE_BYTES
    fill_up(disk, journal)
    for number in range(100):
        journal.write(progress(number))
    journal.flush()
    assert journal.waiting > 100
    assert journal.is_full
    assert "space" in journal.trouble
    assert reserved.stat().st_size == RESERVE_BYTES  # only kept for the last event
    disk.empty()
    journal.flush()
    assert (journal.waiting, journal.is_full, journal.trouble) == (0, False, "")
    assert [record["step"] for record in read_all(path) if record["type"] == "Progress"] == list(range(100))
    assert messages(path) == ["Disk space is available again. Every epoch is recorded."]
    journal.close()
    assert not reserved.exists()


def test_the_disk_counts_as_full_until_there_is_room_for_more_than_a_few_lines(disk: SmallDisk) -> None:
    journal = JournalWriter(disk.path / "events.jsonl")
    fill_up(disk, journal)
    filler = disk.path / "filler"
    os.truncate(filler, filler.stat().st_size - (64 << 10))
    journal.flush()
    assert (journal.waiting, journal.is_full) == (0, True)


def test_epochs_of_a_full_disk_are_written_with_the_last_event(disk: SmallDisk) -> None:
    path = disk.path / "events.jsonl"
    journal = JournalWriter(path)
    fill_up(disk, journal)
    for number in range(1, 201):
        journal.write(replace(EPOCH, epoch=number))
    journal.write(RunFailed("The disk is full.", "x" * 2000, "", "console.log"))
    assert journal.waiting == 0
    journal.close()
    records = read_all(path)
    assert [record["epoch"] for record in records if record["type"] == "EpochEnded"] == list(range(1, 201))
    assert records[-1]["type"] == "RunFailed"


def test_the_last_event_is_written_with_everything_that_waits_but_measurements(disk: SmallDisk) -> None:
    path = disk.path / "events.jsonl"
    journal = JournalWriter(path)
    fill_up(disk, journal)
    for number in range(9000):
        journal.write(progress(number))
    journal.write(Noticed("in between"))
    journal.write(RunFinished("completed", "", {"final": {"loss": 1.0}}))
    journal.close()
    assert messages(path) == ["in between"]
    assert read_all(path)[-1]["type"] == "RunFinished"


def test_a_writer_that_is_closed_without_a_last_event_writes_what_waits(disk: SmallDisk) -> None:
    path = disk.path / "events.jsonl"
    journal = JournalWriter(path)
    fill_up(disk, journal)
    journal.write(EPOCH)
    journal.close()
    assert read_all(path)[-1]["type"] == "EpochEnded"


def test_the_notice_says_how_much_was_not_recorded(disk: SmallDisk) -> None:
    journal = JournalWriter(disk.path / "events.jsonl")
    for lost in (5000, 0):
        fill_up(disk, journal)
        for number in range(10_000 + lost if lost else 1):
            journal.write(progress(number))
        disk.empty()
        journal.flush()
        assert not journal.is_full
    first, second = messages(disk.path / "events.jsonl")
    assert "measurements" in first
    assert ";" not in second


def test_a_file_that_cannot_be_synced_is_not_synced_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def refuse(descriptor: int) -> None:
        calls.append(descriptor)
        raise OSError(errno.EINVAL, "no fsync here")

    writer = JournalWriter(path)
    monkeypatch.setattr("os.fsync", refuse)
    writer.write(EPOCH)
    writer.flush()
    writer.flush()
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("record", "is_read"),
    [
        ({"t": 0}, True),
        ({"t": -0.001}, False),
        ({"t": 253_370_000_000.0}, True),
        ({"t": 253_370_000_001.0}, False),
        ({"t": True}, False),
        ({"t": "1"}, False),
        ({"type": 3}, False),
        ({"type": None}, False),
        ({"v": "1"}, True),
        ({"message": "é"}, True),
    ],
)
@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside a good one"])
def test_a_record_has_a_type_and_a_possible_time(
    path: Path, record: dict[str, Any], is_read: bool, alone: bool
) -> None:
    good = {"v": VERSION, "t": 1.0, "type": "Noticed", "message": "good"}
    lines = [good | record] if alone else [good, good | record]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    reader = JournalReader(path)
    assert len(reader.read()) == len(lines) - (not is_read)
    assert (reader.skipped, reader.newer) == (not is_read, 0)


@pytest.mark.parametrize(("length", "skipped"), [(LONGEST_LINE, 0), (LONGEST_LINE + 1, 1)])
def test_a_line_longer_than_the_longest_is_damaged(path: Path, length: int, skipped: int) -> None:
    empty = encode(Noticed(""), 1.0)
    path.write_bytes(encode(Noticed("x" * (length - len(empty) + 1)), 1.0) + b"damage\n")
    assert (parse_line(path.read_bytes().splitlines()[0]) is None) == bool(skipped)
    reader = JournalReader(path)
    while reader.read():
        pass
    assert reader.skipped == skipped + 1


def test_a_full_disk_loses_nothing_once_there_is_room_again(path: Path) -> None:
    writer = JournalWriter(path)
    with files_no_larger_than(10_000):
        for number in range(200):
            writer.write(Noticed(f"{number} {'x' * 100}"))
        assert writer.trouble == "File too large"
        assert path.stat().st_size == 10_000  # the last line there is torn
        assert 0 < len(read_all(path)) < 200
    writer.flush()
    assert writer.trouble == ""
    assert [int(message.split()[0]) for message in messages(path)] == list(range(200))


def test_only_progress_is_dropped_when_a_disk_stays_full_for_long(path: Path) -> None:
    writer = JournalWriter(path)
    with files_no_larger_than(1):
        for number in range(10_050):
            writer.write(Progress(1, number, number, 0.0, {}))
        writer.write(EPOCH)
        writer.write(RunFinished("completed", "", {}))
    writer.close()
    kinds = [record["type"] for record in read_all(path)]
    assert kinds.count("Progress") == 10_001
    assert kinds[-2:] == ["EpochEnded", "RunFinished"]


@pytest.mark.parametrize(
    ("event", "durable"),
    [
        (EPOCH, True),
        (RunFinished("completed", "", {}), True),
        (RunFailed("", "", "", ""), True),
        (Progress(1, 1, 1, 0.0, {}), False),
        (PhaseStarted("training"), False),
        (RunStarted("a", "host", 1, "here"), False),
    ],
)
def test_epoch_ends_and_last_events_are_made_durable(
    path: Path, monkeypatch: pytest.MonkeyPatch, event: Event, durable: bool
) -> None:
    synced: list[int] = []
    monkeypatch.setattr("os.fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    writer = JournalWriter(path)
    writer.write(event)
    assert synced == []  # never in the training thread
    writer.flush()
    assert synced == ([path.stat().st_size] if durable else [])
    writer.flush()
    assert len(synced) == int(durable)  # once is enough


def test_what_is_written_after_closing_is_dropped_quietly(path: Path) -> None:
    writer = JournalWriter(path)
    writer.write(Noticed("in time"))
    writer.close()
    writer.write(Noticed("late"))
    writer.flush()
    writer.close()
    assert messages(path) == ["in time"]


@pytest.mark.parametrize(("torn", "lines"), [(-9, 3), (-1, 3), (None, 3)])
def test_a_line_cut_off_by_a_kill_does_not_swallow_the_next_one(path: Path, torn: int | None, lines: int) -> None:
    path.write_bytes(encode(EPOCH, 1.0) + encode(EPOCH, 2.0)[:torn])
    writer = JournalWriter(path)
    writer.write(Noticed("resumed"))
    writer.close()
    found = [record["type"] for record in read_all(path)]
    assert found == ["EpochEnded", *(["EpochEnded"] if torn != -9 else []), "Noticed"]
    assert path.read_bytes().count(b"\n") == lines
