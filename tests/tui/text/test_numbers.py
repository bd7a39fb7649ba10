"""Numbers, tables and encodings of plain output."""

import io
import math
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tpu_console.engine.errors import ConfigError, ConsoleError, Problem
from tpu_console.tui.terminal.output import complain_about, say, speaks_utf8
from tpu_console.tui.text import numbers, tables
from tpu_console.tui.text.tables import Bar, Column, clipped, end_of

GIB = 1 << 30
COLUMNS = [Column("run", 9), Column("epochs", 5, right=True), Column("started", 1)]
ROWS = [["first-run", "3/30", "2026-11-20"], ["b", "12/30", ""]]


@pytest.mark.parametrize(
    ("write", "texts"),
    [
        (numbers.duration, {-1: "0.00 s", 0.414: "0.41 s", 0.0412: "41.2 ms", 3.03e-8: "0.0303 µs", 9.996: "10.0 s"}),
        (numbers.duration, {59.96: "1m 00s", 72: "1m 12s", 7500: "2h 05m", 97200: "1d 03h", None: "–", math.nan: "–"}),
        (numbers.clock, {0: "0:00", 42.9: "0:42", 3723: "1:02:03", 183_840: "2d 03:04", -5: "0:00"}),
        (numbers.metric, {0.98765: "0.9877", 123.456: "123.46", 1.234e-5: "1.2e-5", 0.0: "0.0000", 3.2e9: "3.2e9"}),
        (
            numbers.metric,
            {12.34567: "12.346", 5432.15: "5432.1", 98_765.4: "98765", math.nan: "NaN", -math.inf: "-inf", None: ""},
        ),
        (numbers.learning_rate, {0.001: "0.001", 0.5: "0.5", 1.953e-4: "2e-4", 0.00196: "0.00196", None: ""}),
        (numbers.size, {0: "0 B", 999: "999 B", 1500: "1.5 kB", 143_656: "144 kB", 26_421_880: "26.4 MB"}),
        (numbers.gib, {31_797_248: "30.3 MiB", 15.75 * GIB: "15.75 GiB"}),
        (numbers.flop, {12: "12 FLOP", 999.6: "1 kFLOP", 1.4424e12: "1.44 TFLOP", 2e18: "2e+03 PFLOP"}),
        (numbers.percent, {37.6: "38%", None: ""}),
        (numbers.milliseconds, {9.994: "9.99", 9.996: "10.0", 99.96: "100", None: ""}),
        (numbers.shape, {(28, None, 1): "28×?×1"}),
    ],
)
def test_a_figure_is_written_as_a_person_reads_it(write: Callable[[Any], str], texts: dict[Any, str]) -> None:
    assert {value: write(value) for value in texts} == texts


def test_counts_lists_memory_and_bars() -> None:
    assert [numbers.plural(1, "step"), numbers.plural(1408, "step")] == ["1 step", "1,408 steps"]
    assert numbers.plural(2, "class", "classes") == "2 classes"
    assert [numbers.listed("ab", 2), numbers.listed("abc", 1)] == ["a, b", "a and 2 more"]
    known = [numbers.memory(3 * GIB, 16 * GIB), numbers.memory(5 << 20, None), numbers.memory(None, None)]
    assert known == ["3.0/16.0 GiB", "5.0 MiB", ""]
    assert [numbers.bar_cells(share, 10) for share in (0.999, 1.0, -1)] == [9, 10, 0]


def test_a_table_lines_up_also_with_wide_characters() -> None:
    lines = ["run        epochs  started", "first-run    3/30  2026-11-20", "b           12/30"]
    assert tables.table(COLUMNS, ROWS, None) == lines
    rows = [["健康", "3/30", "2026"], ["b", "–", "2027"]]
    assert tables.table(COLUMNS, rows, None) == ["run   epochs  started", "健康    3/30  2026", "b          –  2027"]
    assert tables.fields([("健康", "1"), ("b", "2")]) == ["  健康  1", "  b     2"]
    assert tables.fields([("a", "1"), ("long", "2\n3")]) == ["  a     1", "  long  2", "        3"]


def test_texts_are_wrapped_beside_their_names_and_the_best_row_of_a_page_is_marked() -> None:
    text = f"{'x' * 13} {'y' * 13}"  # 27 cells
    assert tables.wrapped("name", text, 40) == [f"name         {text}"]
    assert tables.wrapped("name", text, 39) == [f"name         {'x' * 13}", f"             {'y' * 13}"]
    assert tables.wrapped("", "x " * 11, 10)[1:] == ["             x"]
    page = tables.as_html([Column("a", 1), Column("b", 1, right=True)], [["<", "2"], ["3", "4"]], 1)
    assert [row.startswith(' class="best"') for row in page.split("<tr")[1:]] == [False, False, True]
    assert (page.count("text-align:right"), "&lt;" in page) == (3, True)


