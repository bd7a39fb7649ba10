"""Scenes, the dots and glyphs of which they consist, and the pens that draw them."""

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.style import Style
from textual.color import Color

from tests.helpers import replace
from tpu_console.tui.charts.curve import Axis, Extent, Line, Place
from tpu_console.tui.charts.frame import Mark, MarkKind, framed
from tpu_console.tui.charts.scale import y_scale
from tpu_console.tui.charts.scene import (
    ALARM,
    SLOTS,
    DrawnCurve,
    Marker,
    Scene,
    Tone,
    View,
    build_scene,
    cut_to,
    draw_line,
    glyphs_of,
    pen_for,
)

BRAILLE = {chr(code) for code in range(0x2801, 0x2900)}
PEN = pen_for(0, "braille", "dark", is_validation=False)
MARKERS: list[Marker] = ["braille", "block", "ascii"]


def line(ys: list[float], xs: list[float] | None = None) -> Line:
    return Line(np.array(xs if xs is not None else range(len(ys)), dtype=np.float64), np.array(ys))


def trace(ys: list[float], *, held_out: bool = False, marker: Marker = "braille") -> DrawnCurve:
    pen = pen_for(0, marker, "dark", is_validation=held_out)
    return DrawnCurve(pen, line(ys), is_whole=held_out)


def view(width: int = 40, height: int = 12, **changes: Any) -> View:
    return replace(View(width, height, Axis.STEP, False, "braille", (0.0, 19.0)), **changes)


def built(*args: DrawnCurve, look: View | None = None) -> Scene:
    scene = build_scene(args, look or view())
    assert scene is not None
    return scene


VIEWS = st.builds(
    view,
    st.integers(1, 120),
    st.integers(1, 40),
    axis=st.sampled_from(Axis),
    is_log=st.booleans(),
    marker=st.sampled_from(MARKERS),
    ends=st.tuples(st.floats(-5, 30), st.floats(-5, 30)).map(sorted).map(tuple),
)


@given(
    ys=st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=50),
    look=VIEWS,
    held_out=st.booleans(),
    begin=st.floats(-10, 40),
)
def test_everything_drawn_lies_on_the_canvas(ys: list[float], look: View, held_out: bool, begin: float) -> None:
    scene = build_scene([trace(ys, held_out=held_out, marker=look.marker)], look)
    if scene is None:
        return
    for layer in scene.layers:
        assert all(0 <= column < scene.x.cells and 0 <= row < scene.y.cells for column, row in layer.cells)
    assert all(0 <= tick.cell < scene.x.cells for tick in scene.x_ticks)
    assert all(0 <= tick.cell < scene.y.cells for tick in scene.y_ticks)
    rows = framed(scene, [Mark(kind, Place(begin, begin, begin), "label") for kind in MarkKind], Style(), Style())
    assert len(rows) == look.height
    assert all(row.cell_length == look.width for row in rows[:-1])
    assert rows[-1].cell_length <= look.width


@pytest.mark.parametrize("values", [[0.7] * 20, [0.5] * 300, [0.5]])
def test_a_curve_that_does_not_move_runs_through_the_middle_of_round_numbers(values: list[float]) -> None:
    scene = built(trace(values), look=view(ends=(0, len(values))))
    (row,) = {row for _, row in scene.layers[1].cells}
    assert abs(row - scene.y.cells / 2) <= 1
    assert len({tick.label for tick in scene.y_ticks}) == len(scene.y_ticks) >= 2
    for value, labels in ((float(np.float32(0.001)), ["0.0009", "0.0010", "0.0011"]), (0.0, ["-1", "0", "1"])):
        assert [tick.label for tick in built(trace([value] * 20), look=view(40, 8)).y_ticks] == labels


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-9, 1e12])
def test_a_single_sample_is_visible(value: float) -> None:
    scene = built(trace([value]))
    assert [*scene.layers[1].cells.values()] == ["•"]


