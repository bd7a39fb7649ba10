"""Scores and matrix as text, by themselves and in `tpu-console runs show`."""

import json
import re
from itertools import product
from pathlib import Path

from rich.cells import cell_len

from tests.helpers import replace
from tests.record import of_each, same_text
from tests.tui.calling import Call
from tests.tui.made_runs import even_report, made_run
from tpu_console.engine.runs.class_report import ClassReport, ClassScore
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.storage.files import write_whole
from tpu_console.tui.text.confusion import clean, headline, layout_of, matrix_lines, mistake_text, ordered, score_lines

PLANTS = ["healthy", "multiple_diseases", "rust", "scab"]


TWENTY = even_report([f"c{n}" for n in range(20)])
MANY = even_report([f"c{n}" for n in range(50)])
UNSEEN = ClassScore("none", None, None, None, 0)
CASES: dict[str, tuple[ClassReport, int | None]] = {
    "few classes": (replace(even_report(PLANTS), not_numbers=3, is_partial=True), None),
    "few columns": (even_report(PLANTS), 50),
    "as wide as with names": (even_report(PLANTS), 73),
    "narrower than with names": (even_report(PLANTS, 12_345), 72),
    "ten classes": (even_report([f"class {n}" for n in range(10)]), 44),
    "as many classes as a matrix has": (replace(TWENTY, classes=TWENTY.classes[::-1]), 120),
    "one class more": (even_report([f"c{n}" for n in range(21)]), 120),
    "many classes": (MANY, 80),
    "a class without examples": (replace(even_report(["a", "b"]), classes=(UNSEEN, MANY.classes[1])), None),
    "wide names": (even_report(["健康な葉", "rust"]), None),
}


def texts(_folder: Path) -> str:
    return of_each(
        {
            name: [
                headline(report),
                *score_lines(report, width),
                *matrix_lines(report, width),
                *map(mistake_text, report.mistakes[:3]),
            ]
            for name, (report, width) in CASES.items()
        }
    )


def test_scores_and_matrices_are_written_as_recorded(tmp_path: Path) -> None:
    same_text("confusion.txt", texts(tmp_path))


def test_no_line_is_wider_than_the_terminal() -> None:
    for count, width, examples in product((2, 20), (30, 60, 118), (7, 12_345_678)):
        report = even_report([f"a class with the number {n}" for n in range(count)], examples, wrong=examples // 7)
        lines = matrix_lines(report, width)
        assert all(cell_len(line) <= max(width, len(lines[0])) for line in lines[1:])
        assert not lines or len(lines) == count + 2
        assert all(cell_len(line) <= width for line in score_lines(report, width))
    assert layout_of(even_report([f"class {n}" for n in range(100)], 100_000), 78).width > 78, "in a pane that scrolls"
    assert layout_of(even_report(PLANTS), 198).is_numbered is False


def test_the_worst_classes_come_first_and_those_without_examples_last() -> None:
    mixed = replace(MANY, classes=(UNSEEN, *MANY.classes[1:], MANY.classes[0]))
    assert [score.name for score in ordered(mixed)] == ["c0", *(f"c{n}" for n in range(1, 50)), "none"]
    assert (clean(""), cell_len(clean("健康" * 20)) <= 24) == ("(no name)", True)


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
