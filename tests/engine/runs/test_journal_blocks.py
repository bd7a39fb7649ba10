"""Reading a long journal with several processes: the state is the one that a single reader finds."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.engine.runs.test_state import ended, progress
from tpu_console.engine.runs import block_parser, journal_blocks
from tpu_console.engine.runs.block_parser import read_block
from tpu_console.engine.runs.events import FitStarted, Noticed, RunFinished, RunResumed
from tpu_console.engine.runs.follower import StateReader
from tpu_console.engine.runs.journal import JournalReader, encode
from tpu_console.engine.runs.journal_blocks import read_blocks, start_early
from tpu_console.engine.runs.progress_columns import ProgressColumns
from tpu_console.engine.runs.run_directory import RunDirectory, create_run
from tpu_console.engine.runs.state import RunState, fold, fold_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NEWER = b'{"v":9,"t":3.0,"type":"Teleported"}\n'
DAMAGED = b'{"v":1,"t":3.0,"type":"Progress","epoch":1,"epoch_step":%b,"step":3,"elapsed_s":1.0,"logs":{"loss":%b}}\n'


def lines(count: int) -> Iterator[bytes]:
    """The lines of a run with a bit of everything."""
    yield encode(FitStarted(count // 4, 4, 8, 8, 1, "", ""), 1.0)
    for step in range(1, count + 1):
        metrics = {"accuracy": 0.5} if step > count // 2 else {}
        yield encode(
            progress(step, loss=60.0 if step == 7 else float("nan") if step == 9 else 1 / step, **metrics), step
        )
        if step % 4 == 0:
            yield encode(ended(step // 4, loss=1 / step, val_loss=2 / step), step + 0.5)
    yield b"no JSON\n" + NEWER + b"{}\n" + encode(Noticed("ünicode \\ \x1b[31m"), 3.0)
    yield encode(RunResumed(count // 4 - 2, 0, count - 8, 1.0, 1, "here"), 4.0)
    yield encode(RunFinished("completed", "all epochs are done", {}), 5.0)


def alone(path: Path) -> tuple[RunState, JournalReader]:
    """What one reader finds."""
    reader, state = JournalReader(path), RunState()
    while records := reader.read():
        state = fold(state, records)
    return state, reader


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return create_run("a", tmp_path)


@pytest.mark.parametrize("size", [90, 150, 1000, 1 << 20])
def test_blocks_of_any_size_hold_every_line_once(run: RunDirectory, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_parser, "BLOCK", size)
    monkeypatch.setattr(block_parser, "_PIECE", 700)  # a few lines
    first = b"read before\n"
    run.journal.write_bytes(first + b"".join(lines(40)) + b'{"not":"complete')
    end = run.journal.stat().st_size
    state, place, skipped, newer = RunState(), len(first), 0, 0
    for begin in range(len(first), end, size):
        block = read_block(run.journal, begin, len(first), end)
        if block is None:  # nothing but a line that is not complete
            assert end - begin <= size
            break
        assert block.begin == place
        state, place = fold_parts(state, block.parts), block.end
        skipped, newer = skipped + block.skipped, max(newer, block.newer)
    expected, reader = alone(run.journal)
    assert repr(state) == repr(expected)
    assert (place, skipped + 1, newer) == (reader.position, reader.skipped, reader.newer)


def test_progress_of_several_pieces_becomes_one_part(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_parser, "_PIECE", 700)
    run.journal.write_bytes(b"".join(encode(progress(step, loss=1 / step), step) for step in range(1, 101)))
    block = read_block(run.journal, 0, 0, run.journal.stat().st_size)
    assert block is not None
    (part,) = block.parts
    assert isinstance(part, ProgressColumns)
    assert part.last["step"] == 100
    assert len(part.metrics) == 100 * 8


def test_a_process_that_parses_loads_no_numpy() -> None:
    program = "import sys, tpu_console.engine.runs.block_parser; sys.exit('numpy' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def with_a_long_line(data: bytes) -> bytes:
    place = data.index(b"\n", 2 * block_parser.BLOCK - 1000) + 1
    return data[:place] + encode(Noticed("x" * 200_000), 1.0) + data[place:]


def with_damaged_progress(data: bytes) -> bytes:
    place = data.index(b"\n", len(data) // 2) + 1
    damaged = DAMAGED % (b"1.5", b"0.5") * 2 + DAMAGED % (b"1", b'"low"') + DAMAGED % (b"1", b"null")
    return data[:place] + damaged + encode(Noticed("after it"), 1.0) + data[place:]


@pytest.mark.parametrize(("change", "is_whole"), [(with_damaged_progress, True), (with_a_long_line, False)])
def test_several_processes_find_what_one_reader_finds(
    run: RunDirectory, change: Callable[[bytes], bytes], is_whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_blocks, "PAYS_FROM", 1)
    monkeypatch.setattr("tpu_console.engine.machine.resources.usable_cores", lambda: 3)
    run.journal.write_bytes(change(b"".join(lines(14_000))))
    blocks = read_blocks(run.journal, 0)
    ends = [block.end for block in blocks]
    assert (ends[-1] == run.journal.stat().st_size) is is_whole
    reader = StateReader(run)
    state = reader.catch_up()
    expected, single = alone(run.journal)
    assert repr(state) == repr(expected)
    journal = reader.journal
    assert (journal.position, journal.skipped, journal.newer) == (single.position, single.skipped, single.newer)


def test_processes_that_were_started_early_parse_for_the_next_reader(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_blocks, "PAYS_FROM", 1)
    monkeypatch.setattr("tpu_console.engine.machine.resources.usable_cores", lambda: 2)
    run.journal.write_bytes(b"".join(lines(14_000)))
    expected, _ = alone(run.journal)
    start_early(run)
    (early,) = journal_blocks._early.values()
    reader = StateReader(run)
    reader.advance()
    assert not journal_blocks._early
    assert repr(reader.catch_up()) == repr(expected)
    assert all(process.returncode is not None for process in early.processes)


def test_a_reader_from_another_place_ends_the_processes_that_were_started_early(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_blocks, "PAYS_FROM", 1)
    monkeypatch.setattr("tpu_console.engine.machine.resources.usable_cores", lambda: 2)
    run.journal.write_bytes(b"".join(lines(40)))
    start_early(run)
    (early,) = journal_blocks._early.values()
    assert [*read_blocks(run.journal, run.journal.stat().st_size)] == []
    assert all(process.returncode is not None for process in early.processes)


def test_a_short_rest_and_a_missing_journal_start_no_process(run: RunDirectory) -> None:
    assert [*read_blocks(run.journal, 0)] == []
    run.journal.write_bytes(b"".join(lines(40)))
    assert [*read_blocks(run.journal, 0)] == []
