from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tpu_console.tui.charts.curve import Axis
from tpu_console.tui.charts.edges import Stretch
from tpu_console.tui.charts.marks import MarkKind
from tpu_console.tui.charts.pens import pen_for
from tpu_console.tui.charts.scene import Scene, Trace, View, build_scene
from tpu_console.tui.charts.series import Line

if TYPE_CHECKING:
    from tpu_console.tui.charts.raster import Marker

BRAILLE = {chr(code) for code in range(0x2801, 0x2900)}
MARKERS: list[Marker] = ["braille", "block", "ascii"]


def line(ys: list[float], xs: list[float] | None = None) -> Line:
    return Line(np.array(xs if xs is not None else range(len(ys)), dtype=np.float64), np.array(ys))


def trace(
    ys: list[float],
    *,
    slot: int = 0,
    held_out: bool = False,
    marker: Marker = "braille",
) -> Trace:
    pen = pen_for(slot, marker, "dark", is_validation=held_out)
    return Trace(pen, line(ys), sampled=None if held_out else np.array(ys))


def view(
    width: int = 40,
    height: int = 12,
    *,
    axis: Axis = Axis.STEP,
    log: bool = False,
    marker: Marker = "braille",
    ends: tuple[float, float] = (0.0, 19.0),
    fixed: tuple[float, float] | None = None,
) -> View:
    return View(width, height, axis, log, marker, ends, fixed=fixed)


def built(*args: Trace, look: View | None = None) -> Scene:
    scene = build_scene(args, look or view())
    assert scene is not None
    return scene


@given(
    ys=st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=50),
    width=st.integers(1, 120),
    height=st.integers(1, 40),
    marker=st.sampled_from(MARKERS),
    axis=st.sampled_from(list(Axis)),
    log=st.booleans(),
    held_out=st.booleans(),
    ends=st.tuples(st.floats(-5, 30), st.floats(-5, 30)).map(sorted).map(tuple),
    begin=st.floats(-10, 40),
)
def test_everything_drawn_lies_on_the_canvas(
    ys: list[float],
    width: int,
    height: int,
    marker: Marker,
    axis: Axis,
    log: bool,
    held_out: bool,
    ends: tuple[float, float],
    begin: float,
) -> None:
    scene = build_scene(
        [trace(ys, held_out=held_out, marker=marker)],
        view(width, height, axis=axis, log=log, marker=marker, ends=ends),
        [Stretch(kind, begin, begin + 3.0, "label") for kind in MarkKind],
    )
    if scene is None:
        return
    for layer in scene.layers:
        assert len(layer.columns) == len(layer.rows) == len(layer.glyphs)
        assert all(0 <= column < scene.width for column in layer.columns)
        assert all(0 <= row < scene.height for row in layer.rows)
    assert all(0 <= column < scene.width for column, _ in scene.x_ticks)
    assert all(0 <= row < scene.height for row, _ in scene.y_ticks)
    assert all(0 <= column < scene.width for column in scene.marks)
    assert all(len(mark) == 1 for mark in scene.marks.values())


@pytest.mark.parametrize("last", [9.0, 499.0, 20_000.0, 1_234_567.0])
@pytest.mark.parametrize("axis", list(Axis))
@pytest.mark.parametrize("width", [38, 60, 100, 200])
def test_labels_along_the_bottom_do_not_touch(width: int, axis: Axis, last: float) -> None:
    pen = pen_for(0, "braille", "dark", is_validation=False)
    wide = Trace(pen, line([1.0, 2.0], [0.0, last]))
    scene = built(wide, look=view(width, axis=axis, ends=(0.0, last)))
    assert len(scene.x_ticks) >= 2
    for (left, left_label), (right, right_label) in itertools.pairwise(scene.x_ticks):
        # The last label may be pushed left by half its width.
        assert right - len(right_label) > left + len(left_label) // 2


