"""Scores and matrix as text, by themselves and in `tpu-console runs show`."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import TYPE_CHECKING

from rich.cells import cell_len

from tests.helpers import replace
from tests.tui.class_reports import even_report
from tests.tui.made_runs import made_run
from tpu_console.engine.runs.class_report import ClassScore
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.storage.files import write_whole
from tpu_console.tui.text.confusion import clean, headline, layout_of, matrix_lines, mistake_text, ordered, score_lines

if TYPE_CHECKING:
    from tests.tui.calling import Call


PLANTS = ["healthy", "multiple_diseases", "rust", "scab"]


def test_a_small_matrix_has_the_names_of_the_classes() -> None:
    assert matrix_lines(even_report(PLANTS), None)[1:] == [
        "                        healthy  multiple_di…          rust          scab",
        "healthy                      50            50             ·             ·",
        "multiple_diseases             ·            90            10             ·",
        "rust                          ·             ·            90            10",
        "scab                         10             ·             ·            90",
    ]


def test_without_room_the_columns_have_numbers_and_no_line_is_wider_than_the_terminal() -> None:
    lines = matrix_lines(even_report(PLANTS), 50)
    assert lines[1].split() == ["0", "1", "2", "3"]
    assert lines[3].split() == ["1", "multiple_dise…", "·", "90", "10", "·"]
    for count, width, examples in product((2, 20), (30, 60, 118), (7, 12_345_678)):
        report = even_report([f"a class with the number {n}" for n in range(count)], examples, wrong=examples // 7)
        lines = matrix_lines(report, width)
        assert all(cell_len(line) <= max(width, len(lines[0])) for line in lines[1:])
        assert not lines or len(lines) == count + 2
        assert all(cell_len(line) <= width for line in score_lines(report, width))
    assert layout_of(even_report([f"class {n}" for n in range(100)], 100_000), 78).width > 78, "in a pane that scrolls"
    assert layout_of(even_report(PLANTS), 198).is_numbered is False


def test_of_many_classes_the_worst_are_shown_first() -> None:
    report = even_report([f"c{n}" for n in range(50)])
    assert ordered(report)[0].name == "c0"
    lines = score_lines(report, 80)
    assert len(lines) == 22
    assert lines[1].split() == ["c0", "0.833", "0.500", "0.500", "100"]
    assert "30 classes" in lines[-1]
    assert matrix_lines(report, 80) == []


def test_a_class_without_examples_is_no_bad_one() -> None:
    report = even_report([f"c{n}" for n in range(50)])
    report = replace(report, classes=(ClassScore("none", None, None, None, 0), *report.classes[1:]))
    assert ordered(report)[-1].name == "none"
    few = replace(even_report(["a", "b"]), classes=(ClassScore("a", None, None, None, 0), report.classes[1]))
    assert score_lines(few, None)[1].split() == ["a", "–", "–", "–", "0"]


def test_wide_names_keep_the_columns_in_line() -> None:
    assert clean("") == "(no name)"
    assert cell_len(clean("健康" * 20)) <= 24
    layout = layout_of(even_report(["健康な葉", "rust"]), None)
    lines = [layout.head(), *(layout.row_name(row) + "".join(text for text, _ in layout.cells(row)) for row in (0, 1))]
    assert {cell_len(line) for line in lines} == {layout.width}


def test_sentences() -> None:
    report = replace(even_report(PLANTS), not_numbers=3, is_partial=True)
    assert re.findall(r"\d[\d.]*", headline(report)) == ["400", "4", "0.8000", "0.8000", "3"]
    assert mistake_text(report.mistakes[0]).startswith("healthy → multiple_diseases (50×, 50%")
    assert "(1×, " in mistake_text(replace(report.mistakes[0], count=1))


def test_show_has_scores_matrix_and_mistakes_of_every_output_or_says_that_they_are_damaged(call: Call) -> None:
    side = replace(even_report(["left", "right"]), output="side")
    report = replace(even_report(PLANTS), output="kind", others=(side,))
    run = made_run(end=RunFinished("completed", "", {"classes": report.as_dict(is_brief=True)}))
    write_whole(run.report, json.dumps(report.as_dict()))
    out = call.out("show")
    for text in ("kind: 400 validation examples, 4 classes", "side: 200 ", "class              precision", "(50×, "):
        assert text in out
    values = call.json("show")["classes"]
    assert (values["matrix"][0], values["classes"][3]["name"]) == ([50, 50, 0, 0], "scab")
    run.report.write_text("{")
    assert re.search("report.json .* damaged", call.out("show"))
    assert call.json("show")["classes"] is None