def rows_of(scene: Scene) -> list[str]:
    """The canvas as text, from the top down."""
    cells = [[" "] * scene.x.cells for _ in range(scene.y.cells)]
    for layer in scene.layers:
        for (column, row), glyph in layer.cells.items():
            cells[scene.y.cells - 1 - row][column] = glyph
    return ["".join(row) for row in cells]


@pytest.mark.parametrize(("values", "points"), [([1.0, 2.0, 3.0], 3), ([1.0, 2.0, 3.0] * 7, 0)])
def test_validation_is_a_line_with_points_while_they_are_far_apart(values: list[float], points: int) -> None:
    drawn = "".join(rows_of(built(trace(values, held_out=True), look=view(ends=(0, len(values) - 1)))))
    assert drawn.count("●") == points
    assert BRAILLE & set(drawn)


@pytest.mark.parametrize("marker", MARKERS)
def test_lines_in_the_same_cells_take_turns(marker: Marker) -> None:
    both = [trace([1.0] * 20, marker=marker), trace([1.0] * 20, held_out=True, marker=marker)]
    scene = built(*both, look=view(marker=marker))
    _, train, validation = scene.layers[:3]
    assert len(train.cells) >= len(validation.cells) > 8
    assert not train.cells.keys() & validation.cells.keys()


@pytest.mark.parametrize(
    ("ys", "y_ends", "mark"),
    [
        ([1.9, 0.7, *np.linspace(0.35, 0.03, 14)], None, "▲ 1.90"),  # a steep start of few samples is one spike
        ([60.0, *np.linspace(2.2, 1, 30), *np.linspace(1, 0.5, 200)], None, "▲ 60.0"),
        ([1.0, 2.0] * 49 + [60.0, 2.0], None, "60.0 ▲"),
        ([1.0, 2.0, 30.0], (0.0, 3.0), "30.0 ▲"),  # outside of a zoomed range
    ],
)
def test_a_spike_has_its_value_beside_it_wherever_it_is(ys: list[float], y_ends: Extent | None, mark: str) -> None:
    scene = built(trace(ys), look=view(60, 12, ends=(0, len(ys) - 1), y_ends=y_ends))
    assert mark in rows_of(scene)[0]
    assert y_ends is None or scene.y == y_scale(*y_ends, 10)


def test_without_colors_validation_carries_beads_to_its_end() -> None:
    pen = pen_for(0, "braille", "dark", is_validation=True, has_color=False)
    scene = built(
        trace([1.0, 2.0]), DrawnCurve(replace(pen, has_points=False), line([2.0, 3.0])), look=view(ends=(0, 1))
    )
    _, plain, beaded = scene.layers
    assert "●" not in plain.cells.values()
    assert beaded.cells[max(beaded.cells)] == "●"


def test_raw_samples_stand_dim_behind_every_smoothed_line() -> None:
    pen = pen_for(0, "ascii", "dark", is_validation=False)
    smoothed = DrawnCurve(pen, line([1.0, 3.0]), line([2.0, 2.0]))
    scene = built(trace([1.0, 2.0], marker="ascii"), smoothed, look=view(marker="ascii"))
    assert [layer.color for layer in scene.layers] == [None, pen.faint, pen.color, pen.color]
    assert set(scene.layers[1].cells.values()) == {"."}


def test_a_log_axis_leaves_out_what_has_no_logarithm() -> None:
    scene = built(trace([-1.0, 0.0, 10.0, 100.0]), look=view(is_log=True))
    assert {"10", "100"} <= {tick.label for tick in scene.y_ticks}
    assert build_scene([trace([-1.0, 0.0])], view(is_log=True)) is None


def test_a_zoomed_log_axis_of_less_than_half_a_decade_shows_the_same_range_on_a_linear_one() -> None:
    scene = built(trace([1.0, 3.0]), look=view(40, 6, is_log=True, y_ends=(0.35, 0.37)))
    assert scene.y == y_scale(10.0**0.35, 10.0**0.37, 4)


