"""Numbers, tables and encodings of plain output."""

from __future__ import annotations

import io
import math

import pytest
from rich.cells import cell_len

from tpu_console.engine.errors import ConfigError, ConsoleError, Problem
from tpu_console.tui.terminal.output import complain_about, say, speaks_utf8
from tpu_console.tui.text.cells import clipped, end_of
from tpu_console.tui.text.numbers import (
    bar_cells,
    clock,
    duration,
    flop,
    gib,
    learning_rate,
    listed,
    memory,
    metric,
    percent,
    plural,
    shape,
    size,
)
from tpu_console.tui.text.tables import Column, fields, table


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.00 s"),
        (0.414, "0.41 s"),
        (0.0412, "41.2 ms"),
        (3.03e-8, "0.0303 µs"),
        (None, "–"),
        (9.996, "10.0 s"),
        (59.96, "1m 00s"),
        (72, "1m 12s"),
        (7500, "2h 05m"),
        (97200, "1d 03h"),
        (float("nan"), "–"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (42.9, "0:42"), (3723, "1:02:03"), (183_840, "2d 03:04"), (-5, "0:00")]
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.98765, "0.9877"),
        (123.456, "123.46"),
        (0.00001234, "1.2e-5"),
        (0.0, "0.0000"),
        (3.2e9, "3.2e9"),
        (math.nan, "NaN"),
        (-math.inf, "-inf"),
        (None, ""),
    ],
)
def test_metric(value: float | None, text: str) -> None:
    assert metric(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.001, "0.001"), (0.5, "0.5"), (1.953e-4, "2e-4"), (0.00196, "0.00196"), (None, "")]
)
def test_learning_rate(value: float | None, text: str) -> None:
    assert learning_rate(value) == text


def test_memory_says_only_what_is_known() -> None:
    gib = 1 << 30
    assert memory(3 * gib, 16 * gib) == "3.0/16.0 GiB"
    assert memory(5 << 20, None) == "5.0 MiB"
    assert memory(None, None) == ""


def test_only_a_finished_bar_is_full() -> None:
    assert bar_cells(0.999, 10) == 9
    assert bar_cells(1.0, 10) == 10
    assert bar_cells(-1, 10) == 0


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (143656, "144 kB"), (26421880, "26.4 MB")]
)
def test_size(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (plural(1, "step"), "1 step"),
        (plural(1408, "step"), "1,408 steps"),
        (plural(2, "class", "classes"), "2 classes"),
        (shape((28, None, 1)), "28×?×1"),
        (percent(37.6), "38%"),
        (listed(["a", "b"], 2), "a, b"),
        (listed(["a", "b", "c"], 1), "a and 2 more"),
        (gib(31_797_248), "30.3 MiB"),
        (gib(15.75 * 2**30), "15.75 GiB"),
        (flop(12), "12 FLOP"),
        (flop(1.4424e12), "1.44 TFLOP"),
    ],
)
def test_counts_lists_and_units(written: str, text: str) -> None:
    assert written == text


COLUMNS = [Column("run", 9), Column("epochs", 5, right=True), Column("started", 1)]
ROWS = [["first-run", "3/30", "2026-11-20"], ["b", "12/30", ""]]


def test_table_lines_up() -> None:
    assert table(COLUMNS, ROWS, None) == [
        "run        epochs  started",
        "first-run    3/30  2026-11-20",
        "b           12/30",
    ]


def test_table_lines_up_with_wide_characters() -> None:
    rows = [["健康", "3/30", "2026"], ["b", "–", "2027"]]
    assert table(COLUMNS, rows, None) == ["run   epochs  started", "健康    3/30  2026", "b          –  2027"]
    assert fields([("健康", "1"), ("b", "2")]) == ["  健康  1", "  b     2"]


@pytest.mark.parametrize("width", [1, 5, 12, 20, 39])
def test_table_never_exceeds_the_width(width: int) -> None:
    assert all(len(line) <= width for line in table(COLUMNS, ROWS, width))


def test_a_narrow_table_drops_the_least_important_column() -> None:
    assert table(COLUMNS, ROWS, 20)[0] == "run        epochs"
    assert table(COLUMNS, ROWS, 12)[0] == "run"


def test_fields_keep_values_of_several_lines_in_their_column() -> None:
    assert fields([("a", "1"), ("long", "2\n3")]) == ["  a     1", "  long  2", "        3"]


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LC_CTYPE": "C.utf8", "LANG": "C"}, True),
        ({"LC_ALL": "C", "LANG": "en_US.UTF-8"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
        ({"LC_ALL": "", "LANG": "C.UTF-8"}, True),
    ],
)
def test_locale(environment: dict[str, str], expected: bool) -> None:
    assert speaks_utf8(environment) is expected


def test_lines_survive_an_encoding_that_lacks_their_characters() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    say(["8×8 – done ★ … 数"], stream)
    assert raw.getvalue() == b"8x8 - done * ... \\u6570\n"


def test_every_problem_of_a_configuration_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    complain_about(ConfigError([Problem("epochs", "is required"), Problem("seed", "is odd")], "mine.toml"))
    assert capsys.readouterr().err == "Error: mine.toml: epochs: is required\nError: mine.toml: seed: is odd\n"


def test_other_errors_say_what_why_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    complain_about(ConsoleError("It broke.", remedy="Mend it."))
    assert capsys.readouterr().err == "Error: It broke.\nMend it.\n"


TEXTS = ["", "plain", "健康な葉", "a健b康", "cafe\u0301 – ★", "👍 fine"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 5, 11])
def test_a_text_is_no_wider_than_asked_for(text: str, size: int) -> None:
    for cut in (clipped(text, size), end_of(text, size)):
        assert cell_len(cut) <= size
        assert cut == text or "…" in cut


def test_a_text_is_cut_off_at_its_end_or_at_its_beginning() -> None:
    assert clipped("a long name", 7) == "a long…"
    assert end_of("a long name", 7) == "…g name"
    assert clipped("健康な葉", 6) == "健康…"
    assert end_of("健康な葉", 6) == "…な葉"
