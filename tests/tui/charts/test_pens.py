from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pytest
from textual.color import Color

from tpu_console.tui.charts.legend import ALARM, SLOTS, Tone, pen_for

if TYPE_CHECKING:
    from tpu_console.tui.charts.raster import Marker


@pytest.mark.parametrize("marker", ["braille", "block", "ascii"])
def test_no_two_pens_share_a_glyph(marker: Marker) -> None:
    pens = [pen_for(0, marker, "dark", is_validation=held) for held in (False, True)]
    assert len({pen.glyph for pen in pens}) == len(pens)
    assert all(pen.glyph.isascii() for pen in pens) is (marker == "ascii")


@pytest.mark.parametrize(("tone", "background"), [("dark", "#1e1e1e"), ("light", "#e0e0e0")])
def test_every_colour_can_be_read_on_its_background(tone: Tone, background: str) -> None:
    pens = [
        pen_for(slot, "braille", tone, is_validation=held) for slot, held in itertools.product(range(4), (False, True))
    ]
    for color in [pen.color for pen in pens] + [ALARM[tone]]:
        assert isinstance(color, tuple)
        assert contrast(Color(*color), Color.parse(background)) >= 4.5


@pytest.mark.parametrize("tone", ["dark", "light"])
@pytest.mark.parametrize("slot", range(SLOTS))
@pytest.mark.parametrize("blindness", ["red", "green", "blue"])
def test_training_and_validation_differ_for_people_who_are_colour_blind(tone: Tone, slot: int, blindness: str) -> None:
    colors = [pen_for(slot, "braille", tone, is_validation=held).color for held in (False, True)]
    seen = [lab(DICHROMACY[blindness] @ linear(color)) for color in colors if isinstance(color, tuple)]
    # Two to three is the least difference that can be seen side by side.
    assert np.linalg.norm(seen[0] - seen[1]) > 25


def test_without_colours_validation_is_dashed() -> None:
    assert pen_for(0, "braille", "dark", is_validation=True, has_color=False).is_dashed
    assert not pen_for(0, "braille", "dark", is_validation=False, has_color=False).is_dashed


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


def contrast(a: Color, b: Color) -> float:
    """The contrast ratio of WCAG 2."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: Color) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color.normalized)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