@pytest.mark.parametrize(
    ("value", "in_json", "in_csv"),
    [
        *((1.5, 1.5, "1.5"), (math.nan, "nan", "nan"), (math.inf, "inf", "inf"), (None, None, ""), (-2, -2, "-2")),
        *(("plain", "plain", "plain"), ("=1+1", "=1+1", "'=1+1"), ("@a", "@a", "'@a"), ("-2", "-2", "'-2")),
    ],
)
def test_values_in_json_and_csv_are_numbers_or_harmless_texts(value: object, in_json: object, in_csv: str) -> None:
    assert tables.for_json({"a": [value]}) == {"a": [in_json]}
    assert (
        tables.as_csv([Column("A", 1, key="a", value=lambda one: one), Column("B", 1, key="b")], [value])
        == f"a,b\n{in_csv},"
    )


def test_bars_are_as_long_as_their_values_and_the_shortest_is_visible() -> None:
    bars = [Bar("a long label", 10.0, ("1",)), Bar("b", 5.0, ("2",)), Bar("c", 1e-6, ("3",)), Bar("d", 0.0, ("4",))]
    assert tables.bar_chart(bars, ("what", "n"), 25) == [
        *("what          n", "a long label  1  ████████", "b             2  ████", "c             3  ▏"),
        "d             4",
    ]
    # A label takes half of the line, or less, but at least 8 cells; a bar at least one.
    for width, label, bar in ((80, f"{'x' * 39}…", "█" * 31), (30, f"{'x' * 12}…", "█" * 8), (16, "xxxxxxx…", "█")):
        assert tables.bar_chart([Bar("x" * 60, 5, ("5",))], ("", "count"), width)[1] == f"{label}      5  {bar}"
    assert tables.bar_chart(bars, ("what", "n"), 14)[:2] == ["what      n", "a long…   1  █"]
    assert [len(line.partition("█")[0]) for line in tables.bar_chart(bars, ("what", "n"), 200)[1:3]] == [17, 17]
    assert tables.bar_chart(bars, ("what", "n"), 200)[1].count("█") == 50


@given(
    labels=st.lists(st.text(st.characters(categories=["L", "N", "P", "Zs"]), max_size=60), min_size=1, max_size=8),
    values=st.lists(st.floats(0, 1e12), min_size=8, max_size=8),
    width=st.integers(40, 200),
)
def test_a_chart_is_never_wider_than_its_width(labels: list[str], values: list[float], width: int) -> None:
    bars = [Bar(label, value, ("1,000", "10.0%")) for label, value in zip(labels, values, strict=False)]
    lines = tables.bar_chart(bars, ("class", "train", "share"), width)
    assert len(lines) == len(bars) + 1
    assert all(cell_len(line) <= width for line in lines)


def test_a_narrow_table_drops_the_least_important_column() -> None:
    assert tables.table(COLUMNS, ROWS, 20)[0] == "run        epochs"
    assert tables.table(COLUMNS, ROWS, 12)[0] == "run"
    for width in (1, 5, 12, 20, 39):
        assert all(len(line) <= width for line in tables.table(COLUMNS, ROWS, width))


def test_the_locale_says_whether_a_terminal_takes_utf_8() -> None:
    names = {True: ["", "LANG=en_US.UTF-8", "LC_CTYPE=C.utf8 LANG=C", "LC_ALL= LANG=C.UTF-8"]}
    names[False] = ["LC_ALL=C LANG=en_US.UTF-8", "LANG=de_DE.ISO-8859-1"]
    for expected, environments in names.items():
        for environment in environments:
            assert speaks_utf8(dict(name.split("=") for name in environment.split())) is expected, environment


def test_lines_survive_an_encoding_that_lacks_their_characters() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    say(["8×8 – done ★ … 数"], stream)
    assert raw.getvalue() == b"8x8 - done * ... \\u6570\n"


def test_errors_say_what_why_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    complain_about(ConfigError([Problem("epochs", "is required"), Problem("seed", "is odd")], "mine.toml"))
    complain_about(ConsoleError("It broke.", remedy="Mend it."))
    said = "Error: mine.toml: epochs: is required\nError: mine.toml: seed: is odd\nError: It broke.\nMend it.\n"
    assert capsys.readouterr().err == said


def test_text_is_no_wider_than_requested() -> None:
    for text, size in product(["", "plain", "健康な葉", "a健b康", "cafe\u0301 – ★", "👍 fine"], (1, 2, 5, 11)):
        for cut in (clipped(text, size), end_of(text, size)):
            assert cell_len(cut) <= size
            assert cut == text or "…" in cut


def test_a_text_is_cut_off_at_its_end_or_at_its_beginning() -> None:
    assert [clipped("a long name", 7), end_of("a long name", 7)] == ["a long…", "…g name"]
    assert [clipped("健康な葉", 6), end_of("健康な葉", 6)] == ["健康…", "…な葉"]
    assert [clipped("健康", 4), end_of("健康", 4), clipped("abc", 3), end_of("abc", 3)] == ["健康"] * 2 + ["abc"] * 2
    assert (tables.widest(["a", "健康"]), tables.widest([])) == (4, 0)