@given(
    seed=st.integers(0, 999),
    count=st.integers(300, 5000),
    marker=st.sampled_from(MARKERS),
    held_out=st.booleans(),
    log=st.booleans(),
)
def test_more_samples_than_dots_are_a_band_from_the_lowest_to_the_highest_with_their_mean(
    seed: int, count: int, marker: Marker, held_out: bool, log: bool
) -> None:
    ys = np.random.default_rng(seed).uniform(0.5, 9.0, count)
    pen = pen_for(0, marker, "dark", is_validation=held_out)
    scene = built(DrawnCurve(pen, line(ys.tolist())), look=view(60, 20, marker=marker, is_log=log, ends=(0, count - 1)))
    columns = scene.x.dots(np.arange(count, dtype=np.float64), 1)
    band = set()
    for column in set(columns.tolist()):
        here = ys[columns == column]
        values = np.array([here.min(), here.mean(), here.max()])
        low, middle, high = scene.y.dots(np.log10(values) if log else values, 1).tolist()
        band |= {(column, row) for row in range(low, high + 1)}
        assert pen.is_dashed or (column, middle) in scene.layers[2].cells
    assert scene.layers[1].cells.keys() == band


def test_as_many_samples_as_dots_are_a_line() -> None:
    xs = [float(x) for x in range(70)]
    scene = built(DrawnCurve(PEN, line(xs, xs)), look=view(40, 12, ends=(0, 69)))
    assert [layer.color for layer in scene.layers] == [None, PEN.color]


@pytest.mark.parametrize(("ends", "expected"), [((0.5, 3.25), [0.5, 1, 2, 3, 3.25]), ((0.25, 0.5), [0.25, 0.5])])
def test_a_window_cuts_the_line_where_it_leaves(ends: tuple[float, float], expected: list[float]) -> None:
    cut = cut_to(line([0.0, 10.0, 20.0, 30.0, 40.0]).part(ends, around=1), *ends)
    assert cut.x.tolist() == expected
    np.testing.assert_allclose(cut.y, 10 * cut.x)


@given(runs=st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=60), min_size=1, max_size=6))
@example([[0.65625, 0.485]])  # on the edge of the range
def test_letters_never_cover_a_curve(runs: list[list[float]]) -> None:
    letters = [replace(PEN, glyph=letter, has_letters=True) for letter in "ABCDEF"]
    traces = [DrawnCurve(pen, line(ys)) for pen, ys in zip(letters, runs, strict=False)]
    bare = [replace(trace, pen=replace(trace.pen, has_letters=False)) for trace in traces]
    lettered, plain = (built(*some, look=view(60, 20, ends=(0, 60))).layers for some in (traces, bare))
    assert lettered[: len(plain)] == plain
    taken = {cell for layer in plain[1:] for cell in layer.cells}
    found = {cell for layer in lettered[len(plain) :] for cell in layer.cells}
    assert not taken & found
    # Between two parts of a curve, a letter would look as if it covered the part that is missing there.
    assert not {(column, row) for column, row in found if {(column - 1, row), (column + 1, row)} <= taken}
    alone = built(traces[0], look=view(60, 20, ends=(0, 60))).layers
    assert "A" in alone[-1].cells.values()


POINTS = st.lists(st.tuples(st.integers(0, 29), st.integers(0, 19)), min_size=1, max_size=60)


