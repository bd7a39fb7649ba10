import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.engine.runs.test_state import ended, progress
from tests.engine.strategies import EVENT_CLASSES, events, of_type
from tests.small_disk import SmallDisk, fill_up
from tpu_console.engine.runs import events as kinds
from tpu_console.engine.runs.events import EpochEnded, Event, Noticed, Progress, RunFailed, RunFinished, RunStarted
from tpu_console.engine.runs.journal import LONGEST_LINE, VERSION, JournalReader, JournalWriter, Record, decode, encode
from tpu_console.engine.storage.files import RESERVE_BYTES, RESERVE_NAME

EPOCH = ended(1, loss=1.0)
DONE = RunFinished("completed", "", {})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def read_all(path: Path) -> list[Record]:
    reader = JournalReader(path)
    records = []
    while more := reader.read():
        records += more
    return records


def events_in(path: Path) -> list[Event | None]:
    return [record.event for record in read_all(path)]


def event_of(line: bytes) -> Event | None:
    record = decode(line)
    assert record is not None
    return record.event


def messages(path: Path) -> list[str]:
    return [event.message for event in events_in(path) if isinstance(event, Noticed)]


@pytest.mark.parametrize("cls", EVENT_CLASSES, ids=lambda cls: str(cls.__name__))
def test_every_event_is_read_back_as_it_was_written(cls: type[Any]) -> None:
    @given(of_type(cls), st.floats(0, 2e9))
    def check(event: Event, at: float) -> None:
        line = encode(event, at)
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        record = decode(line)
        assert record is not None
        assert record.event is not None
        assert (record.version, record.at, type(record.event)) == (VERSION, at, cls)
        # Lines and not events are compared: a NaN is not equal to itself.
        assert encode(record.event, at) == line

    check()


def test_numbers_that_json_does_not_know_are_spelled_out_and_come_back() -> None:
    event = Progress(1, 2, 3, 0.5, {"nan": math.nan, "up": math.inf, "down": -math.inf, "é": 1e300})
    line = encode(event, 1.0)
    assert json.loads(line)["logs"] == {"nan": "NaN", "up": "Infinity", "down": "-Infinity", "é": 1e300}
    again = event_of(line)
    assert isinstance(again, Progress)
    assert math.isnan(again.logs["nan"])
    assert (again.logs["up"], again.logs["down"], again.logs["é"]) == (math.inf, -math.inf, 1e300)


@pytest.mark.parametrize(
    "event",
    [
        EPOCH,
        kinds.HostSampled(0, "a", 1.0, 2.0, 3, 4, 5.0, 6.0),
        kinds.HostSampled(0, "a", 1.0, 2.0, 3, 4, 5.0, None, {"examples_per_s": "not yet", "cpu_percent": "not here"}),
    ],
)
def test_a_rate_in_images_from_an_older_journal_is_one_in_examples(event: Event) -> None:
    line = encode(event, 1.0)
    assert b"examples_per_s" in line
    assert b"images_per_s" not in line
    assert event_of(line.replace(b"examples_per_s", b"images_per_s")) == event


def test_closed_sets_of_words_are_written_as_before() -> None:
    assert b'"source":"host"' in encode(RunStarted("a", kinds.RunSource.PROCESS, 1, "b"), 1.0)
    assert [*kinds.RunSource] == ["host", "in-process", "notebook", "imported"]
    assert [*kinds.RunOutcome] == ["completed", "early", "stopped"]
    assert [*kinds.Bottleneck] == ["input", "accelerator", "balanced"]


def test_text_that_is_not_unicode_is_written_all_the_same() -> None:
    # A path with bytes that are no UTF-8 reaches an error message as lone surrogates.
    failed = event_of(encode(RunFailed(os.fsdecode(b"/data/\xff.npz"), "", "", "console.log"), 1.0))
    assert failed == RunFailed("/data/?.npz", "", "", "console.log")


