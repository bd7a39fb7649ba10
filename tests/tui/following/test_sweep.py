"""The results of a sweep: speed-ups with their spread, tables, bars, and the conclusion."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.record import of_each, same_text
from tests.tui.made_runs import made_run, made_sweep
from tpu_console.engine.runs.events import RunFinished
from tpu_console.engine.runs.run_directory import RunDirectory
from tpu_console.tui.following import sweep as swept
from tpu_console.tui.following.sweep import Spread, SweepReader, SweepView, conclusion, winner

SPEEDS = {1: 1000.0, 2: 2000.0, 3: 3000.0, 4: 5000.0}


def seen(**options: object) -> SweepView:
    return SweepReader(made_sweep(**{"speeds": SPEEDS, **options})).read()  # type: ignore[arg-type]


def searched() -> SweepView:
    sweep = made_sweep(["batch_size=16..64"], search="tpe", trials=3, metric="val_accuracy")
    for number, (batch, stop) in enumerate([(16, ""), (48, ""), (20, "pruned by the search")]):
        ended = RunFinished("stopped" if stop else "completed", stop, {})
        sweep.note(number, made_run([{"val_accuracy": batch / 100}], batch_size=batch, end=ended, stop=stop))
    return SweepReader(sweep).read()


def texts(_folder: Path) -> str:
    over = ["batch_size=16,32"]
    views = {
        "a grid": seen(scores={2: 0.95}),
        "another baseline": seen(baseline="accelerator=sim:8,batch_size=32"),
        "repeated": seen(over=over, repeat=2, speeds={1: 1000.0, 2: 1900.0, 3: 1100.0, 4: 2300.0}),
        "within the spread": seen(over=over, repeat=2, speeds={1: 1000.0, 2: 900.0, 3: 1100.0, 4: 1300.0}),
        "some not measured": seen(speeds={1: 1000.0, 3: 3000.0}),
        "one measured": seen(speeds={1: 1000.0}),
        "nothing measured": seen(over=over, speeds={}),
        "a refused value": seen(over=["batch_size=16,32,9999"], speeds={1: 1000.0}),
        "like Markdown": seen(over=["mirror=/a*,/b*"], speeds={1: 1000.0, 2: 2000.0}),
        "a search": searched(),
    }
    written = {
        name: [*swept.as_text(view, None), "", swept.as_csv(view), "", *swept.as_markdown(view)]
        for name, view in views.items()
    }
    text = of_each({**written, "a grid, 80 columns": swept.as_text(views["a grid"], 80)})
    return re.sub(r"\d{8}-\d{6}-[\w-]+", "<run>", text)


def test_sweeps_are_written_as_recorded(tmp_path: Path) -> None:
    same_text("sweep.txt", texts(tmp_path))


def test_a_speed_up_is_as_uncertain_as_both_of_its_figures() -> None:
    one, other = swept.spread_of([300.0, 310.0, 290.0]), swept.spread_of([100.0, 120.0])
    assert one == Spread(300.0, 290.0, 310.0)
    found = swept.ratio(one, other)
    assert found is not None
    assert (round(found.mid, 2), round(found.low, 2), round(found.high, 2)) == (2.73, 2.42, 3.1)
    unsure = (Spread(1.1, 0.9, 1.2), Spread(0.9, 0.8, 1.0))
    assert [one.is_certain for one in (found, *unsure)] == [True, False, False]
    assert (swept.spread_of([]), swept.ratio(None, other), swept.ratio(one, Spread(0, 0, 0))) == (None, None, None)
    equal = [swept.speed_text(Spread(value, value, value)) for value in (2.0, 9.994, 10.0, 12.34, 99.9, 100.0)]
    assert equal == ["2.00×", "9.99×", "10.0×", "12.3×", "99.9×", "100×"]
    assert [swept.speed_text(found), swept.speed_text(None)] == ["2.73× (2.42–3.10)", ""]


def test_each_row_is_compared_with_the_baseline_that_has_its_other_values() -> None:
    rows = seen().rows()
    assert [row.speed_up.mid if row.speed_up else None for row in rows] == pytest.approx([1.0, 1.0, 3.0, 2.5])
    only = seen(baseline="accelerator=sim:8,batch_size=32").rows()
    assert [row.speed_up.mid for row in only[:4] if row.speed_up] == [0.2, 0.4, 0.6, 1.0]


def test_the_winner_has_the_best_combination_and_the_lower_loss_of_equal_ones() -> None:
    def winning(view: SweepView) -> RunDirectory | None:
        best = winner(view, view.rows())
        return None if best is None else best.overview.run

    repeated = seen(over=["batch_size=16,32"], repeat=3, scores={1: 0.99, 2: 0.8, 3: 0.5, 4: 0.9, 5: 0.5, 6: 0.7},
                    speeds=dict.fromkeys(range(1, 7), 1.0))  # fmt: skip
    assert winning(repeated) == repeated.sweep.runs()[4]  # not the lucky run of the other
    equal, unscored = made_sweep(["batch_size=16,32"]), made_sweep(["batch_size=16,32"])
    for number, loss in ((1, 0.4), (2, 0.3)):
        equal.note(number, made_run([{"val_accuracy": 0.9, "val_loss": loss}], batch_size=16 * number))
        unscored.note(number, made_run([{}], speed=number * 1000.0, label=str(number)))
    view = SweepReader(equal).read()
    assert (winning(view), "batch_size=32" in conclusion(view)) == (equal.runs()[2], True)
    assert winning(SweepReader(unscored).read()) == unscored.runs()[2]  # the fastest
    assert winning(seen(speeds={})) is None


def test_a_picture_is_an_svg() -> None:
    assert ElementTree.fromstring(swept.as_svg(seen())).tag.endswith("svg")


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
    assert searched().is_complete
