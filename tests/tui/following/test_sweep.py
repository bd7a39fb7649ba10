"""The results of a sweep: speed-ups with their spread, tables, bars, and the conclusion."""

from __future__ import annotations

import csv
import re
from xml.etree import ElementTree

import pytest

from tests.tui.made_runs import made_run
from tests.tui.made_sweeps import made_sweep
from tpu_console.engine.runs.events import RunFinished
from tpu_console.tui.following import sweep as swept
from tpu_console.tui.following.sweep import Spread, SweepReader, SweepView, conclusion, winner

SPEEDS = {1: 1000.0, 2: 2000.0, 3: 3000.0, 4: 5000.0}


def seen(**options: object) -> SweepView:
    return SweepReader(made_sweep(**{"speeds": SPEEDS, **options})).read()  # type: ignore[arg-type]


def test_a_speed_up_is_as_uncertain_as_both_of_its_figures() -> None:
    one, other = swept.spread_of([300.0, 310.0, 290.0]), swept.spread_of([100.0, 120.0])
    assert one == Spread(300.0, 290.0, 310.0)
    assert other is not None
    found = swept.ratio(one, other)
    assert found is not None
    assert (round(found.mid, 2), round(found.low, 2), round(found.high, 2)) == (2.73, 2.42, 3.1)
    assert found.is_certain
    assert not Spread(1.1, 0.9, 1.2).is_certain
    assert (swept.spread_of([]), swept.ratio(None, other), swept.ratio(one, Spread(0, 0, 0))) == (None, None, None)
    assert (swept.speed_text(found), swept.speed_text(Spread(2, 2, 2)), swept.speed_text(None)) == (
        "2.73× (2.42–3.10)",
        "2.00×",
        "",
    )


def test_each_row_is_compared_with_the_baseline_that_has_its_other_values() -> None:
    rows = seen().rows()
    assert [row.speed_up.mid if row.speed_up else None for row in rows] == pytest.approx([1.0, 1.0, 3.0, 2.5])
    only = seen(baseline="accelerator=sim:8,batch_size=32").rows()
    assert [row.speed_up.mid for row in only[:4] if row.speed_up] == [0.2, 0.4, 0.6, 1.0]


def test_repeated_runs_are_one_row_with_their_spread() -> None:
    view = seen(over=["batch_size=16,32"], repeat=2, speeds={1: 1000.0, 2: 1900.0, 3: 1100.0, 4: 2300.0})
    rows = view.rows()
    assert [len(row.runs) for row in rows] == [2, 2]
    assert rows[1].speed_up == Spread(2.0, 1900 / 1100, 2.3)
    assert "1,050 ±5%" in "\n".join(swept.as_text(view, None))
    assert "2.00× (1.73–2.30)" in conclusion(view)
    unsure = seen(over=["batch_size=16,32"], repeat=2, speeds={1: 1000.0, 2: 900.0, 3: 1100.0, 4: 1300.0})
    assert "1.05× (0.82–1.30)" in conclusion(unsure)
    assert "within the spread" in conclusion(unsure)
    assert "within" not in conclusion(view)


def test_the_conclusion_is_one_sentence() -> None:
    best, fastest = conclusion(seen(scores={2: 0.95})).split("; ")
    assert re.findall(r"0\.95\d*|\w+=[\w:-]+", best) == ["0.9500", "accelerator=cpu", "batch_size=32"]
    for text in ("accelerator=sim:8 batch_size=32", "5,000 examples/s", "2.50×"):
        assert text in fastest
    assert conclusion(seen(over=["batch_size=16,32"], speeds={})) == ""


def test_a_value_that_looks_like_markdown_is_shown_as_it_is() -> None:
    view = seen(over=["mirror=/a*,/b*"], speeds={1: 1000.0, 2: 2000.0})
    assert "mirror=/b*" in conclusion(view)
    assert "*" not in "\n".join(swept.as_markdown(view)).replace("\\*", "")


