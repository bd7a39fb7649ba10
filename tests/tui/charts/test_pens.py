from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from textual.color import Color

from tpu_console.tui.charts.pens import Tone, alarm_color, pen_for

if TYPE_CHECKING:
    from tpu_console.tui.charts.raster import Marker


@pytest.mark.parametrize("marker", ["braille", "block", "ascii"])
def test_no_two_pens_share_a_glyph(marker: Marker) -> None:
    pens = [
        pen_for(slot, marker, "dark", is_validation=held) for slot, held in itertools.product(range(4), (False, True))
    ]
    assert len({pen.glyph for pen in pens}) == len(pens)
    assert all(pen.glyph.isascii() for pen in pens) is (marker == "ascii")


@pytest.mark.parametrize(("tone", "background"), [("dark", "#1e1e1e"), ("light", "#e0e0e0")])
def test_every_colour_can_be_read_on_its_background(tone: Tone, background: str) -> None:
    pens = [
        pen_for(slot, "braille", tone, is_validation=held) for slot, held in itertools.product(range(4), (False, True))
    ]
    for color in [pen.color for pen in pens] + [alarm_color(tone)]:
        assert isinstance(color, tuple)
        assert contrast(Color(*color), Color.parse(background)) >= 4.5


def contrast(a: Color, b: Color) -> float:
    """The contrast ratio of WCAG 2."""
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(color: Color) -> float:
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color.normalized)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