def test_a_curve_that_does_not_move_runs_through_the_middle() -> None:
    scene = built(trace([0.7] * 20))
    assert set(scene.layers[1].rows) == {scene.height // 2}
    assert len({label for _, label in scene.y_ticks}) == len(scene.y_ticks) >= 2


def test_a_constant_rate_is_labelled_with_round_numbers() -> None:
    rate = float(np.float32(0.001))
    assert [label for _, label in built(trace([rate] * 20), look=view(40, 6)).y_ticks] == ["0.0009", "0.0010", "0.0011"]


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-9, 1e12])
def test_a_single_sample_is_visible(value: float) -> None:
    scene = built(trace([value]))
    assert scene.layers[1].glyphs == ["•"]


def rows_of(scene: Scene) -> list[str]:
    """The canvas as text, from the top down."""
    cells = [[" "] * scene.width for _ in range(scene.height)]
    for layer in scene.layers:
        for column, row, glyph in zip(layer.columns, layer.rows, layer.glyphs, strict=True):
            cells[scene.height - 1 - row][column] = glyph
    return ["".join(row) for row in cells]


def test_validation_is_a_line_with_points_while_they_are_far_apart() -> None:
    few = built(trace([1.0, 2.0, 3.0], held_out=True), look=view(ends=(0, 2)))
    assert sum(row.count("●") for row in rows_of(few)) == 3
    assert BRAILLE & set("".join(rows_of(few)))
    many = built(trace([1.0, 2.0, 3.0] * 7, held_out=True), look=view(ends=(0, 20)))
    assert "●" not in "".join(rows_of(many))
    assert BRAILLE & set("".join(rows_of(many)))


@pytest.mark.parametrize("marker", MARKERS)
def test_lines_in_the_same_cells_take_turns(marker: Marker) -> None:
    both = [trace([1.0] * 20, marker=marker), trace([1.0] * 20, held_out=True, marker=marker)]
    scene = built(*both, look=view(marker=marker))
    _, train, validation = scene.layers[:3]
    assert len(train.columns) >= len(validation.columns) > 8
    assert not {*zip(train.columns, train.rows, strict=True)} & {*zip(validation.columns, validation.rows, strict=True)}


def test_the_best_sample_is_a_star() -> None:
    best = replace(trace([3.0, 1.0, 2.0], held_out=True), best=line([1.0], [1.0]))
    scene = built(best, look=view(ends=(0, 2)))
    assert scene.layers[-1].glyphs == ["★"]
    assert scene.layers[-1].columns == [scene.width // 2]


@given(
    ys=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50),
    width=st.integers(30, 120),
    height=st.integers(6, 40),
)
def test_there_are_three_labels_at_any_size(ys: list[float], width: int, height: int) -> None:
    assume(max(ys) - min(ys) > 1e-4 * max(abs(y) for y in ys))
    scene = build_scene([trace(ys)], view(width, height))
    assume(scene is not None)
    assert scene is not None
    assert len(scene.y_ticks) >= 3
    assert len({row for row, _ in scene.y_ticks}) == len(scene.y_ticks)
    assert sum(layer.is_dim and set(layer.glyphs) == {"·"} for layer in scene.layers) == 1


def test_no_label_hides_another_where_rows_are_few() -> None:
    for top in (1.0, 1.2, 1.9, 2.6, 4.7, 9.1):
        ticks = built(trace([0.0, top]), look=view(34, 6)).y_ticks
        rows, values = [row for row, _ in ticks], [float(label) for _, label in ticks]
        steps = {round(b - a, 6) for a, b in itertools.pairwise(values)}
        assert len(values) >= 3, values
        assert len(set(rows)) == len(rows)
        assert len(steps) == 1, values


def test_a_steep_start_of_few_samples_is_one_spike_with_its_value() -> None:
    ys = [1.9, 0.7, *np.linspace(0.35, 0.03, 14)]
    scene = built(trace(ys), look=view(60, 12, ends=(0, 15)))
    assert scene.spikes == {"▲": 1}
    assert any("▲ 1.90" in row for row in rows_of(scene))


def test_in_ascii_a_spike_is_no_warning() -> None:
    scene = built(trace([60.0, *np.linspace(2, 1, 50)], marker="ascii"), look=view(60, 20, marker="ascii"))
    assert scene.spikes == {"^": 1}