def test_the_best_run_is_named_with_the_command_that_writes_its_notebook() -> None:
    view = seen(scores={2: 0.95})
    line = f"Keep the best run: tpu-console export {view.sweep.runs()[2].run_id} --notebook"
    for text in ("\n".join(swept.as_text(view, None)), "\n".join(swept.as_markdown(view))):
        assert line in text
    repeated = seen(over=["batch_size=16,32"], repeat=3, scores={1: 0.99, 2: 0.8, 3: 0.5, 4: 0.9, 5: 0.5, 6: 0.7},
                    speeds=dict.fromkeys(range(1, 7), 1.0))  # fmt: skip
    assert (best := winner(repeated, repeated.rows())) is not None
    assert best.overview.run == repeated.sweep.runs()[4]  # of the better combination, not the lucky run of the other
    equal = made_sweep(["batch_size=16,32"])
    for number, loss in ((1, 0.4), (2, 0.3)):
        equal.note(number, made_run([{"val_accuracy": 0.9, "val_loss": loss}], batch_size=16 * number))
    view = SweepReader(equal).read()
    assert (first := winner(view, view.rows())) is not None
    assert first.overview.run == equal.runs()[2]  # the loss decides
    assert "batch_size=32" in conclusion(view)
    unscored = made_sweep(["batch_size=16,32"])
    for number, speed in ((1, 1000.0), (2, 2000.0)):
        unscored.note(number, made_run([{}], speed=speed, label=str(number)))
    view = SweepReader(unscored).read()
    assert (fastest := winner(view, view.rows())) is not None
    assert fastest.overview.run == unscored.runs()[2]
    view = seen(speeds={})
    assert winner(view, view.rows()) is None


def test_what_was_not_measured_is_empty_in_every_form() -> None:
    view = seen(speeds={1: 1000.0, 3: 3000.0})
    text = "\n".join(swept.as_text(view, None))
    assert "waiting" in text
    assert "█" in text
    assert "█" not in "\n".join(swept.as_text(seen(speeds={1: 1000.0}), None))  # one bar shows nothing
    rows = list(csv.DictReader(swept.as_csv(view).splitlines()))
    assert rows[0]["speed_up"] == "1.0"
    assert (rows[1]["examples_per_s"], rows[1]["state"]) == ("", "waiting")
    assert swept.as_markdown(view)[1].startswith("| --- | --- | --- | ---: |")
    picture = ElementTree.fromstring(swept.as_svg(view))
    assert picture.tag.endswith("svg")


def test_no_line_is_wider_than_the_terminal() -> None:
    table = [line for line in swept.as_text(seen(), 80) if "The best" not in line]
    assert max(len(line) for line in table) <= 80


def test_a_sweep_knows_what_is_left() -> None:
    view = seen(over=["batch_size=16,32,9999"], speeds={1: 1000.0})
    assert view.counts() == {"finished": 1, "refused": 1, "waiting": 1}
    assert "1,437" in view.cells[2].refused
    assert (view.is_complete, view.state) == (False, "stopped")
    lock = view.sweep.lock()
    assert SweepReader(view.sweep).read().state == "running"
    view.sweep.request("stop")
    assert SweepReader(view.sweep).read().state == "stopping"
    assert lock
    assert seen(over=["batch_size=16,9999"], speeds={1: 1000.0}).is_complete


def test_a_search_lists_its_trials_and_compares_nothing() -> None:
    sweep = made_sweep(["batch_size=16..64"], search="tpe", trials=3, metric="val_accuracy")
    for number, (batch, stop) in enumerate([(16, ""), (48, ""), (20, "pruned by the search")]):
        ended = RunFinished("stopped" if stop else "completed", stop, {})
        sweep.note(number, made_run([{"val_accuracy": batch / 100}], batch_size=batch, end=ended, stop=stop))
    view = SweepReader(sweep).read()
    assert [cell.cell.values for cell in view.cells] == [(16,), (48,), (20,)]
    assert view.is_complete
    for text in ("0.4800, with batch_size=48", "1 of 3 "):
        assert text in conclusion(view)
    assert "speed-up" not in "\n".join(swept.as_text(view, None))
