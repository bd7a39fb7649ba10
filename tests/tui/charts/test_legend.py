import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style
from textual.color import Color

from tests.tui.made_runs import made_curve
from tpu_console.tui.charts.curve import Axis
from tpu_console.tui.charts.frame import Entry, header_line, legends_of, reading_line
from tpu_console.tui.charts.scene import ALARM, SLOTS, Marker, Tone, pen_for

ENTRIES = [
    Entry("loss", pen_for(0, "braille", "dark", is_validation=False), 0.1234),
    Entry("val_loss", pen_for(0, "braille", "dark", is_validation=True), 0.1532, 0.15, 24.0),
]


def legend(title: str, width: int, *entries: Entry) -> str:
    return header_line("", legends_of(entries, title), (), width).plain.rstrip()


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (80, "─ train 0.1234  ● val 0.1532 ★ 0.1500 (24)"),
        (41, "─ train 0.123  ● val 0.153 ★ 0.150 (24)"),
        (36, "─ train 0.123  ● val 0.153 ★(24)"),
        (28, "─ train .123 ● val .153 ★24"),
        (25, "─ train .123 ● val .153"),
        (12, "─ train .12…"),
    ],
)
def test_the_legend_says_less_the_narrower_it_is(width: int, text: str) -> None:
    assert legend("loss", width, *ENTRIES) == text


NOTES = [("! 3 NaN", Style(bold=True)), ("log", Style()), ("step", Style())]


@given(width=st.integers(1, 100))
def test_the_header_fits_any_width(width: int) -> None:
    assert header_line("loss", legends_of(ENTRIES, "loss"), NOTES, width).cell_len == width


@pytest.mark.parametrize(
    ("width", "end"),
    [
        (80, "★ 0.1500 (24)              ! 3 NaN  log  step"),
        (63, "(24)   ! 3 NaN  log"),
        (44, "val .153   ! 3 NaN  log"),
        (38, "val .153  ! 3 NaN"),
        (29, "● val .153"),
    ],
)
def test_the_header_gives_up_the_axis_then_words_of_the_legend_then_notes(width: int, end: str) -> None:
    assert header_line("loss", legends_of(ENTRIES, "loss"), NOTES, width).plain.endswith(end)


def test_the_legend_marks_the_epoch_so_far_and_names_a_metric_without_a_finite_value() -> None:
    assert legend("auc", 60, Entry("auc", ENTRIES[0].pen, 0.9, running=True)) == "─ train~ 0.9000"
    assert legend("loss", 60, Entry("loss", ENTRIES[0].pen, math.nan)) == "─ train NaN"


READ = [
    made_curve("loss", [0.01372], [2136.0]),
    made_curve("val_loss", [0.0416, 0.5], [2136.0, 2400.0]),
    made_curve("auc", [0.9], [2400.0], running=True),
    made_curve("accuracy", [0.5, 0.9965], [12.0, 2100.0]),
    made_curve("learning_rate", [1.3e-4], [2136.0]),
]


def reading(width: int) -> str:
    line = reading_line(READ, Axis.STEP, 2399.0, width, "dark")
    assert line is not None
    return line.plain


def test_every_curve_is_read_at_its_newest_sample_with_fewer_words_if_there_is_less_room() -> None:
    whole = "step 2,136 · epoch 21.36 · 1:11:12  loss 0.01372 val 0.04160  auc~ n/a  accuracy 0.9965  lr 1.30e-4"
    assert reading(120) == whole
    short = "step 2,136 ep 21.36 1:11:12  loss 0.0137 val 0.0416  auc~ n/a  acc 0.997  lr 1.3e-4"
    assert reading(len(short)) == short
    assert reading(len(short) - 1) == short.removesuffix("  lr 1.3e-4")
    assert reading_line([], Axis.STEP, 1.0, 80, "dark") is None


@given(width=st.integers(1, 150))
def test_a_reading_fits_any_width(width: int) -> None:
    assert cell_len(reading(width)) <= width


@pytest.mark.parametrize("marker", ["braille", "block", "ascii"])
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