def test_spikes_are_marked_in_rows_of_their_own_and_counted() -> None:
    ys = [60.0, *np.linspace(2, 1, 50), -30.0, *np.linspace(1, 0.5, 50)]
    scene = built(trace(ys), look=view(60, 20, ends=(0, 101)))
    rows = rows_of(scene)
    assert scene.spikes == {"▲": 1, "▼": 1}
    assert rows[0].startswith("▲ 60.0")
    assert "▼ -30.0" in rows[-1]
    assert scene.y_range[1] < 3


def test_a_spike_inside_the_marked_row_is_given_its_value_where_there_is_room() -> None:
    ys = [1.0, 2.0] * 50
    ys[-1] = 60.0
    scene = built(trace(ys), look=view(60, 20, ends=(0, 99)))
    assert rows_of(scene)[0].endswith("60.0 ▲")


def test_a_fixed_range_marks_what_lies_outside() -> None:
    scene = built(trace([1.0, 2.0, 30.0]), look=view(ends=(0, 2), fixed=(0.0, 3.0)))
    assert scene.y_range == (0.0, 3.0)
    assert scene.spikes == {"▲": 1}


def test_a_second_line_carries_beads_to_its_end() -> None:
    scene = built(trace([1.0, 2.0]), trace([2.0, 3.0], slot=1), look=view(ends=(0, 1)))
    _, plain, beaded = scene.layers
    assert "■" not in plain.glyphs
    assert [c for c, glyph in zip(beaded.columns, beaded.glyphs, strict=True) if glyph == "■"][-1] == (scene.width - 1)


def test_raw_samples_stand_dim_behind_every_smoothed_line() -> None:
    pen = pen_for(0, "ascii", "dark", is_validation=False)
    smoothed = Trace(pen, line([2.0, 2.0]), line([1.0, 3.0]), np.array([1.0, 3.0]))
    scene = built(trace([1.0, 2.0], marker="ascii"), smoothed, look=view(marker="ascii"))
    assert [layer.is_dim for layer in scene.layers] == [True, True, False, False]
    assert set(scene.layers[1].glyphs) == {"."}


def test_moments_are_marked_with_their_label_and_short_stretches_not_at_all() -> None:
    stretches = [
        Stretch(MarkKind.VALIDATION, 3.0, 3.1),
        Stretch(MarkKind.COMPILE, 5.0, 8.0),
        Stretch(MarkKind.ALERT, 12.2, 12.2, "nan"),
    ]
    scene = build_scene([trace([1.0, 2.0])], view(80), stretches)
    assert scene is not None
    marks = "".join(scene.marks[column] for column in sorted(scene.marks))
    assert marks.count("═") >= 8
    assert marks.replace("═", "") in {"!", "!nan"}


def test_no_mark_stands_inside_a_label() -> None:
    def axis_with(*stretches: Stretch) -> str:
        scene = build_scene([trace([1.0, 2.0])], view(80), stretches)
        assert scene is not None
        return "".join(scene.marks.get(column, "─") for column in range(scene.width)).strip("─")

    resumed = Stretch(MarkKind.RESUME, 5.0, 5.0, "resumed")
    assert axis_with(resumed) == "►resumed"
    # A mark inside the label: the label is dropped as a whole, and the alert keeps its own.
    assert axis_with(resumed, Stretch(MarkKind.ALERT, 6.0, 6.0, "spike")).strip("►─") == "!spike"
    # Two marks in one cell: the label belongs to the one that is seen.
    assert axis_with(resumed, Stretch(MarkKind.ALERT, 5.0, 5.0, "spike")) == "!spike"


def test_a_log_axis_leaves_out_what_has_no_logarithm() -> None:
    scene = built(trace([-1.0, 0.0, 10.0, 100.0]), look=view(log=True))
    assert {"10", "100"} <= {label for _, label in scene.y_ticks}
    assert build_scene([trace([-1.0, 0.0])], view(log=True)) is None


def test_the_first_spike_has_its_value_even_beside_a_steep_curve() -> None:
    ys = [60.0, *np.linspace(2.2, 1, 30), *np.linspace(1, 0.5, 200)]
    scene = built(trace(ys), look=view(60, 20, ends=(0, 230)))
    assert rows_of(scene)[0].startswith("▲ 60.0")