@given(st.lists(events, min_size=1, max_size=6), st.data())
def test_a_journal_cut_at_any_byte_gives_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, written: list[Event], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("cut") / "events.jsonl"
    lines = [encode(event, 1.0) for event in written]
    content = b"".join(lines)
    cut = data.draw(st.integers(0, len(content)))
    reader = JournalReader(path)
    assert reader.read() == []  # it is not there yet
    path.write_bytes(content[:cut])
    assert [record.line for record in reader.read()] == content[:cut].split(b"\n")[:-1]
    assert reader.skipped == 0
    with path.open("ab") as file:
        file.write(content[cut:])
    more = reader.read()
    assert [record.line for record in more] == content.split(b"\n")[content[:cut].count(b"\n") : -1]
    assert reader.read() == []
    records = read_all(path)
    assert ([record.line + b"\n" for record in records], reader.skipped) == (lines, 0)
    assert [type(record.event) for record in records] == [type(event) for event in written]


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
    assert [record.event for record in reader.read()] == good
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
    assert "\x1b" not in "".join(messages(path))


def test_values_nested_too_deeply_are_no_event_wherever_they_stand(path: Path) -> None:
    good = encode(Noticed("good"), 1.0)
    shallow = encode(RunStarted("a", "host", 1, "b", {"deep": 0}), 1.0)
    deep = shallow.replace(b'{"deep":0}', b'{"deep":%b%b}' % (b"[" * 900, b"]" * 900))
    path.write_bytes(deep + good)
    assert events_in(path) == [None, Noticed("good")]
    path.write_bytes(good[:-1] + deep + b"\n" + good)  # two values in a line, and then none
    assert events_in(path) == [Noticed("good")]


def test_a_line_is_read_when_it_is_whole_and_a_shorter_journal_from_its_beginning(path: Path) -> None:
    line = encode(Noticed("x" * 1_000_000), 1.0)
    reader = JournalReader(path)
    path.write_bytes(line + line[:20])
    assert (len(reader.read()), reader.read()) == (1, [])
    with path.open("ab") as file:
        file.write(line[20:])
    assert ([len(record.line) for record in reader.read()], reader.skipped) == ([len(line) - 1], 0)
    for shorter in ("new", "ne"):
        path.write_bytes(encode(Noticed(shorter), 1.0))
        assert [record.event for record in reader.read()] == [Noticed(shorter)]


@pytest.mark.parametrize(
    "record",
    [{"type": "Noticed"}, {"type": "Noticed", "message": 3}, {"type": "Progress", "logs": [1]}, {"type": "object"}],
)
def test_a_damaged_record_is_no_event(record: dict[str, Any]) -> None:
    assert event_of(json.dumps(record | {"t": 1.0}).encode()) is None


def test_threads_and_writers_that_write_at_once_keep_their_lines_whole(path: Path) -> None:
    shared, other = JournalWriter(path), JournalWriter(path)

    def work(name: str, writer: JournalWriter) -> None:
        for number in range(300):
            writer.write(Noticed(f"{name} {number} {'x' * 2000}"))

    threads = [threading.Thread(target=work, args=of) for of in (("a", shared), ("b", shared), ("c", other))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    written = [message.split()[:2] for message in messages(path)]
    for name in "abc":
        assert [int(number) for who, number in written if who == name] == list(range(300))


def test_what_a_newer_version_wrote_is_skipped_and_its_version_told(path: Path) -> None:
    newer = {"v": VERSION + 3, "t": 2.0, "type": "Teleported", "where": "Mars"}
    extended = {"v": VERSION + 3, "t": 2.0, "type": "Noticed", "message": "known", "colour": "red"}
    path.write_text(f"{json.dumps(newer)}\n{json.dumps(extended)}\n", encoding="utf-8")
    reader = JournalReader(path)
    assert [record.event for record in reader.read()] == [None, Noticed("known")]
    assert reader.newer == VERSION + 3


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
    assert reserved.stat().st_size == RESERVE_BYTES  # only kept for the last event
    disk.empty()
    journal.flush()
    assert (journal.waiting, journal.is_full) == (0, False)
    assert [event.step for event in events_in(path) if isinstance(event, Progress)] == list(range(100))
    assert len(messages(path)) == 1  # that there is space again
    journal.close()
    assert not reserved.exists()


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
        ({"v": "1"}, False),
        ({"message": "é"}, True),
    ],
)
def test_a_record_has_a_type_and_a_possible_time(path: Path, record: dict[str, Any], is_read: bool) -> None:
    good = {"v": VERSION, "t": 1.0, "type": "Noticed", "message": "good"}
    path.write_text("".join(f"{json.dumps(line)}\n" for line in (good, good | record)))
    reader = JournalReader(path)
    assert len(reader.read()) == 2 - (not is_read)
    assert (reader.skipped, reader.newer) == (not is_read, 0)