@given(points=POINTS)
def test_a_line_passes_its_points_without_a_gap_and_stays_between_them(points: list[tuple[int, int]]) -> None:
    assert not draw_line(np.array([], dtype=np.int64), np.array([], dtype=np.int64), 4, 4).any()
    xs, ys = (np.array(part, dtype=np.int64) for part in zip(*points, strict=True))
    dots = draw_line(xs, ys, 30, 20)
    assert dots[ys, xs].all()
    rows, columns = np.nonzero(dots)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (ys.min(), ys.max(), xs.min(), xs.max())
    # Everything set can be reached from the first point in steps of one dot.
    lit = {(int(x), int(y)) for y, x in zip(rows, columns, strict=True)}
    reached, border = {points[0]}, [points[0]]
    while border:
        x, y = border.pop()
        around = {(x + i, y + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & lit - reached
        reached |= around
        border.extend(around)
    assert reached == lit


@pytest.mark.parametrize(
    ("marker", "shape", "corner", "cell"),
    [
        ("braille", (4, 2), (0, 0), {(0, 0): "⡀"}),
        ("braille", (4, 2), (3, 1), {(0, 0): "⠈"}),
        ("braille", (8, 6), (7, 5), {(2, 1): "⠈"}),  # cells are counted from the bottom left
        ("block", (2, 2), (0, 0), {(0, 0): "▖"}),
        ("block", (2, 2), (1, 1), {(0, 0): "▝"}),
        ("ascii", (1, 1), (0, 0), {(0, 0): "*"}),
    ],
)
def test_a_dot_lands_in_its_corner_of_the_glyph(
    marker: Marker, shape: tuple[int, int], corner: tuple[int, int], cell: dict[tuple[int, int], str]
) -> None:
    dots = np.zeros(shape, dtype=np.bool_)
    dots[corner] = True
    assert glyphs_of(dots, marker, "*") == cell


@pytest.mark.parametrize("marker", MARKERS)
def test_no_two_pens_share_a_glyph(marker: Marker) -> None:
    pens = [pen_for(0, marker, "dark", is_validation=held) for held in (False, True)]
    assert len({pen.glyph for pen in pens}) == len(pens)
    assert all(pen.glyph.isascii() for pen in pens) is (marker == "ascii")


@pytest.mark.parametrize(("tone", "background"), [("dark", "#1e1e1e"), ("light", "#e0e0e0")])
def test_every_color_can_be_read_on_its_background(tone: Tone, background: str) -> None:
    pens = [
        pen_for(slot, "braille", tone, is_validation=held) for slot, held in itertools.product(range(4), (False, True))
    ]
    for color in [pen.color for pen in pens] + [ALARM[tone]]:
        assert isinstance(color, tuple)
        assert contrast(Color(*color), Color.parse(background)) >= 4.5


@pytest.mark.parametrize("tone", ["dark", "light"])
@pytest.mark.parametrize("slot", range(SLOTS))
@pytest.mark.parametrize("blindness", ["red", "green", "blue"])
def test_training_and_validation_differ_for_people_who_are_color_blind(tone: Tone, slot: int, blindness: str) -> None:
    colors = [pen_for(slot, "braille", tone, is_validation=held).color for held in (False, True)]
    seen = [lab(DICHROMACY[blindness] @ linear(color)) for color in colors if isinstance(color, tuple)]
    # Two to three is the least difference that can be seen side by side.
    assert np.linalg.norm(seen[0] - seen[1]) > 25


def test_without_colors_only_validation_is_dashed() -> None:
    pens = [pen_for(0, "braille", "dark", is_validation=held, has_color=False) for held in (False, True)]
    assert [pen.is_dashed for pen in pens] == [False, True]


# Machado, Oliveira and Fernandes (2009): what people who lack one kind of cone see, in linear RGB.
DICHROMACY = {
    "red": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "green": np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
    "blue": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
}


def linear(color: tuple[int, int, int]) -> npt.NDArray[np.float64]:
    return np.array([c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in Color(*color).normalized])


def lab(rgb: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """CIELAB, in which distances are about as large as they look."""
    to_xyz = np.array([[0.4339, 0.3762, 0.1899], [0.2126, 0.7152, 0.0722], [0.0177, 0.1095, 0.8729]])
    x, y, z = np.cbrt(to_xyz @ np.clip(rgb, 0, 1))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(*colors: Color) -> float:
    """The contrast ratio of WCAG 2."""
    dark, light = sorted(float(np.dot((0.2126, 0.7152, 0.0722), linear(color.rgb))) for color in colors)
    return (light + 0.05) / (dark + 0.05)
