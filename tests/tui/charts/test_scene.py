from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpu_console.tui.charts.curve import Axis
from tpu_console.tui.charts.pens import pen_for
from tpu_console.tui.charts.scene import Scene, Trace, View, build_scene
from tpu_console.tui.charts.series import Line

if TYPE_CHECKING:
    from tpu_console.tui.charts.raster import Marker

NOWHERE = np.array([], dtype=np.float64)
MARKERS: list[Marker] = ["braille", "block", "ascii"]


def line(ys: list[float], xs: list[float] | None = None) -> Line:
    return Line(np.array(xs if xs is not None else range(len(ys)), dtype=np.float64), np.array(ys))


def trace(
    ys: list[float],
    *,
    slot: int = 0,
    held_out: bool = False,
    marker: Marker = "braille",
    nan: float | None = None,
) -> Trace:
    pen = pen_for(slot, marker, "dark", is_validation=held_out)
    return Trace(pen, line(ys), None, NOWHERE if nan is None else np.array([nan]))


def view(
    width: int = 40,
    height: int = 12,
    *,
    axis: Axis = Axis.STEP,
    log: bool = False,
    marker: Marker = "braille",
) -> View:
    return View(width, height, axis, log, marker, 1)


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
)
def test_everything_drawn_lies_on_the_canvas(
    ys: list[float], width: int, height: int, marker: Marker, axis: Axis, log: bool, held_out: bool
) -> None:
    scene = build_scene(
        [trace(ys, held_out=held_out, marker=marker, nan=0.0)],
        view(width, height, axis=axis, log=log, marker=marker),
    )
    if scene is None:
        return
    for layer in scene.layers:
        assert len(layer.columns) == len(layer.rows) == len(layer.glyphs)
        assert all(0 <= column < scene.width for column in layer.columns)
        assert all(0 <= row < scene.height for row in layer.rows)
    assert all(0 <= column < scene.width for column, _ in scene.x_ticks)
    assert all(0 <= row < scene.height for row, _ in scene.y_ticks)


@pytest.mark.parametrize("last", [9.0, 499.0, 20_000.0, 1_234_567.0])
@pytest.mark.parametrize("axis", list(Axis))
@pytest.mark.parametrize("width", [38, 60, 100, 200])
def test_labels_along_the_bottom_do_not_touch(width: int, axis: Axis, last: float) -> None:
    pen = pen_for(0, "braille", "dark", is_validation=False)
    wide = Trace(pen, line([1.0, 2.0], [0.0, last]), None, NOWHERE)
    scene = built(wide, look=view(width, axis=axis))
    assert len(scene.x_ticks) >= 2
    for (left, left_label), (right, right_label) in itertools.pairwise(scene.x_ticks):
        # The last label may be pushed left by half its width.
        assert right - len(right_label) > left + len(left_label) // 2


def test_a_curve_that_does_not_move_runs_through_the_middle() -> None:
    scene = built(trace([0.7] * 20))
    assert set(scene.layers[0].rows) == {scene.height // 2}
    assert len({label for _, label in scene.y_ticks}) == len(scene.y_ticks) >= 2


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-9, 1e12])
def test_a_single_sample_is_visible(value: float) -> None:
    scene = built(trace([value]))
    assert scene.layers[0].glyphs == ["•"]


def test_nan_marks_have_the_bottom_row_to_themselves() -> None:
    scene = built(trace([3.0, 2.0, 1.0], nan=1.0))
    curve, marks = scene.layers
    assert (marks.glyphs, marks.rows, marks.columns) == (["!"], [0], [round((scene.width - 1) / 2)])
    assert min(curve.rows) == 1


def test_held_out_samples_are_single_glyphs_over_the_line() -> None:
    scene = built(trace([1.0, 2.0, 3.0], held_out=True), trace([3.0, 2.0, 1.0]))
    assert [set(layer.glyphs) == {"●"} for layer in scene.layers] == [False, True]
    assert len(scene.layers[1].glyphs) == 3


def test_a_second_line_carries_beads_to_its_end() -> None:
    scene = built(trace([1.0, 2.0]), trace([2.0, 3.0], slot=1))
    plain, beaded = scene.layers
    assert "◆" not in plain.glyphs
    assert [c for c, glyph in zip(beaded.columns, beaded.glyphs, strict=True) if glyph == "◆"][-1] == (scene.width - 1)


def test_raw_samples_stand_dim_behind_every_smoothed_line() -> None:
    pen = pen_for(0, "ascii", "dark", is_validation=False)
    smoothed = Trace(pen, line([2.0, 2.0]), line([1.0, 3.0]), NOWHERE)
    scene = built(trace([1.0, 2.0], marker="ascii"), smoothed, look=view(marker="ascii"))
    assert [layer.is_dim for layer in scene.layers] == [True, False, False]
    assert set(scene.layers[0].glyphs) == {"."}


def test_a_log_axis_leaves_out_what_has_no_logarithm() -> None:
    scene = built(trace([-1.0, 0.0, 10.0, 100.0]), look=view(log=True))
    assert {"10", "100"} <= {label for _, label in scene.y_ticks}
    assert build_scene([trace([-1.0, 0.0])], view(log=True)) is None