@pytest.mark.parametrize(("length", "skipped"), [(LONGEST_LINE, 0), (LONGEST_LINE + 1, 1)])
def test_a_line_longer_than_the_longest_is_damaged(path: Path, length: int, skipped: int) -> None:
    empty = encode(Noticed(""), 1.0)
    path.write_bytes(encode(Noticed("x" * (length - len(empty) + 1)), 1.0) + b"damage\n")
    assert (decode(path.read_bytes().splitlines()[0]) is None) == bool(skipped)
    reader = JournalReader(path)
    while reader.read():
        pass
    assert reader.skipped == skipped + 1


def test_the_last_event_is_written_with_everything_that_waits_but_measurements(disk: SmallDisk) -> None:
    path = disk.path / "events.jsonl"
    journal = JournalWriter(path)
    fill_up(disk, journal)
    for number in range(10_050):
        journal.write(progress(number))
    assert 10_000 < journal.waiting < 10_050
    for number in range(1, 201):
        journal.write(replace(EPOCH, epoch=number))
    journal.write(Noticed("in between"))
    journal.write(DONE)
    journal.write(Noticed("late"))
    journal.close()
    written = events_in(path)
    assert [event.epoch for event in written if isinstance(event, EpochEnded)] == list(range(1, 201))
    assert [type(event) for event in written[-2:]] == [Noticed, RunFinished]
    assert messages(path) == ["in between"]


@pytest.mark.parametrize(
    ("event", "durable"),
    [
        (EPOCH, True),
        (DONE, True),
        (RunFailed("", "", "", ""), True),
        (Progress(1, 1, 1, 0.0, {}), False),
        (kinds.PhaseStarted("training"), False),
        (RunStarted("a", "host", 1, "here"), False),
    ],
)
def test_epoch_ends_and_last_events_are_made_durable(path: Path, event: Event, durable: bool) -> None:
    synced: list[int] = []
    writer = JournalWriter(path, sync=lambda fd: synced.append(os.fstat(fd).st_size))
    writer.write(event)
    assert synced == []  # never in the training thread
    writer.flush()
    assert synced == ([path.stat().st_size] if durable else [])
    writer.flush()
    assert len(synced) == int(durable)  # once is enough


def test_a_disk_counts_as_full_until_there_is_room_for_more_than_a_few_lines_and_closing_writes_what_waits(
    disk: SmallDisk,
) -> None:
    journal = JournalWriter(disk.path / "events.jsonl")
    fill_up(disk, journal)
    filler = disk.path / "filler"
    os.truncate(filler, filler.stat().st_size - (64 << 10))
    journal.flush()
    assert (journal.waiting, journal.is_full) == (0, True)
    fill_up(disk, journal)
    journal.write(EPOCH)
    journal.close()
    journal.write(Noticed("late"))
    assert events_in(disk.path / "events.jsonl")[-1] == EPOCH


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        (encode(EPOCH, 1.0) + encode(EPOCH, 2.0)[:-9], 1),
        (encode(EPOCH, 1.0) + encode(EPOCH, 2.0)[:-1], 2),
        (encode(EPOCH, 1.0) + encode(EPOCH, 2.0), 2),
        (encode(EPOCH, 1.0)[:1], 0),
    ],
    ids=["torn", "without its line feed", "whole", "a byte"],
)
def test_a_line_cut_off_by_a_kill_does_not_swallow_the_next_one(path: Path, content: bytes, whole: int) -> None:
    path.write_bytes(content)
    writer = JournalWriter(path)
    writer.write(Noticed("resumed"))
    writer.close()
    assert events_in(path) == [EPOCH] * whole + [Noticed("resumed")]
    assert path.read_bytes().count(b"\n") == len(content.splitlines()) + 1
